package store

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// DiskOptions configure a Disk.
type DiskOptions struct {
	// Bytes is the maximum size of the folder's files; the least recently used are removed.
	Bytes int64
	// Fingerprint identifies a model: equal ones compute the same bits from the same tokens.
	// Files of other fingerprints are never read.
	Fingerprint string
	// QueueBytes is the maximum memory of files that wait to be written; files beyond it are
	// not written, except for an entry larger than that while no other waits. 0: 256 MiB.
	QueueBytes int64
	Log        *slog.Logger // of ignored files; nil: silent
}

// Disk is a folder in which entries outlive the process. It is safe for concurrent use. Several models
// may use one folder one after another, or at the same time if each is content with part of Bytes.
type Disk struct {
	queue
	store   keeper
	o       DiskOptions
	reading sync.Mutex // one entry is read at a time

	// The queue's mutex protects what follows.
	files  map[Name]*file
	recent *list.List     // of their names, the last used in front
	ends   map[Key][]Name // entries by their node
	gone   func(Name)     // is called with files that were removed or not written; may be nil
	stats  DiskStats
}

// keeper is a store whose files the cache may remove.
type keeper interface {
	Store
	Remove(name string)
	Touch(name string, now time.Time)
}

// DiskStats are the state and the counters of a Disk.
type DiskStats struct {
	Files   int
	Bytes   int64
	Queued  int64 // bytes that wait to be written
	Written int64 // files
	Read    int64
	Removed int64 // to make space
	Dropped int64 // not written: the queue was full, or the folder failed
	Ignored int64 // damaged or foreign
}

type file struct {
	size  int64
	place *list.Element
}

// OpenDisk makes the folder if it is not there, and lists its files. The disk must be
// closed after the caches that use it.
func OpenDisk(dir string, o DiskOptions) (*Disk, error) {
	if o.Bytes <= 0 {
		return nil, fmt.Errorf("prefix: folder %q: a bound of %d bytes, want more than 0", dir, o.Bytes)
	}
	folder, err := OpenFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("prefix: folder %q: %w", dir, err)
	}
	d := newDisk(folder, o)
	d.start(d, o.Log, o.QueueBytes, o.Bytes, 1, queueJobs)
	if err := d.scan(dir); err != nil {
		d.Close()
		return nil, fmt.Errorf("prefix: folder %q: %w", dir, err)
	}
	d.shrink(0)
	return d, nil
}

func newDisk(store keeper, o DiskOptions) *Disk {
	return &Disk{store: store, o: o, files: map[Name]*file{}, recent: list.New(), ends: map[Key][]Name{}}
}

// scan lists the folder.
func (d *Disk) scan(dir string) error {
	items, err := d.store.List(context.Background(), "", math.MaxInt)
	if err != nil {
		return err
	}
	age := map[string]int{endSuffix: 0, windowSuffix: 1, pageSuffix: 2} // in the order of used
	slices.SortFunc(items, func(a, b Item) int {
		return cmp.Or(a.Used.Compare(b.Used), cmp.Compare(age[filepath.Ext(a.Name)], age[filepath.Ext(b.Name)]))
	})
	foreign := ""
	for _, f := range items {
		if n, ok := parseName(f.Name); ok && f.Size != notAFile {
			d.add(n, f.Size)
		} else {
			foreign = f.Name
			d.stats.Ignored++
		}
	}
	if foreign != "" {
		d.log.Warn("prefix cache: the folder has foreign files; they are ignored", "folder", dir, "files", d.stats.Ignored, "one", foreign)
	}
	return nil
}

// Close finishes queued jobs and ends the background work.
func (d *Disk) Close() {
	d.close()
	d.done.Wait()
}

// Stats is the account at this moment.
func (d *Disk) Stats() DiskStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.Queued, s.Dropped = d.pending, d.dropped
	return s
}

// Listen sets a function that is called with files that were removed, or queued and not written; nil
// ends that. Callers of Has in it get the new state.
func (d *Disk) Listen(gone func(Name)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = gone
}

// tell calls the listener; mu is not held.
func (d *Disk) tell(n Name) {
	d.mu.Lock()
	gone := d.gone
	d.mu.Unlock()
	if gone != nil {
		gone(n)
	}
}

// add puts a file on the list, as the last used; mu is held, or d is not shared yet.
func (d *Disk) add(n Name, size int64) {
	d.drop(n)
	d.files[n] = &file{size, d.recent.PushFront(n)}
	if n.rest >= 0 {
		d.ends[n.node] = append(d.ends[n.node], n)
	}
	d.stats.Files++
	d.stats.Bytes += size
}

// drop takes a file off the list, if it is there; mu is held. The caller removes it from the folder after
// unlocking mu: no other goroutine shall wait for the folder.
func (d *Disk) drop(n Name) bool {
	f := d.files[n]
	if f == nil {
		return false
	}
	delete(d.files, n)
	d.recent.Remove(f.place)
	if n.rest >= 0 {
		if d.ends[n.node] = slices.DeleteFunc(d.ends[n.node], func(e Name) bool { return e == n }); len(d.ends[n.node]) == 0 {
			delete(d.ends, n.node)
		}
	}
	d.stats.Files--
	d.stats.Bytes -= f.size
	return true
}

// Has reports whether a file is there or queued.
func (d *Disk) Has(n Name) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queued[n] != nil || d.files[n] != nil
}

// readable reports whether a file is there. A nil disk has none.
func (d *Disk) readable(n Name) bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files[n] != nil
}

// entries are the names of a node's entries. A nil disk has none.
func (d *Disk) entries(node Key) []Name {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.ends[node])
}

// size implements tier.
func (d *Disk) size(n Name) int64 {
	if f := d.files[n]; f != nil {
		return f.size
	}
	return 0
}

// begin implements tier. An entry is not written if a file that it needs was removed while the entry waited: it could not
// be read, and a listener would not hear of it when the file is written again.
func (d *Disk) begin(j *job) bool {
	d.used(j.names) // they are not removed to make space
	d.mu.Lock()
	defer d.mu.Unlock()
	return !slices.ContainsFunc(j.names, func(n Name) bool {
		return d.files[n] == nil && !slices.ContainsFunc(j.files, func(f waiting) bool { return f.name == n })
	})
}

// put implements tier.
func (d *Disk) put(f *waiting) error {
	size := sealed(f.data)
	d.shrink(size)
	if err := d.store.Put(context.Background(), f.name.String(), seal(f.data), f.replace); err != nil {
		d.log.Warn("prefix cache: file not written", "file", f.name.String(), "error", err)
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(f.name, size)
	d.stats.Written++
	return nil
}

// end implements tier.
func (d *Disk) end(j *job) {
	for _, f := range j.files {
		if f.data != nil {
			d.tell(f.name)
		}
	}
	d.touch(j.names)
}

// read returns the sections of a file. An unusable one is taken off the list, with a line in the log.
func (d *Disk) read(q *Query, n Name) [][]byte {
	list, err := getFile(context.Background(), d.store, q, n)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.stats.Read++
		return list
	}
	d.ignore(n, err)
	return nil
}

// fetch reads the files of an entry, and reports whether all could be read.
func (d *Disk) fetch(q *Query, x *Found) bool {
	d.reading.Lock()
	defer d.reading.Unlock()
	d.touch(x.used)
	for _, n := range x.Names {
		file := d.read(q, n)
		if file == nil {
			return false
		}
		x.Files = append(x.Files, file)
	}
	return true
}

// ignore takes an unusable file off the list and removes it. A missing file was
// removed to make space.
func (d *Disk) ignore(n Name, err error) {
	missing := isGone(err)
	d.mu.Lock()
	if !missing {
		d.stats.Ignored++
	}
	remove := d.drop(n)
	d.mu.Unlock()
	if !missing {
		d.log.Warn("prefix cache: file ignored", "file", n.String(), "error", err)
	}
	if remove {
		d.store.Remove(n.String())
		d.tell(n)
	}
}

// getFile returns the sections of a store's file.
func getFile(ctx context.Context, s Store, q *Query, n Name) ([][]byte, error) {
	data, err := s.Get(ctx, n.String(), q.Limit)
	if err != nil {
		return nil, err
	}
	return unpack(data, n, n.sections(q))
}

// used notes that the files of an entry, which is the last one, were used. The entry is removed before the
// pages that it needs.
func (d *Disk) used(names []Name) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range slices.Backward(names) {
		if f := d.files[n]; f != nil {
			d.recent.MoveToFront(f.place)
		}
	}
}

// touch is used that notes it on disk too: the next process begins with it.
func (d *Disk) touch(names []Name) {
	d.used(names)
	now := time.Now()
	for _, n := range names {
		d.store.Touch(n.String(), now)
	}
}

// shrink removes the least recently used files until more bytes are within bounds.
func (d *Disk) shrink(more int64) {
	d.mu.Lock()
	var removed []Name
	for p := d.recent.Back(); p != nil && d.stats.Bytes+more > d.o.Bytes; p = d.recent.Back() {
		n := p.Value.(Name)
		d.drop(n)
		d.stats.Removed++
		removed = append(removed, n)
	}
	d.mu.Unlock()
	for _, n := range removed {
		d.store.Remove(n.String())
		d.tell(n)
	}
}
