package hub

import (
	"path"
	"slices"
	"strings"
	"testing"
)

func listing(paths ...string) *Listing {
	l := &Listing{Repo: testRepo}
	for _, p := range paths {
		l.Files = append(l.Files, File{Path: p, Size: 2e9})
	}
	slices.SortFunc(l.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return l
}

func TestChooseTakesWhatAModelIsMadeOf(t *testing.T) {
	release := []string{
		".gitattributes", "README.md", "LICENSE", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
		"vocab.json", "merges.txt", "chat_template.jinja", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
		"model-00002-of-00002.safetensors", "mtp.safetensors", "pytorch_model.bin", "onnx/model.onnx", "original/model.safetensors",
		"mtp/weights.safetensors", "mtp/manifest.json", "figures/speed.png", "model-Q8_0.gguf",
	}
	gguf := []string{"README.md", "config.json", "Tiny-Q4_K_M.gguf", "Tiny-Q8_0.gguf", "mmproj-F16.gguf", "BF16/Tiny-BF16-00001-of-00002.gguf", "BF16/Tiny-BF16-00002-of-00002.gguf"}
	for name, c := range map[string]struct {
		files, include, exclude []string
		want                    []string
	}{
		"release": {release, nil, nil, []string{
			"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt",
			"chat_template.jinja", "model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
			"mtp.safetensors", "mtp/weights.safetensors", "mtp/manifest.json",
		}},
		"without":        {release, nil, []string{"mtp*", "vocab.json", "tok*", "chat*", "merges*", "gen*", "*-00002-of*"}, []string{"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"}},
		"only":           {release, []string{"*.json"}, []string{"mtp/*"}, []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json", "model.safetensors.index.json"}},
		"by path":        {release, []string{"on*/*.onnx"}, nil, []string{"onnx/model.onnx"}},
		"by folder":      {release, []string{"onnx"}, nil, []string{"onnx/model.onnx"}},
		"one of many":    {gguf, []string{"*Q4_K_M*.gguf"}, nil, []string{"Tiny-Q4_K_M.gguf"}},
		"in parts":       {gguf, []string{"*BF16*"}, nil, gguf[5:]},
		"all but one":    {gguf, nil, []string{"*Q*"}, append([]string{"config.json"}, gguf[5:]...)},
		"quantized":      {[]string{"config.json", "hf_quant_config.json", "quantize_config.json", "recipe.yaml", "model.safetensors"}, nil, nil, []string{"config.json", "hf_quant_config.json", "quantize_config.json", "model.safetensors"}},
		"consolidated":   {[]string{"config.json", "consolidated.safetensors", "model-00001-of-00001.safetensors", "model-mtp.safetensors"}, nil, nil, []string{"config.json", "model-00001-of-00001.safetensors", "model-mtp.safetensors"}},
		"other names":    {[]string{"config.json", "weights.00.safetensors"}, nil, nil, []string{"config.json", "weights.00.safetensors"}},
		"one folder":     {[]string{"README.md", "tokenizer.json", "4bit/config.json", "4bit/model.safetensors", "img/x.png"}, nil, nil, []string{"tokenizer.json", "4bit/config.json", "4bit/model.safetensors"}},
		"the only model": {gguf[:3], nil, nil, []string{"config.json", "Tiny-Q4_K_M.gguf"}},
	} {
		files, err := listing(c.files...).Choose(c.include, c.exclude)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		for _, f := range files {
			got = append(got, f.Path)
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	for says, c := range map[string]struct{ files, include []string }{
		"has 3 GGUF models: choose one by a part of its name, such as --include '*Q4_K_M*':\n      4.00 GB  BF16/Tiny-BF16.gguf\n      2.00 GB  Tiny-Q4":          {gguf, nil},
		"has 2 GGUF models: choose one by a part of its name, such as --include 'M-UD-IQ2_M*':\n      2.00 GB  M-UD-IQ2_M.gguf\n      4.00 GB  M-UD-Q3_K_XL.gguf": {[]string{"M-UD-IQ2_M.gguf", "M-UD-Q3_K_XL-00001-of-00002.gguf", "M-UD-Q3_K_XL-00002-of-00002.gguf"}, nil},
		"has 2 models in folders: choose one by the name of its folder, such as --include '4bit':\n      4.00 GB  4bit\n      4.00 GB  8bit":                      {[]string{"4bit/config.json", "4bit/model.safetensors", "8bit/config.json", "8bit/model.safetensors", "none/config.json"}, nil},
		"has neither *.safetensors nor *.gguf files; it has config.json, pytorch_model.bin":                                                                       {[]string{"config.json", "pytorch_model.bin"}, nil},
		"the patterns match none of the 21 files of Org/Tiny-1.5: .gitattributes, LICENSE":                                                                        {release, []string{"*.pt"}},
		"it has no files":          {nil, nil},
		path.ErrBadPattern.Error(): {release, []string{"[a"}},
	} {
		if _, err := listing(c.files...).Choose(c.include, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want %q", c.include, err, says)
		}
	}
}

func TestParseName(t *testing.T) {
	for name, want := range map[string][2]string{
		"Qwen/Qwen3.5-4B":         {"Qwen/Qwen3.5-4B", ""},
		"gpt2":                    {"gpt2", ""},
		"a/b@main":                {"a/b", "main"},
		"a/b@refs/pr/1":           {"a/b", "refs/pr/1"},
		"mlx-community/x_y-4bit.": {"mlx-community/x_y-4bit.", ""},
	} {
		repo, revision, err := ParseName(name)
		if err != nil || string(repo) != want[0] || revision != want[1] {
			t.Errorf("%q: %q, %q, %v", name, repo, revision, err)
		}
	}
	for _, name := range []string{"", "/", "a/", "/a", "a/b/c", "../b", "a/..", "a/b@", "a/b@../x", "a/b@/x", "a--b/c", "a/b--c", "https://huggingface.co/a/b", `a\b`, "a b/c", "a/b\x00", "./a", ".locks", "-a/b"} {
		if repo, revision, err := ParseName(name); err == nil {
			t.Errorf("%q is taken for %q at %q", name, repo, revision)
		}
	}
}
