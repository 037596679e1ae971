package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"
)

// source is where the files of a checkpoint come from: a folder or the binary.
// Names are slash-separated, relative, and valid by fs.ValidPath.
type source interface {
	list() ([]string, error)                       // plain file names at the top, sorted
	read(name string, limit int64) ([]byte, error) // fs.ErrNotExist when there is none
	open(name string) (*file, error)               // the whole file, read-only
}

// folder is a directory on disk. Links are followed, wherever they lead: the
// caches of download tools use them, and the folder is the user's choice.
// Names from files in it are checked before they get here.
type folder string

func (d folder) list() ([]string, error) {
	all, err := os.ReadDir(string(d))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range all {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// file opens a regular file and returns its size. The stat before the opening is
// for pipes, which would block.
func (d folder) file(name string) (*os.File, int64, error) {
	path := filepath.Join(string(d), filepath.FromSlash(name))
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	if info, err = f.Stat(); err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

func (d folder) read(name string, limit int64) ([]byte, error) {
	f, size, err := d.file(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading: nothing to lose
	if size > limit {
		return nil, tooLarge(size, limit)
	}
	b := make([]byte, size)
	_, err = io.ReadFull(f, b)
	return b, err
}

func (d folder) open(name string) (*file, error) {
	f, size, err := d.file(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // a mapping outlives its descriptor
	if size < 8 || int64(int(size)) != size {
		return nil, fmt.Errorf("not a safetensors file: %d bytes", size)
	}
	return newMapped(name, f, int(size))
}

// newMapped maps the first size bytes of an open file.
func newMapped(name string, f *os.File, size int) (*file, error) {
	from := originOf(f)
	data, err := mapFile(f, size)
	if err != nil {
		return nil, err
	}
	return &file{name: name, data: data, mapped: true, backed: true, origin: from}, nil
}

// embedded holds file contents by name, as go:embed gives them.
type embedded map[string]string

func (m embedded) list() ([]string, error) {
	var names []string
	for name := range m {
		if !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (m embedded) read(name string, limit int64) ([]byte, error) {
	s, ok := m[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if int64(len(s)) > limit {
		return nil, tooLarge(int64(len(s)), limit)
	}
	return []byte(s), nil
}

// open aliases the string: the weights of an embedded model are never copied.
func (m embedded) open(name string) (*file, error) {
	s, ok := m[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	data := unsafe.Slice(unsafe.StringData(s), len(s))
	return &file{name: name, data: data, backed: inProgram(data)}, nil
}

func tooLarge(size, limit int64) error {
	return fmt.Errorf("%d bytes, want at most %d", size, limit)
}
