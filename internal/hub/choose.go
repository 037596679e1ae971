package hub

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Files that a model needs besides its weights, and the weights in the format that all tools
// read. Pickles (*.bin, *.pt) run code when they are read, and nothing here reads them.
var (
	textFiles = []string{
		"config.json", "generation_config.json", "quantize_config.json", "hf_quant_config.json", "tokenizer*", "vocab.json", "merges.txt", "added_tokens.json",
		"special_tokens_map.json", "chat_template*", "additional_chat_templates/*", "preprocessor_config.json",
		"video_preprocessor_config.json", "processor_config.json", "mtplx_runtime.json", "mtp/*.json",
	}
	weightFiles = []string{"*.safetensors", indexFile, "mtp/*.safetensors"}
	// modelFiles are, without an index, the weights where there are any of that name.
	modelFiles = []string{"model*.safetensors", "mtp.safetensors", "mtp/*.safetensors"}
)

// indexFile lists the files of weights.
const indexFile = "model.safetensors.index.json"

// Choose picks the files to fetch: those that match a pattern of include, or without include
// the usual files of a model; minus those that match a pattern of exclude. A
// pattern with a slash is matched against the whole path, one without against each part of it.
func (l *Listing) Choose(include, exclude []string) ([]File, error) {
	for _, p := range slices.Concat(include, exclude) {
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("hub: pattern %q: %w", p, err)
		}
	}
	var files []File
	var err error
	if len(include) > 0 {
		files = l.matching(func(f string) bool { return matchesPart(include, f) })
	} else if files, err = l.usual(exclude); err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(f File) bool { return matchesPart(exclude, f.Path) })
	if len(files) == 0 {
		return nil, fmt.Errorf("hub: the patterns match none of the %d files of %s: %s", len(l.Files), l.Repo, fileList(l.Files))
	}
	return files, nil
}

// usual are the files of a model: text files, and weights as safetensors or, if there
// are none, the only GGUF file, or the only folder with safetensors.
func (l *Listing) usual(exclude []string) ([]File, error) {
	texts := l.matching(func(f string) bool { return matchesWhole(textFiles, f) })
	weights := l.matching(func(f string) bool { return matchesWhole(weightFiles, f) })
	has := func(pattern string) bool {
		return slices.ContainsFunc(weights, func(f File) bool { return matchesWhole([]string{pattern}, f.Path) })
	}
	if has("*.safetensors") {
		if !has(indexFile) && has(modelFiles[0]) {
			weights = slices.DeleteFunc(weights, func(f File) bool { return !matchesWhole(modelFiles, f.Path) })
		}
		return append(texts, weights...), nil
	}
	var variants []variant
	kind, example := "GGUF models: choose one by a part of its name", "*Q4_K_M*"
	for _, v := range variantsOf(l.Files) {
		if !matchesPart(exclude, v.name) {
			variants = append(variants, v)
		}
	}
	if len(variants) == 0 {
		variants = foldersOf(l.Files)
		if kind = "models in folders: choose one by the name of its folder"; len(variants) > 0 {
			example = variants[0].name
		}
	} else if !slices.ContainsFunc(variants, func(v variant) bool { return matchesPart([]string{example}, v.name) }) {
		example = strings.TrimSuffix(path.Base(variants[0].name), ".gguf") + "*"
	}
	switch len(variants) {
	case 0:
		return nil, fmt.Errorf("hub: %s has neither *.safetensors nor *.gguf files; it has %s", l.Repo, fileList(l.Files))
	case 1:
		return append(texts, variants[0].files...), nil
	}
	var b strings.Builder
	for _, v := range variants {
		fmt.Fprintf(&b, "\n  %8.2f GB  %s", float64(v.size)/1e9, v.name)
	}
	return nil, fmt.Errorf("hub: %s has %d %s, such as --include '%s':%s", l.Repo, len(variants), kind, example, b.String())
}

func (l *Listing) matching(want func(path string) bool) []File {
	var files []File
	for _, f := range l.Files {
		if want(f.Path) {
			files = append(files, f)
		}
	}
	return files
}

// matchesWhole reports whether one of the patterns, all of them well formed, matches.
func matchesWhole(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, name)
		return ok
	})
}

// matchesPart is matchesWhole, where a pattern without a slash may match a part of the path.
func matchesPart(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if strings.Contains(p, "/") {
			return matchesWhole([]string{p}, name)
		}
		return slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return matchesWhole([]string{p}, part) })
	})
}

// variant is one of several models in a repository: a GGUF file, the parts of one, or a folder.
type variant struct {
	name  string
	files []File
	size  int64
}

var splitPart = regexp.MustCompile(`-\d{5}-of-\d{5}\.gguf$`)

// variantsOf are the models among GGUF files, without files that belong to a model, such as a
// vision projector.
func variantsOf(files []File) []variant {
	var found []variant
	for _, f := range files {
		if path.Ext(f.Path) != ".gguf" || strings.HasPrefix(path.Base(f.Path), "mmproj") {
			continue
		}
		name := splitPart.ReplaceAllString(f.Path, ".gguf")
		if n := len(found); n == 0 || found[n-1].name != name {
			found = append(found, variant{name: name})
		}
		v := &found[len(found)-1]
		v.files, v.size = append(v.files, f), v.size+f.Size
	}
	return found
}

// foldersOf are the models in folders that have a config and safetensors.
func foldersOf(files []File) []variant {
	var found []variant
	for _, f := range files {
		folder, name := path.Split(f.Path)
		if name == "config.json" && folder != "" {
			found = append(found, variant{name: strings.TrimSuffix(folder, "/")})
		}
	}
	weights := func(f File) bool { return path.Ext(f.Path) == ".safetensors" }
	for i := range found {
		v := &found[i]
		for _, f := range files {
			if path.Dir(f.Path) == v.name {
				v.files, v.size = append(v.files, f), v.size+f.Size
			}
		}
	}
	return slices.DeleteFunc(found, func(v variant) bool { return !slices.ContainsFunc(v.files, weights) })
}

// fileList names a few of many files.
func fileList(files []File) string {
	const few = 8
	if len(files) == 0 {
		return "no files"
	}
	names := make([]string, min(few, len(files)))
	for i := range names {
		names[i] = files[i].Path
	}
	text := strings.Join(names, ", ")
	if more := len(files) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
