// Package store keeps the files of a prefix cache: in a folder of this machine, and in a store that
// several processes share. It knows the names of files and the keys of prefixes, not their contents.
// Files are written and read in the background.
package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Store keeps files by name. It does not know their contents. It is safe for concurrent use,
// by several processes too.
type Store interface {
	// Get returns a file. The error is fs.ErrNotExist if it does not exist. A file of more than limit
	// bytes is an error.
	Get(ctx context.Context, name string, limit int64) ([]byte, error)
	// Put writes a file, whole or not at all. An existing one stays unless replace is set.
	Put(ctx context.Context, name string, data []byte, replace bool) error
	// List returns the files whose names begin with a prefix, at most limit of them, in no order.
	List(ctx context.Context, prefix string, limit int) ([]Item, error)
}

// Item is a file of a store.
type Item struct {
	Name string
	Size int64
	Used time.Time // as far as the store knows
}

// Folder is a store in a folder of a file system.
type Folder string

// OpenFolder makes the folder if it is not there.
func OpenFolder(dir string) (Folder, error) {
	return Folder(dir), os.MkdirAll(dir, 0o700)
}

func (f Folder) path(name string) string { return filepath.Join(string(f), name) }

// Get implements Store.
func (f Folder) Get(_ context.Context, name string, limit int64) ([]byte, error) {
	info, err := os.Stat(f.path(name))
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, TooLarge(info.Size(), limit)
	}
	return os.ReadFile(f.path(name))
}

// TooLarge is the error of a file larger than any that this program writes.
func TooLarge(size, limit int64) error {
	return fmt.Errorf("%w: %d bytes, want at most %d", errForeign, size, limit)
}

// Put implements Store. The file is not synced to the device: one that a power failure has
// damaged does not match its checksum. It replaces an existing file.
func (f Folder) Put(_ context.Context, name string, data []byte, _ bool) error {
	t, err := os.CreateTemp(string(f), "*"+tempSuffix)
	if err != nil {
		return err
	}
	_, err = t.Write(data)
	if err = errors.Join(err, t.Close()); err == nil {
		err = os.Rename(t.Name(), f.path(name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(t.Name()))
	}
	return nil
}

// List implements Store. It leaves out hidden files, which are records of other packages, and files
// that are being written, and removes those of a process that was killed while it wrote.
func (f Folder) List(_ context.Context, prefix string, limit int) (items []Item, err error) {
	list, err := os.ReadDir(string(f))
	if err != nil {
		return nil, err
	}
	for _, x := range list {
		name := x.Name()
		if strings.HasPrefix(name, ".") || !strings.HasPrefix(name, prefix) {
			continue
		}
		info, err := x.Info()
		if err != nil {
			continue // removed since
		}
		if strings.HasSuffix(name, tempSuffix) {
			if time.Since(info.ModTime()) > staleTemp {
				_ = os.Remove(f.path(name))
			}
			continue
		}
		if len(items) == limit {
			break
		}
		size := info.Size()
		if !info.Mode().IsRegular() {
			size = notAFile
		}
		items = append(items, Item{name, size, info.ModTime()})
	}
	return items, nil
}

// staleTemp is the age of a temporary file that is not being written any more.
const staleTemp = time.Hour

// notAFile is the size of a folder or a device.
const notAFile = -1

// Remove removes a file. One that is still there will be found by the next process.
func (f Folder) Remove(name string) { _ = os.Remove(f.path(name)) }

// Touch notes that a file was used: the next process begins with it. Only the order in which
// files are removed depends on it.
func (f Folder) Touch(name string, now time.Time) {
	_ = os.Chtimes(f.path(name), time.Time{}, now)
}

// errForeign is the error of a foreign or damaged file.
var errForeign = errors.New("not a file of this cache")

// isGone reports that a file does not exist, which is not a failure.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
