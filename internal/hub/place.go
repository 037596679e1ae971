package hub

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Names in the cache.
const (
	refsFolder      = "refs"
	blobsFolder     = "blobs"
	snapshotsFolder = "snapshots"
	locksFolder     = ".locks"
	partialSuffix   = ".incomplete"
)

// place makes pointer a link to the blob. On file systems without links, such as those of
// memory sticks, pointer becomes the file itself: a fresh blob is moved there, and one
// that others may refer to is copied.
func (c *Client) place(blob, pointer string, fresh bool) error {
	folder := filepath.Dir(pointer)
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	target, err := filepath.Rel(folder, blob)
	if err != nil {
		return err
	}
	temporary := filepath.Join(folder, "."+rand.Text()+".tmp")
	if c.symlink(target, temporary) != nil {
		if fresh {
			return os.Rename(blob, pointer)
		}
		err = copyFile(temporary, blob)
	}
	if err == nil {
		err = os.Rename(temporary, pointer)
	}
	if err != nil {
		_ = os.Remove(temporary) // it may not be there
	}
	return err
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // opened for reading: nothing to lose
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// writeRef records the commit of a branch or tag, atomically.
func writeRef(root, revision, commit string) error {
	if revision == commit {
		return nil
	}
	path := filepath.Join(root, refsFolder, filepath.FromSlash(revision))
	if old, err := os.ReadFile(path); err == nil && string(old) == commit {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	temporary := filepath.Join(filepath.Dir(path), "."+rand.Text()+".tmp")
	err := os.WriteFile(temporary, []byte(commit), 0o666)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		_ = os.Remove(temporary) // it may not be there
	}
	return err
}

// lockPoll is how often a lock is tried that another program holds.
const lockPoll = 200 * time.Millisecond

// lock takes the lock that the file at path stands for, as the hub's own programs take it.
// It calls waiting once if another process has the lock. The file is not removed:
// other processes may be waiting for it.
func (c *Client) lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	for told := false; ; {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o664)
		if err != nil {
			return nil, err
		}
		locked, err := tryLock(file)
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		if locked && isAt(file, path) {
			return func() { _ = file.Close() }, nil // closing unlocks
		}
		if err := file.Close(); err != nil {
			return nil, err
		}
		if locked {
			continue // another process removed the file in the meantime: lock the current one
		}
		if !told {
			waiting()
			told = true
		}
		if err := c.sleep(ctx, lockPoll); err != nil {
			return nil, err
		}
	}
}

// isAt reports whether the open file is still the one at path.
func isAt(file *os.File, path string) bool {
	a, errA := file.Stat()
	b, errB := os.Stat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}
