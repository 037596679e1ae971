package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
)

// nowhere is a store without files.
type nowhere struct{ Folder }

func (nowhere) Remove(string) {}

func (nowhere) Touch(string, time.Time) {}

func (nowhere) Put(context.Context, string, []byte, bool) error { return nil }

// TestRemovingLooksAtNoOtherFiles checks that a full folder is not sorted for every file that is written: other
// goroutines that store a prefix would wait.
func TestRemovingLooksAtNoOtherFiles(t *testing.T) {
	allocs := func(files int) float64 {
		d := newDisk(nowhere{}, DiskOptions{Bytes: int64(files)})
		for i := range files {
			d.add(page(Key{byte(i), byte(i >> 8)}), 1)
		}
		n := testing.AllocsPerRun(50, func() { d.shrink(1); d.o.Bytes-- })
		if d.stats.Removed != 51 || len(d.files) != files-51 || d.readable(page(Key{50})) {
			t.Errorf("%+v after 51 files were to be removed", d.stats)
		}
		return n
	}
	if few, many := allocs(64), allocs(4096); many > few {
		t.Errorf("%v allocations to remove one of many files, %v for one of few", many, few)
	}
}

// TestEntriesAreRemovedBeforeTheirFiles writes entries of random texts to a folder that is always full. Every one that is
// there has all of its files, those that other entries use too, and pages of windows. Files that wait are known, whatever
// becomes of an earlier job with the same file.
func TestEntriesAreRemovedBeforeTheirFiles(t *testing.T) {
	const window, largest = 3, 8
	rng := rand.New(rand.NewPCG(1, 2))
	files := map[Name][]Name{} // of entries
	var waits []*job
	d := newDisk(nowhere{}, DiskOptions{Bytes: 40 * (2*largest + 1)})
	d.start(d, nil, 0, d.o.Bytes, 0, 1)
	defer d.Close()
	for range 3000 {
		nodes := []Key{{}}
		for i := range byte(1 + rng.IntN(largest-1)) {
			nodes = append(nodes, nodes[i].Next([]byte{byte(rng.IntN(1 + int(i)/3))}, nil))
		}
		names := Names(nodes, max(0, len(nodes)-1-window), rng.IntN(3), Key{})
		end := names[len(names)-1]
		if files[end] == nil || rng.IntN(2) == 0 {
			j := &job{names: names}
			for _, n := range names {
				if d.files[n] == nil && (d.queued[n] == nil || rng.IntN(4) == 0) { // a larger file may be queued again
					j.files = append(j.files, waiting{name: n, data: make([]byte, 1+rng.IntN(8))})
				}
			}
			d.enqueue(j)
			waits = append(waits, j)
			for len(waits) > 0 && rng.IntN(3) > 0 {
				j, waits = <-d.jobs, waits[1:]
				d.do(j)
				d.finish(j)
			}
			for _, j := range waits {
				for _, f := range j.files {
					if !d.Has(f.name) {
						t.Fatalf("%v waits, and is not known", f.name)
					}
				}
			}
		} else if d.readable(end) {
			d.touch(names)
		}
		files[end] = names
		for e, names := range files {
			if d.readable(e) && slices.ContainsFunc(names, func(n Name) bool { return !d.readable(n) }) {
				t.Fatalf("%v is there without its files", e)
			}
		}
	}
	if d.stats.Removed < 1000 || len(d.files) == 0 || d.dropped == 0 {
		t.Errorf("%+v, %d dropped: the folder was not full, or no job waited too long", d.stats, d.dropped)
	}
}

// TestListedEntriesAreRemovedBeforeTheirFiles opens a folder with the files of an entry, all used at the same time, that is too large.
func TestListedEntriesAreRemovedBeforeTheirFiles(t *testing.T) {
	names := Names([]Key{{}, {1}}, 0, 3, Key{2}) // a page, that of windows, the entry
	for left := range len(names) {
		dir, now := t.TempDir(), time.Now()
		for _, n := range names {
			path := filepath.Join(dir, n.String())
			if err := errors.Join(os.WriteFile(path, make([]byte, 10), 0o600), os.Chtimes(path, now, now)); err != nil {
				t.Fatal(err)
			}
		}
		d, err := OpenDisk(dir, DiskOptions{Bytes: int64(10*left + 5)})
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range names {
			if d.readable(n) != (i < left) {
				t.Errorf("with space for %d files, %v is there: %t", left, n, d.readable(n))
			}
		}
		d.Close()
	}
}

// bytesOf is a section.
type bytesOf []byte

func (b bytesOf) Bytes() int64                        { return int64(len(b)) }
func (b bytesOf) AppendTo(dst []byte) ([]byte, error) { return append(dst, b...), nil }

func FuzzUnpack(f *testing.F) {
	n := page(Key{})
	sections := []Section{bytesOf{1, 2, 3}, bytesOf{4}}
	good, err := pack(n, sections, fileBytes(sections))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, true)
	f.Add([]byte(magic), false)
	f.Fuzz(func(t *testing.T, data []byte, whole bool) {
		if whole {
			data = seal(slices.Clone(data))
		}
		list, err := unpack(data, n, 2)
		if err != nil {
			return
		}
		if size := fileBytes([]Section{bytesOf(list[0]), bytesOf(list[1])}); size != int64(len(data)) {
			t.Errorf("sections of %d and %d bytes in a file of %d", len(list[0]), len(list[1]), len(data))
		}
	})
}

func FuzzParseName(f *testing.F) {
	n := Name{rest: 7, end: Key{1, 2}}
	f.Add(n.String())
	f.Add(page(Key{9}).String())
	f.Add("0-0-0.end")
	f.Fuzz(func(t *testing.T, s string) {
		if n, ok := parseName(s); ok && n.String() != s {
			t.Errorf("%q is read as %q", s, n)
		}
	})
}

func TestNamesAreReadBack(t *testing.T) {
	for rest := windowFile; rest < backend.PageTokens; rest++ {
		n := Name{node: Key{1, 0xfe}, rest: rest}
		if rest >= 0 {
			n.end = Key{3, 4}
		}
		if got, ok := parseName(n.String()); !ok || got != n {
			t.Errorf("%v is read as %v", n, fmt.Sprint(got))
		}
	}
}
