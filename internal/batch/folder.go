package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Folder is a Store of plain files. Files are complete: a file is renamed when it has been
// written to the disk. One process at a time has the folder.
type Folder struct {
	dir  string
	lock *os.File
	lazy bool // leave it to the system when files are written; for tests

	mu sync.Mutex // held while names change
}

// ErrLocked is wrapped by the error for a folder that is another process's.
var ErrLocked = errors.New("another process uses it")

// tempFolder has files that are being written, with tempPrefix. Those of an earlier process
// are removed when the folder is opened; other files there are left alone.
const (
	tempFolder = "tmp"
	tempPrefix = "new-"
)

// OpenFolder opens a folder, made if need be. The caller closes it.
func OpenFolder(dir string) (*Folder, error) {
	temp := filepath.Join(dir, tempFolder)
	if err := os.MkdirAll(temp, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	f := &Folder{dir: dir, lock: lock}
	left, err := os.ReadDir(temp)
	for _, e := range left {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			err = errors.Join(err, os.Remove(filepath.Join(temp, e.Name())))
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Close releases the folder for other processes.
func (f *Folder) Close() error { return f.lock.Close() }

// validKey is the form of keys: none leads out of a folder, or is a reserved file name of an operating
// system.
var validKey = regexp.MustCompile(`^[a-z]+(/[A-Za-z0-9_-]{1,128})+$`)

// path is the file of a key.
func (f *Folder) path(key string) (string, error) {
	if !validKey.MatchString(key) || strings.HasPrefix(key, tempFolder+"/") {
		return "", fmt.Errorf("%.80q is not a valid key", key)
	}
	return filepath.Join(f.dir, filepath.FromSlash(key)), nil
}

// Create implements Store.
func (f *Folder) Create(_ context.Context, key string, r io.Reader) error {
	path, err := f.path(key)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return ErrExists
	}
	return f.place(path, r, func() error {
		if _, err := os.Lstat(path); err == nil {
			return ErrExists
		}
		return nil
	})
}

// place writes a file and renames it, if check still succeeds.
func (f *Folder) place(path string, r io.Reader, check func() error) (err error) {
	temp, err := os.CreateTemp(filepath.Join(f.dir, tempFolder), tempPrefix)
	if err != nil {
		return full(err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp.Name()) // else the next start does
		}
	}()
	_, err = io.Copy(temp, r)
	if err == nil && !f.lazy {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return full(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := check(); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := f.mkdir(dir); err != nil {
		return full(err)
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return full(err)
	}
	return full(f.sync(dir))
}

// sync has the names in a folder written to the disk.
func (f *Folder) sync(dir string) error {
	if f.lazy {
		return nil
	}
	return syncFolder(dir)
}

// mkdir creates a folder and its parents, durably.
func (f *Folder) mkdir(dir string) error {
	if _, err := os.Stat(dir); err == nil || dir == f.dir {
		return err
	}
	if err := f.mkdir(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return f.sync(filepath.Dir(dir))
}

// full names a full disk.
func full(err error) error {
	if isFull(err) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// Open implements Store.
func (f *Folder) Open(_ context.Context, key string) (io.ReadCloser, error) {
	path, err := f.path(key)
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

// Range implements Store.
func (f *Folder) Range(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	r, err := f.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // read only
	return readRange(r.(*os.File), offset, length)
}

// readRange reads a part of a file. offset and length are not trusted.
func readRange(r io.ReaderAt, offset, length int64) ([]byte, error) {
	if offset < 0 || length < 0 || length > MaxLine {
		return nil, fmt.Errorf("%d bytes at offset %d are outside of the file", length, offset)
	}
	data := make([]byte, length)
	_, err := io.ReadFull(io.NewSectionReader(r, offset, length), data)
	return data, err
}

// A record is a line with its revision, and its data.
func (f *Folder) get(path string) (data []byte, rev uint64, err error) {
	whole, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	head, data, _ := bytes.Cut(whole, []byte("\n"))
	if rev, err = strconv.ParseUint(string(head), 10, 64); err != nil || rev == 0 {
		return nil, 0, fmt.Errorf("%s: it is damaged", path)
	}
	return data, rev, nil
}

// Put implements Store.
func (f *Folder) Put(_ context.Context, key string, data []byte, rev uint64) (uint64, error) {
	path, err := f.path(key)
	if err != nil {
		return 0, err
	}
	whole := append(strconv.AppendUint(nil, rev+1, 10), '\n')
	err = f.place(path, bytes.NewReader(append(whole, data...)), func() error {
		_, now, err := f.get(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if now != rev {
			return ErrConflict
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return rev + 1, nil
}

// Get implements Store.
func (f *Folder) Get(_ context.Context, key string) (data []byte, rev uint64, err error) {
	path, err := f.path(key)
	if err != nil {
		return nil, 0, err
	}
	return f.get(path)
}

// Delete implements Store.
func (f *Folder) Delete(_ context.Context, key string) error {
	path, err := f.path(key)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if dir := filepath.Dir(path); strings.Count(key, "/") > 1 { // the folder of one batch
		_ = os.Remove(dir) // if it was the last
	}
	return nil
}

// List implements Store.
func (f *Folder) List(_ context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		top := prefix[:strings.LastIndexByte(prefix, '/')+1]
		if top == "" || !validKey.MatchString(top+"x") {
			yield("", fmt.Errorf("%.80q is not a valid prefix of keys", prefix))
			return
		}
		var keys []string
		err := filepath.WalkDir(filepath.Join(f.dir, filepath.FromSlash(top)), func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // nothing was created yet, or it was deleted meanwhile
			}
			if err != nil || e.IsDir() {
				return err
			}
			rest, err := filepath.Rel(f.dir, path)
			if key := filepath.ToSlash(rest); strings.HasPrefix(key, prefix) && validKey.MatchString(key) {
				keys = append(keys, key)
			}
			return err
		})
		if err != nil {
			yield("", err)
			return
		}
		slices.Sort(keys)
		for _, key := range keys {
			if !yield(key, nil) {
				return
			}
		}
	}
}

var _ Store = (*Folder)(nil)
