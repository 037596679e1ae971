package model

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/checkpoint/gguf"
)

// OpenGGUF presents a GGUF file, or all parts of a split one by the path of any, as a
// checkpoint folder: unchanged matrices, in the encodings of package dtype, and
// config, tokenizer and template from the metadata. Opening reads only the headers; a tensor is
// decoded on demand. The caller closes it.
//
// The vision tower is in a separate file, at projector. If that is "" it is the one beside the
// model whose name begins with mmproj; of several that fit the one with the longest common name
// with the model's, and of these the smallest. If none fits there is no tower.
func OpenGGUF(path, projector string) (*checkpoint.Checkpoint, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	family, err := ofGGUF(f)
	if err == nil {
		err = f.Refuse()
	}
	var a checkpoint.Assembly
	if err == nil {
		a, err = family.Assemble(f)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("model: %s: %w", filepath.Base(path), err), f.Close())
	}
	a.Name = path
	if projector != "" {
		if err := family.addTower(&a, projector); err != nil {
			return nil, errors.Join(fmt.Errorf("model: %s: %w", filepath.Base(projector), err), f.Close())
		}
		return checkpoint.Assemble(a)
	}
	for _, p := range projectors(path) {
		if family.addTower(&a, p) == nil {
			break
		}
	}
	return checkpoint.Assemble(a)
}

// ofGGUF is the family of a file.
func ofGGUF(file *gguf.File) (*Family, error) {
	arch, err := file.Text("general.architecture")
	if err != nil {
		return nil, err
	}
	var known []string
	for _, f := range families {
		if slices.Contains(f.GGUF, arch) {
			return f, nil
		}
		known = append(known, f.GGUF...)
	}
	slices.Sort(known)
	if arch == gguf.ProjectorArchitecture {
		return nil, fmt.Errorf("architecture %q is a vision tower without a model: open the model, with this file as its projector", arch)
	}
	return nil, fmt.Errorf("architecture %q is not supported; supported: %s", arch, strings.Join(known, ", "))
}

// addTower adds the tower of the file at path.
func (f *Family) addTower(a *checkpoint.Assembly, path string) error {
	if f.AddTower == nil {
		return errors.New("models of this family have no vision tower")
	}
	p, err := gguf.Open(path)
	if err != nil {
		return err
	}
	if err := f.AddTower(a, p); err != nil {
		return errors.Join(err, p.Close())
	}
	return nil
}

// projectors are the files beside a model that may have its vision tower, the likeliest first.
func projectors(path string) []string {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil // the model was opened all the same
	}
	type candidate struct {
		path   string
		common int
		size   int64
	}
	var list []candidate
	for _, e := range entries {
		name := strings.ToLower(e.Name())
		if !strings.HasPrefix(name, "mmproj") || !strings.HasSuffix(name, ".gguf") {
			continue
		}
		at := filepath.Join(filepath.Dir(path), e.Name())
		info, err := os.Stat(at) // caches of downloads are made of links
		if err == nil && info.Mode().IsRegular() {
			list = append(list, candidate{at, common(name, filepath.Base(path)), info.Size()})
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int { // which ReadDir has sorted by name
		if a.common != b.common {
			return b.common - a.common
		}
		return int(min(max(a.size-b.size, -1), 1))
	})
	paths := make([]string, len(list))
	for i, c := range list {
		paths[i] = c.path
	}
	return paths
}

// common counts the words that two names share.
func common(a, b string) int {
	words := func(s string) []string {
		return strings.FieldsFunc(strings.TrimSuffix(strings.ToLower(s), ".gguf"), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	}
	n := 0
	for _, w := range words(a) {
		if slices.Contains(words(b), w) {
			n++
		}
	}
	return n
}
