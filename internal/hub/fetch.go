package hub

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// State is the state of a file.
type State int

// The states of a file.
const (
	Fetching State = iota // bytes are arriving, or existing bytes are checked
	Waiting               // another program is fetching the same file
	Retrying              // something went wrong, and is tried again
	Finished              // the file is in its place
)

// Event is the progress of a file.
type Event struct {
	File  File
	State State
	Done  int64 // bytes of the file that are here; it falls when they turn out to be wrong

	Err  error         // the error, if Retrying
	Wait time.Duration // until the retry, if Retrying
}

// Fetch brings files of a listing into the cache, except those that are there, and returns
// their folder. When all are there, the listing's revision stands for its
// commit. A Fetch that was interrupted, by an error or the end of ctx, is resumed by the next
// one. report, if not nil, is called with progress, one call at a
// time.
func (c *Client) Fetch(ctx context.Context, l *Listing, files []File, report func(Event)) (folder string, err error) {
	f := &fetch{c: c, l: l, root: filepath.Join(string(c.cache), l.Repo.folder()), report: report}
	folder = filepath.Join(f.root, snapshotsFolder, l.Commit)
	if c.offline {
		return "", fmt.Errorf("hub: %s is not fetched: %w", l.Repo, ErrOffline)
	}
	for _, dir := range []string{filepath.Join(f.root, blobsFolder), folder, filepath.Join(string(c.cache), locksFolder, l.Repo.folder())} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return "", c.cache.diskError(err)
		}
	}
	if err := f.checkSpace(files); err != nil {
		return "", err
	}
	// Small files first: they reveal problems of the network or the disk.
	files = slices.SortedFunc(slices.Values(files), func(a, b File) int { return cmp.Compare(a.Size, b.Size) })
	if err := f.all(ctx, files); err != nil {
		return "", err
	}
	if err := writeRef(f.root, l.Revision, l.Commit); err != nil {
		return "", c.cache.diskError(err)
	}
	return folder, nil
}

// Read fetches a file into memory, past the cache. It is for small ones: a file of more
// than limit bytes is an error.
func (c *Client) Read(ctx context.Context, l *Listing, file File, limit int) ([]byte, error) {
	if file.Size > int64(limit) {
		return nil, fmt.Errorf("hub: %s of %s: %d bytes, want at most %d", file.Path, l.Repo, file.Size, limit)
	}
	f := &fetch{c: c, l: l}
	t := f.transfer(file)
	data := make([]byte, file.Size)
	if _, err := t.fill(ctx, data, 0); err != nil {
		return nil, c.explain(err, l.Repo, l.Revision)
	}
	sum := file.newHash()
	_, _ = sum.Write(data) // a hash does not fail
	return data, file.verify(sum)
}

// fetch is one call of Fetch.
type fetch struct {
	c    *Client
	l    *Listing
	root string // the repository's folder in the cache

	mu     sync.Mutex // report is called under it
	report func(Event)
}

func (f *fetch) tell(e Event) {
	if f.report == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report(e)
}

// all fetches the files, a few at a time, until one fails.
func (f *fetch) all(parent context.Context, files []File) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	queue := make(chan File, len(files))
	for _, file := range files {
		queue <- file
	}
	close(queue)
	var group sync.WaitGroup
	for range min(filesAtOnce, len(files)) {
		group.Go(func() {
			for file := range queue {
				if err := f.file(ctx, file); err != nil {
					cancel(err) // the first error counts: the rest may be due to it
					return
				}
			}
		})
	}
	group.Wait()
	if err := parent.Err(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// file brings one file into the cache.
func (f *fetch) file(ctx context.Context, file File) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	pointer := filepath.Join(f.root, snapshotsFolder, f.l.Commit, filepath.FromSlash(file.Path))
	if hasSize(pointer, file.Size) {
		f.tell(Event{File: file, State: Finished, Done: file.Size})
		return nil
	}
	lock := filepath.Join(string(f.c.cache), locksFolder, f.l.Repo.folder(), file.Hash+".lock")
	unlock, err := f.c.lock(ctx, lock, func() { f.tell(Event{File: file, State: Waiting}) })
	if err != nil {
		return f.c.cache.diskError(err)
	}
	defer unlock()
	blob := filepath.Join(f.root, blobsFolder, file.Hash)
	fresh := !hasSize(blob, file.Size)
	if fresh {
		if err := f.blob(ctx, file, blob); err != nil {
			return err
		}
	}
	if err := f.c.place(blob, pointer, fresh); err != nil {
		return f.c.cache.diskError(err)
	}
	f.tell(Event{File: file, State: Finished, Done: file.Size})
	return nil
}

// blob fetches the contents of a file into the cache. The partial file is a prefix of
// the blob at any time, so that older programs can go on with it too, and every byte is
// written at its own offset: two programs at it, where locks do not work, write the same.
func (f *fetch) blob(ctx context.Context, file File, blob string) error {
	partial := blob + partialSuffix
	out, err := os.OpenFile(partial, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return f.c.cache.diskError(err)
	}
	defer func() { _ = out.Close() }() // closed below, unless something went wrong
	for {
		resumed, err := f.contents(ctx, file, out)
		if err == nil {
			break
		}
		var wrong *hashError
		if !errors.As(err, &wrong) {
			return err
		}
		if err := out.Truncate(0); err != nil {
			return f.c.cache.diskError(err)
		}
		if !resumed {
			return errors.Join(err, os.Remove(partial))
		}
		f.tell(Event{File: file, State: Retrying, Err: err}) // data of an earlier run may be the cause
	}
	if err := errors.Join(out.Sync(), out.Close()); err != nil {
		return f.c.cache.diskError(err)
	}
	err = os.Rename(partial, blob)
	if errors.Is(err, fs.ErrNotExist) && hasSize(blob, file.Size) {
		return nil // without working locks, another program was faster
	}
	return f.c.cache.diskError(err)
}

// contents completes the partial file out and verifies it. resumed reports whether part of it
// existed.
func (f *fetch) contents(ctx context.Context, file File, out *os.File) (resumed bool, err error) {
	info, err := out.Stat()
	if err != nil {
		return false, f.c.cache.diskError(err)
	}
	have := info.Size()
	if have > file.Size {
		have = 0
		if err := out.Truncate(0); err != nil {
			return false, f.c.cache.diskError(err)
		}
	}
	sum := file.newHash()
	if err := copyContext(ctx, sum, io.NewSectionReader(out, 0, have)); err != nil {
		return false, f.c.cache.diskError(err)
	}
	t := f.transfer(file)
	t.arrived(have)
	if err := t.run(ctx, out, sum, have, file.Size, have); err != nil {
		return have > 0, f.c.explain(err, f.l.Repo, f.l.Revision)
	}
	return have > 0, file.verify(sum)
}

// checkSpace checks that the disk has space for the missing bytes.
func (f *fetch) checkSpace(files []File) error {
	need := int64(0)
	for _, file := range files {
		blob := filepath.Join(f.root, blobsFolder, file.Hash)
		pointer := filepath.Join(f.root, snapshotsFolder, f.l.Commit, filepath.FromSlash(file.Path))
		if hasSize(blob, file.Size) || hasSize(pointer, file.Size) {
			continue
		}
		need += file.Size
		if info, err := os.Stat(blob + partialSuffix); err == nil {
			need -= min(info.Size(), file.Size)
		}
	}
	return f.checkFree(need)
}

// checkFree checks that the disk has space for as many bytes.
func (f *fetch) checkFree(need int64) error {
	if free, ok := freeBytes(f.root); ok && need > free {
		return fmt.Errorf("hub: %s needs %.2f GB more, but the disk of %s has %.2f GB left: free some space, or set HF_HUB_CACHE to a folder on another disk",
			f.l.Repo, float64(need)/1e9, string(f.c.cache), float64(free)/1e9)
	}
	return nil
}

// newHash is the hash by which the hub names the file. Git's has the size in front.
func (f File) newHash() hash.Hash {
	if len(f.Hash) == sha256.Size*2 {
		return sha256.New()
	}
	sum := sha1.New()
	_, _ = fmt.Fprintf(sum, "blob %d\x00", f.Size) // a hash does not fail
	return sum
}

// hashError reports contents with another hash than announced.
type hashError struct{ error }

// verify compares the hash of the received bytes.
func (f File) verify(sum hash.Hash) error {
	want, err := hex.DecodeString(f.Hash)
	if err == nil && bytes.Equal(sum.Sum(nil), want) {
		return nil
	}
	return &hashError{fmt.Errorf("hub: %s has the hash %x, want %s: the file was changed or damaged in transit; try again, or use another HF_ENDPOINT", f.Path, sum.Sum(nil), f.Hash)}
}

// hasSize reports whether path is a regular file, or a link to one, of the given size.
func hasSize(path string, size int64) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() == size
}

// copyContext is io.Copy that ends with ctx.
func copyContext(ctx context.Context, w io.Writer, r io.Reader) error {
	for {
		n, err := io.CopyN(w, r, chunkBytes)
		if errors.Is(err, io.EOF) || err == nil && n == 0 {
			return nil
		}
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
	}
}
