package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// folder is a folder that appears whole or not at all: it is filled under another name
// beside its own.
type folder struct {
	final, temp string
}

// newFolder begins a folder. An existing one is an error unless it is empty,
// or holds a model and replace is true: only models are removed. source is the
// folder or file that is read, which must be elsewhere.
func newFolder(final, source string, replace bool) (*folder, error) {
	final, err := filepath.Abs(final)
	if err != nil {
		return nil, err
	}
	if holds(final, source) {
		return nil, fmt.Errorf("convert: %s is or contains the model to convert: choose another output folder", final)
	}
	entries, err := os.ReadDir(final)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(entries) == 0:
	case err != nil:
		return nil, fmt.Errorf("convert: %w", err)
	case !replace:
		return nil, fmt.Errorf("convert: %s: %w", final, fs.ErrExist)
	case !isModel(entries):
		return nil, fmt.Errorf("convert: %s contains something other than a model and is not replaced: choose another folder", final)
	}
	parent := filepath.Dir(final)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	temp, err := os.MkdirTemp(parent, "."+filepath.Base(final)+".partial-*")
	if err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	return &folder{final, temp}, os.Chmod(temp, 0o755)
}

// holds reports whether path exists and is dir or inside of it.
func holds(dir, path string) bool {
	folder, err := os.Stat(dir)
	if err != nil {
		return false
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return false
	}
	if path, err = filepath.Abs(path); err != nil {
		return false
	}
	for {
		if info, err := os.Stat(path); err == nil && os.SameFile(info, folder) {
			return true
		}
		up := filepath.Dir(path)
		if up == path {
			return false
		}
		path = up
	}
}

// isModel reports whether a folder holds a model and nothing that could be missed.
func isModel(entries []fs.DirEntry) bool {
	config, weights := false, false
	for _, e := range entries {
		if e.IsDir() && e.Name() != "mtp" {
			return false
		}
		config = config || e.Name() == "config.json"
		weights = weights || filepath.Ext(e.Name()) == ".safetensors"
	}
	return config && weights
}

// finish renames the folder if err is nil, and else removes it. It returns err, or
// its own error.
func (f *folder) finish(err error) error {
	if err == nil {
		err = f.commit()
	}
	if err != nil {
		err = errors.Join(err, os.RemoveAll(f.temp))
	}
	return err
}

func (f *folder) commit() error {
	old := f.temp + ".old"
	err := os.Rename(f.final, old)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	had := err == nil
	if err := os.Rename(f.temp, f.final); err != nil {
		if had {
			err = errors.Join(err, os.Rename(old, f.final))
		}
		return err
	}
	if had {
		return os.RemoveAll(old)
	}
	return nil
}
