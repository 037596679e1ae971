package store

import (
	"fmt"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
)

// nowhere is a store without files.
type nowhere struct{ Folder }

func (nowhere) Remove(string) {}

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
	for rest := -1; rest < backend.PageTokens; rest++ {
		n := Name{node: Key{1, 0xfe}, rest: rest}
		if rest >= 0 {
			n.end = Key{3, 4}
		}
		if got, ok := parseName(n.String()); !ok || got != n {
			t.Errorf("%v is read as %v", n, fmt.Sprint(got))
		}
	}
}
