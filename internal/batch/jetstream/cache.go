package jetstream

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// cache keeps objects as files, for reads of parts of them. An object never changes, so a file is
// right or it is not there. Several processes may share a folder.
type cache struct {
	root *os.Root
	size int64 // maximum bytes of all files

	mu sync.Mutex // one download at a time: other readers of the same file wait for it
}

const (
	defaultCache = 4 << 30
	partial      = ".part" // the end of the name of a file that is not whole
)

// newCache opens a folder, and creates it if necessary.
func newCache(dir string, size int64) (*cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	if size <= 0 {
		size = defaultCache
	}
	return &cache{root: root, size: size}, nil
}

// open opens an object's file, downloaded if it is not there.
func (c *cache) open(ref reference, download func(io.Writer) error) (*os.File, error) {
	if filepath.Base(ref.Object) != ref.Object || !filepath.IsLocal(ref.Object) {
		return nil, errors.New("the reference has an invalid object name") // not written by this program
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for range 3 {
		f, err := c.root.Open(ref.Object)
		if err == nil {
			if info, err := f.Stat(); err == nil && info.Size() == ref.Size {
				return f, nil
			}
			_ = f.Close() // read only
		}
		if err := c.fetch(ref, download); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: other processes repeatedly remove it from the cache", ref.Object)
}

// fetch downloads an object to a temporary file, which is then renamed; mu is held.
func (c *cache) fetch(ref reference, download func(io.Writer) error) error {
	c.evict(ref.Size)
	part := rand.Text() + partial
	f, err := c.root.Create(part)
	if err != nil {
		return err
	}
	err = download(f)
	if err = errors.Join(err, f.Close()); err == nil {
		err = c.root.Rename(part, ref.Object)
	}
	if err != nil {
		err = errors.Join(err, c.root.Remove(part))
	}
	return err
}

// remove forgets an object.
func (c *cache) remove(ref reference) {
	if filepath.IsLocal(ref.Object) {
		_ = c.root.Remove(ref.Object) // it may never have been read here
	}
}

// evict frees space, oldest first. Open files stay readable.
func (c *cache) evict(room int64) {
	entries, err := fs.ReadDir(c.root.FS(), ".")
	if err != nil {
		return
	}
	var files []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // gone meanwhile
		}
		if strings.HasSuffix(e.Name(), partial) && time.Since(info.ModTime()) < time.Hour {
			continue // of another process
		}
		files = append(files, info)
		room += info.Size()
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, f := range files {
		if room <= c.size {
			return
		}
		if c.root.Remove(f.Name()) == nil {
			room -= f.Size()
		}
	}
}
