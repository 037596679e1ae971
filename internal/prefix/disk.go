package prefix

import (
	"cmp"
	"container/list"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/foretoken/foretoken/internal/rescue"
)

// DiskOptions configure a Disk.
type DiskOptions struct {
	// Bytes is the maximum size of the folder's files; the least recently used are removed.
	Bytes int64
	// Fingerprint identifies a model: equal ones compute the same bits from the same tokens.
	// Files of other fingerprints are never read.
	Fingerprint string
	// QueueBytes is the maximum memory of files that wait to be written; files beyond it are
	// not written. 0: 256 MiB.
	QueueBytes int64
	Log        *slog.Logger // of ignored files; nil: silent
}

// Disk is a folder in which entries outlive the process. Files are written and read in the
// background. It is safe for concurrent use. Several models may use one folder one after
// another, or at the same time if each is content with part of Bytes.
type Disk struct {
	dir   string
	store keeper
	o     DiskOptions
	jobs  chan job
	reads chan func()
	done  sync.WaitGroup
	drops drops

	mu      sync.Mutex // protects what follows
	closed  bool
	files   map[name]*file
	recent  *list.List     // of their names, the last used in front
	ends    map[key][]name // entries by their node
	pending int64          // bytes in jobs
	stats   DiskStats
}

// keeper is a store whose files the cache may remove.
type keeper interface {
	Store
	Remove(names ...string)
	Touch(name string, now time.Time)
}

// DiskStats are the state and the counters of a Disk.
type DiskStats struct {
	Files   int
	Bytes   int64
	Written int64 // files
	Read    int64
	Removed int64 // to make space
	Dropped int64 // not written, for the queue was full
	Ignored int64 // damaged or foreign
}

type file struct {
	size    int64
	written bool // not just queued
	place   *list.Element
}

// job is files to write, sealed but for the checksum, and files that were used.
type job struct {
	names []name
	data  [][]byte
	used  []name
}

func (j *job) bytes() (n int64) {
	for _, d := range j.data {
		n += int64(len(d))
	}
	return n
}

// Limits of the background queue.
const (
	queueJobs         = 64
	defaultQueueBytes = 256 << 20
	staleTemp         = time.Hour // a file that is being written is not that old
)

// OpenDisk makes the folder if it is not there, and lists its files. The disk must be
// closed after the caches that use it.
func OpenDisk(dir string, o DiskOptions) (*Disk, error) {
	if o.Bytes <= 0 {
		return nil, fmt.Errorf("prefix: folder %q: a bound of %d bytes, want more than 0", dir, o.Bytes)
	}
	if o.QueueBytes == 0 {
		o.QueueBytes = defaultQueueBytes
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	folder, err := OpenFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("prefix: folder %q: %w", dir, err)
	}
	d := &Disk{
		dir: dir, store: folder, o: o, jobs: make(chan job, queueJobs), reads: make(chan func(), queueJobs),
		files: map[name]*file{}, recent: list.New(), ends: map[key][]name{},
	}
	if err := d.scan(); err != nil {
		return nil, fmt.Errorf("prefix: folder %q: %w", dir, err)
	}
	d.shrink(0)
	d.done.Go(func() {
		for j := range d.jobs {
			guard(o.Log, "writing", func() { d.write(&j) })
			d.abandon(&j)
		}
	})
	d.done.Go(func() {
		for read := range d.reads {
			guard(o.Log, "reading", read)
		}
	})
	return d, nil
}

// guard runs a task of the background. A panic loses the task, not the process.
func guard(log *slog.Logger, doing string, task func()) {
	if err := rescue.Do(func() error { task(); return nil }); err != nil {
		log.Error("prefix cache: a background task panicked", "doing", doing, "error", err.Error(), "stack", rescue.Stack(err))
	}
}

// abandon takes the rest of an unfinished job off the list, as if it had never
// been queued.
func (d *Disk) abandon(j *job) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, n := range j.names {
		if j.data[i] != nil {
			d.pending -= int64(len(j.data[i]))
			d.drop(n)
		}
	}
}

// scan lists the folder.
func (d *Disk) scan() error {
	items, err := d.store.List(context.Background(), "", math.MaxInt)
	if err != nil {
		return err
	}
	slices.SortFunc(items, func(a, b Item) int {
		return cmp.Or(a.Used.Compare(b.Used), cmp.Compare(filepath.Ext(a.Name), filepath.Ext(b.Name))) // entries before pages, as in queue
	})
	foreign := ""
	for _, f := range items {
		if n, ok := parseName(f.Name); ok && f.Size != notAFile {
			d.add(n, &file{size: f.Size, written: true})
		} else {
			foreign = f.Name
			d.stats.Ignored++
		}
	}
	if foreign != "" {
		d.o.Log.Warn("prefix cache: the folder has foreign files; they are ignored", "folder", d.dir, "files", d.stats.Ignored, "one", foreign)
	}
	return nil
}

// Close finishes queued jobs and ends the background work.
func (d *Disk) Close() {
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		close(d.jobs)
		close(d.reads)
	}
	d.mu.Unlock()
	d.done.Wait()
}

// Stats is the account at this moment.
func (d *Disk) Stats() DiskStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// add puts a file on the list, as the last used; mu is held, or d is not shared yet.
func (d *Disk) add(n name, f *file) {
	d.files[n], f.place = f, d.recent.PushFront(n)
	if n.rest >= 0 {
		d.ends[n.node] = append(d.ends[n.node], n)
	}
	if f.written {
		d.count(f, 1)
	}
}

// count books a file that is in the folder, or no longer is.
func (d *Disk) count(f *file, n int) {
	d.stats.Files += n
	d.stats.Bytes += int64(n) * f.size
}

// drop takes a file off the list; mu is held. If it reports true, the caller removes the file
// after unlocking mu: no other goroutine shall wait for the folder.
func (d *Disk) drop(n name) bool {
	f := d.files[n]
	if f == nil {
		return false
	}
	delete(d.files, n)
	d.recent.Remove(f.place)
	d.drops.add(n)
	if n.rest >= 0 {
		if d.ends[n.node] = slices.DeleteFunc(d.ends[n.node], func(e name) bool { return e == n }); len(d.ends[n.node]) == 0 {
			delete(d.ends, n.node)
		}
	}
	if f.written {
		d.count(f, -1)
	}
	return f.written
}

// unlink removes files.
func (d *Disk) unlink(names ...name) {
	for _, n := range names {
		d.store.Remove(n.String())
	}
}

// has reports whether a file is there; readable: not just queued.
func (d *Disk) has(n name, readable bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[n]
	return f != nil && (f.written || !readable)
}

// entries are the names of a node's entries that can be read.
func (d *Disk) entries(node key) []name {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.ends[node]), func(n name) bool { return !d.files[n].written })
}

// fits reports whether a number of bytes may be queued besides those of a job. If not, a file
// is counted as dropped.
func (d *Disk) fits(j *job, bytes int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pending+j.bytes()+bytes <= d.o.QueueBytes && bytes+sha256.Size <= d.o.Bytes {
		return true
	}
	d.stats.Dropped++
	return false
}

// queue hands a job to the background, or drops it.
func (d *Disk) queue(j job) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.jobs) == cap(d.jobs) { // only this function sends, so it never waits
		d.stats.Dropped += int64(len(j.names))
		return
	}
	d.pending += j.bytes()
	for i, n := range slices.Backward(j.names) { // an entry is removed before the pages that it needs
		d.add(n, &file{size: int64(len(j.data[i])) + sha256.Size})
	}
	d.jobs <- j
}

// later runs read in the background. It reports false if too much waits already.
func (d *Disk) later(read func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	select {
	case d.reads <- read:
		return true
	default:
		return false
	}
}

// write does a job.
func (d *Disk) write(j *job) {
	d.touch(j.used)
	for i, n := range j.names {
		size := int64(len(j.data[i]))
		d.shrink(size + sha256.Size)
		err := d.store.Put(context.Background(), n.String(), sealFile(j.data[i]), false)
		j.data[i] = nil
		d.settle(n, size, err == nil)
		if err != nil {
			d.o.Log.Warn("prefix cache: file not written", "file", n.String(), "error", err)
		}
	}
}

// settle records whether a file of a job was written.
func (d *Disk) settle(n name, size int64, written bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pending -= size
	f := d.files[n]
	if f == nil || !written {
		d.drop(n)
		return
	}
	f.written = true
	d.count(f, 1)
	d.stats.Written++
}

// read returns the sections of a file. One that cannot be used is taken off the list, with
// a line in the log.
func (d *Disk) read(n name, sections int, limit int64) [][]byte {
	list, err := getFile(context.Background(), d.store, n, sections, limit)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.stats.Read++
		return list
	}
	d.ignore(n, err)
	return nil
}

// ignore takes an unusable file off the list and removes it. A missing file was
// removed to make space.
func (d *Disk) ignore(n name, err error) {
	gone := isGone(err)
	d.mu.Lock()
	if !gone {
		d.stats.Ignored++
	}
	remove := d.drop(n)
	d.mu.Unlock()
	if !gone {
		d.o.Log.Warn("prefix cache: file ignored", "file", n.String(), "error", err)
	}
	if remove {
		d.unlink(n)
	}
}

// getFile returns the sections of a store's file.
func getFile(ctx context.Context, s Store, n name, sections int, limit int64) ([][]byte, error) {
	data, err := s.Get(ctx, n.String(), limit)
	if err != nil {
		return nil, err
	}
	return openFile(data, n.key(), sections)
}

// touch notes that files were used, on disk too: the next process begins with it.
func (d *Disk) touch(names []name) {
	d.mu.Lock()
	for _, n := range slices.Backward(names) { // as in queue
		if f := d.files[n]; f != nil {
			d.recent.MoveToFront(f.place)
		}
	}
	d.mu.Unlock()
	now := time.Now()
	for _, n := range names {
		d.store.Touch(n.String(), now)
	}
}

// shrink removes the least recently used files until more bytes are within bounds.
func (d *Disk) shrink(more int64) {
	d.mu.Lock()
	var removed []name
	for p := d.recent.Back(); p != nil && d.stats.Bytes+more > d.o.Bytes; {
		n := p.Value.(name)
		p = p.Prev()
		if d.files[n].written {
			d.drop(n)
			d.stats.Removed++
			removed = append(removed, n)
		}
	}
	d.mu.Unlock()
	d.unlink(removed...)
}

func (d *Disk) log() *slog.Logger { return d.o.Log }
