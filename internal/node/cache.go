package node

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/dtype"
)

// cache is a folder with the matrices that leaders have sent, a file for each with its digest as its name.
type cache struct {
	folder string
	limit  int64 // bytes
	size   int64
	began  time.Time // files that were used since stay
	files  []cached  // the one that was not used for the longest time first
}

type cached struct {
	name string
	size int64
	used time.Time
}

// weightSuffix is the end of the names of files of matrices.
const weightSuffix = ".weight"

// openCache finds what is in a folder, which need not exist. What interrupted processes left is removed.
func openCache(folder string, limit int64) (*cache, error) {
	c := &cache{folder: folder, limit: limit, began: time.Now()}
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil: // gone in the meantime
		case strings.HasSuffix(e.Name(), weightSuffix):
			c.files = append(c.files, cached{e.Name(), info.Size(), info.ModTime()})
			c.size += info.Size()
		case strings.HasPrefix(e.Name(), temporary) && time.Since(info.ModTime()) > time.Hour: // else another process may be writing it
			_ = os.Remove(filepath.Join(folder, e.Name())) // it is tried again at the next start
		}
	}
	slices.SortFunc(c.files, func(a, b cached) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.name, b.name)) })
	c.evict(0)
	return c, nil
}

func (c *cache) name(d remote.Digest) string { return hex.EncodeToString(d[:]) + weightSuffix }

// evict makes room for n bytes, and reports whether there is.
func (c *cache) evict(n int64) bool {
	for c.size+n > c.limit && len(c.files) > 0 && c.files[0].used.Before(c.began) {
		c.drop(c.files[0].name)
	}
	return c.size+n <= c.limit
}

// drop removes a file.
func (c *cache) drop(name string) {
	if i := slices.IndexFunc(c.files, func(f cached) bool { return f.name == name }); i >= 0 {
		c.size -= c.files[i].size
		c.files = slices.Delete(c.files, i, i+1)
	}
	_ = os.Remove(filepath.Join(c.folder, name)) // whatever is there does not count anymore
}

// use notes that a file was used now.
func (c *cache) use(name string, size int64) {
	i := slices.IndexFunc(c.files, func(f cached) bool { return f.name == name })
	if i >= 0 {
		c.files = slices.Delete(c.files, i, i+1)
	} else {
		c.size += size
	}
	now := time.Now()
	c.files = append(c.files, cached{name, size, now})
	_ = os.Chtimes(filepath.Join(c.folder, name), now, now) // otherwise it is dropped earlier
}

// find reads a matrix. An error says that its file is damaged, and has been removed.
func (c *cache) find(d remote.Digest) (m dtype.Matrix, ok bool, err error) {
	name := c.name(d)
	f, err := os.Open(filepath.Join(c.folder, name))
	if err != nil {
		return m, false, nil
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err == nil {
		m, err = remote.ReadMatrix(f, info.Size())
	}
	if err == nil && remote.DigestOf(&m) != d {
		err = errors.New("its bytes are not those of its name")
	}
	if err != nil {
		c.drop(name)
		return dtype.Matrix{}, false, fmt.Errorf("%s: %w: it was removed, the leader sends it again", filepath.Join(c.folder, name), err)
	}
	c.use(name, info.Size())
	return m, true, nil
}

// keep writes a matrix. It reports false if the limit leaves no room for it.
func (c *cache) keep(d remote.Digest, m *dtype.Matrix) (bool, error) {
	if !c.evict(m.Bytes()) {
		return false, nil
	}
	name := c.name(d)
	size := int64(0)
	err := writeFile(filepath.Join(c.folder, name), func(f *os.File) (err error) {
		if err = remote.WriteMatrix(f, m); err == nil {
			size, err = f.Seek(0, io.SeekCurrent)
		}
		return err
	})
	if err == nil {
		c.use(name, size)
	}
	return err == nil, err
}

// temporary begins the names of files that are being written.
const temporary = ".writing-"

// writeFile writes a file at once: it has its name when it is complete. What a power failure leaves of it is found by its
// digests.
func writeFile(path string, write func(*os.File) error) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, temporary)
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// fileName is a name for what belongs to a path.
func fileName(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:16])
}
