package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/foretoken/foretoken/internal/rescue"
)

// Files are hashed in segments, by several goroutines, and a file's digest is over those of
// its segments.
const (
	segmentBytes = 16 << 20
	sumBuffer    = 1 << 20
	maxSummers   = 8
)

// digest is a SHA-256.
type digest [sha256.Size]byte

// stamp identifies a file and a version of its contents, without reading it.
type stamp struct {
	Size              int64
	Modified, Changed int64 // nanoseconds; programs cannot set Changed
	Device, Inode     uint64
}

// origin is the path of a mapped file, and its stamp when it was mapped. The path is empty
// if the bytes are in the program's own memory.
type origin struct {
	path string
	stamp
}

// originOf is the origin of an open file that is being mapped.
func originOf(f *os.File) (o origin) {
	var ok bool
	if o.stamp, ok = stampOf(f); !ok {
		return origin{}
	}
	path, err := filepath.Abs(f.Name())
	if err != nil {
		return origin{}
	}
	o.path = path
	return o
}

// errMoved is returned for a path with a file of the same size and times as the
// mapped one, but another inode. Some file systems assign new inodes at every request.
var errMoved = errors.New("checkpoint: the file may have been replaced")

// check reports whether an open file is still the mapped one.
func (o *origin) check(f *os.File) error {
	s, ok := stampOf(f)
	switch {
	case !ok || s.Size != o.Size || s.Modified != o.Modified || s.Changed != o.Changed:
		return fmt.Errorf("%s changed while it was read: load the model again", o.path)
	case s != o.stamp:
		return errMoved
	}
	return nil
}

// Sum is a hash of every byte of a checkpoint: its weights, sidecars included, and the
// JSON that describes them, without tokenizer, templates and the like.
type Sum struct {
	ID     string // in hexadecimal
	Hashed int64  // bytes that were read for it; of other files there was a record
}

// Sum hashes the checkpoint's files. It reads them itself and may run while their tensors are
// loaded: the pages are the same, so that a disk is read once. Digests of files are
// kept in the folder records, "" for none, and used as long as the stamp of a
// file does not change. It is an error if a file changes meanwhile.
func (c *Checkpoint) Sum(ctx context.Context, records string) (Sum, error) {
	h := sha256.New()
	part := func(name string, data []byte) {
		_, _ = fmt.Fprintf(h, "%s %d\n", name, len(data)) // a hash does not fail
		_, _ = h.Write(data)
	}
	part("config", c.config)
	part("index", c.index)
	files := c.files
	part("files", binary.LittleEndian.AppendUint64(nil, uint64(len(files))))
	for _, s := range c.Sidecars {
		part("sidecar "+s.File, s.config)
		part("manifest", s.Manifest)
		files = append(files[:len(files):len(files)], s.files...)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var sum Sum
	digests := make([]digest, len(files))
	var todo []*summing
	for i, f := range files {
		x := &summing{file: f, to: &digests[i], parts: make([]digest, (len(f.data)+segmentBytes-1)/segmentBytes)}
		if x.record = newRecord(records, &f.origin); !x.known() {
			todo = append(todo, x)
			sum.Hashed += int64(len(f.data))
		}
	}
	hashFiles(ctx, cancel, todo)
	if err := context.Cause(ctx); err != nil {
		return sum, fmt.Errorf("checkpoint: %s: %w", c.name, err)
	}
	for _, x := range todo {
		x.finish()
	}
	for _, d := range digests {
		part("file", d[:])
	}
	sum.ID = hex.EncodeToString(h.Sum(nil))
	return sum, nil
}

// Stamp identifies the checkpoint's files and a version of their contents, without reading them.
func (c *Checkpoint) Stamp() string {
	var list []stamp
	for _, f := range c.files {
		list = append(list, f.stamp)
	}
	for _, s := range c.Sidecars {
		for _, f := range s.files {
			list = append(list, f.stamp)
		}
	}
	for i := range list {
		list[i].Device, list[i].Inode = 0, 0 // some file systems assign new ones at every request
	}
	return fmt.Sprint(list)
}

// Unchanged returns an error if one of the checkpoint's files has changed since it was
// opened: loaded data may be parts of both versions.
func (c *Checkpoint) Unchanged() error {
	list := []*Weights{c.Weights}
	for _, s := range c.Sidecars {
		list = append(list, s.Weights)
	}
	for _, w := range list {
		for _, f := range w.files {
			if f.path == "" {
				continue
			}
			if err := f.inspect(func(*os.File) error { return nil }); err != nil && !errors.Is(err, errMoved) {
				return fmt.Errorf("checkpoint: %s: %w", c.name, err)
			}
		}
	}
	return nil
}

// inspect opens a mapped file again and calls do with it, if it is the same before and after.
func (o *origin) inspect(do func(*os.File) error) error {
	f, err := os.Open(o.path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // opened for reading: nothing to lose
	if err = o.check(f); err == nil {
		if err = do(f); err == nil {
			err = o.check(f)
		}
	}
	return err
}

// summing is a file on its way to its digest.
type summing struct {
	*file
	to     *digest
	record *record // nil: none is kept
	parts  []digest
	moved  atomic.Bool // its path may lead elsewhere
}

// known takes the digest from the record, if there is a valid one.
func (x *summing) known() bool { return x.record != nil && x.record.read(x.to) }

// finish puts the digests of the segments together.
func (x *summing) finish() {
	h := sha256.New()
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(x.data)))) // a hash does not fail
	for _, p := range x.parts {
		_, _ = h.Write(p[:])
	}
	h.Sum(x.to[:0])
	if x.record != nil && !x.moved.Load() {
		// Without a record the next process hashes the file again.
		_ = x.record.write(*x.to)
	}
}

// hashFiles hashes the segments of all files. An error ends it and is the cause of ctx's end.
func hashFiles(ctx context.Context, cancel context.CancelCauseFunc, files []*summing) {
	type segment struct {
		*summing
		i int
	}
	work := make(chan segment)
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), maxSummers) {
		all.Go(func() {
			buffer := make([]byte, sumBuffer)
			for s := range work {
				if err := rescue.Do(func() error { return s.segment(ctx, s.i, buffer) }); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, x := range files {
		for i := range x.parts {
			select {
			case work <- segment{x, i}:
			case <-ctx.Done():
			}
		}
	}
	close(work)
	all.Wait()
}

// segment hashes one segment. It reads mapped files instead of touching the mapping: a
// page that only the hash needs would count as this process's memory. If the path may have
// another file, the mapping is hashed.
func (x *summing) segment(ctx context.Context, i int, buffer []byte) error {
	from := i * segmentBytes
	to := min(from+segmentBytes, len(x.data))
	err := errMoved
	if x.path != "" {
		err = x.read(ctx, from, to, &x.parts[i], buffer)
	}
	if errors.Is(err, errMoved) {
		x.moved.Store(true)
		x.parts[i] = sha256.Sum256(x.data[from:to])
		if x.mapped {
			adviseDrop(x.data[from:to])
		}
		err = ctx.Err()
	}
	return err
}

// read hashes a part of a mapped file.
func (x *summing) read(ctx context.Context, from, to int, d *digest, buffer []byte) error {
	return x.inspect(func(f *os.File) error {
		h := sha256.New()
		for at := from; at < to; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := f.ReadAt(buffer[:min(len(buffer), to-at)], int64(at))
			if err != nil && (n == 0 || !errors.Is(err, io.EOF)) {
				return fmt.Errorf("%s: %w", x.path, err)
			}
			_, _ = h.Write(buffer[:n])
			at += n
		}
		h.Sum(d[:0])
		return nil
	})
}
