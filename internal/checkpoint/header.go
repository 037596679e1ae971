package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/jsontext"
)

// maxHeader is the format's own limit on the length of a header.
const maxHeader = 100_000_000

// jsonLimits are those of headers and indexes.
var jsonLimits = jsontext.Limits{Depth: 64}

// maxRank bounds the dimensions of a tensor; real ones have at most five.
const maxRank = 16

// entry is one tensor of a file.
type entry struct {
	name       string
	typ        dtype.Type
	shape      []int
	begin, end int // of its bytes, from the start of the file
	file       *file
	read       func() ([]byte, error) // of an assembled checkpoint: see Source
	blocks     *dtype.Matrix          // its encoding, if it is in a block format
	factors    []float32              // of its matrices: see Source
	used       atomic.Bool            // asked for or skipped; set from any goroutine
}

// file is one open file, a safetensors file unless it was assembled.
type file struct {
	name     string // relative to the folder
	data     []byte // the whole file, read-only
	mapped   bool   // data is a mapping, to be unmapped
	backed   bool   // dropped pages of data are read again from a file
	origin          // of a mapping
	metadata map[string]string
	entries  []*entry // in the order of their bytes
	placed   bool     // all is in order: entries count from the start of the file
	users    users    // of a mapping that outlives the checkpoint
}

// parse reads the header of f.data. The format requires that tensors cover the rest of
// the file without gap or overlap, and so do we: a file that is longer or shorter
// than its header says is truncated or damaged, and none of it can be trusted.
func (f *file) parse() error {
	if len(f.data) < 8 {
		return fmt.Errorf("not a safetensors file: %d bytes", len(f.data))
	}
	length := binary.LittleEndian.Uint64(f.data)
	switch {
	case length > maxHeader:
		return fmt.Errorf("not a safetensors file: header of %d bytes, at most %d", length, maxHeader)
	case length > uint64(len(f.data)-8):
		return fmt.Errorf("header of %d bytes does not fit the file of %d: the file is cut off", length, len(f.data))
	}
	start := 8 + int(length)
	if err := jsontext.Read(f.data[8:start], jsonLimits, f.parseHeader); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	return f.place(start, len(f.data)-start)
}

// Header is the header of a safetensors file.
type Header struct {
	Metadata map[string]string
	Tensors  []Span // in the order of their bytes
}

// Span is a tensor with the place of its bytes, from the start of the file.
type Span struct {
	Decl
	Begin, End int
}

// HeaderBytes is the length of the header of a safetensors file, by the first eight bytes
// of the file.
func HeaderBytes(first [8]byte) (int, error) {
	n := binary.LittleEndian.Uint64(first[:])
	if n > maxHeader {
		return 0, fmt.Errorf("checkpoint: not a safetensors file: header of %d bytes, at most %d", n, maxHeader)
	}
	return 8 + int(n), nil
}

// ParseHeader reads the header of a safetensors file of which nothing else is there: its first
// HeaderBytes of size bytes.
func ParseHeader(text []byte, size int) (*Header, error) {
	if len(text) < 8 || size < len(text) {
		return nil, fmt.Errorf("checkpoint: header of %d bytes does not fit the file of %d", len(text), size)
	}
	f := &file{}
	err := jsontext.Read(text[8:], jsonLimits, f.parseHeader)
	if err == nil {
		err = f.place(len(text), size-len(text))
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint: header: %w", err)
	}
	h := &Header{Metadata: f.metadata}
	for _, e := range f.entries {
		h.Tensors = append(h.Tensors, Span{Decl{e.name, e.typ, e.shape}, e.begin, e.end})
	}
	return h, nil
}

func (f *file) parseHeader(r *jsontext.Reader) error {
	seen := map[string]bool{}
	return r.Object(func(key []byte) error {
		name := string(key)
		if seen[name] {
			return r.Errorf("%q appears twice", name)
		}
		seen[name] = true
		if name == "__metadata__" {
			return f.parseMetadata(r)
		}
		e, err := parseEntry(r, name)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		e.file = f
		f.entries = append(f.entries, e)
		return nil
	})
}

func (f *file) parseMetadata(r *jsontext.Reader) error {
	f.metadata = map[string]string{}
	return r.Object(func(key []byte) error {
		name := string(key)
		if _, ok := f.metadata[name]; ok {
			return r.Errorf("metadata %q appears twice", name)
		}
		text, err := r.Text()
		f.metadata[name] = string(text)
		return err
	})
}

// parseEntry reads one tensor's description. Its offsets count from the end of
// the header and are not yet checked against the file. Unknown keys are
// skipped, as in the format's own library.
func parseEntry(r *jsontext.Reader, name string) (*entry, error) {
	e := &entry{name: name}
	keys := map[string]int{"dtype": 0, "shape": 0, "data_offsets": 0}
	err := r.Object(func(key []byte) error {
		name := string(key)
		if keys[name]++; keys[name] > 1 {
			return r.Errorf("%q appears twice", name)
		}
		var err error
		switch name {
		case "dtype":
			var text []byte
			if text, err = r.Text(); err == nil {
				e.typ, err = dtype.Parse(string(text))
			}
		case "shape":
			e.shape, err = parseSizes(r, maxRank)
		case "data_offsets":
			var at []int
			if at, err = parseSizes(r, 2); err == nil && len(at) != 2 {
				err = r.Errorf("%d data_offsets, want 2", len(at))
			}
			if err == nil {
				e.begin, e.end = at[0], at[1]
			}
		default:
			err = r.Skip()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"dtype", "shape", "data_offsets"} {
		if keys[key] == 0 {
			return nil, fmt.Errorf("no %s", key)
		}
	}
	return e, nil
}

// parseSizes reads an array of at most limit whole numbers.
func parseSizes(r *jsontext.Reader, limit int) ([]int, error) {
	sizes := []int{}
	err := r.Array(func(i int) error {
		if i == limit {
			return r.Errorf("more than %d numbers", limit)
		}
		n, err := r.Whole(math.MaxInt)
		sizes = append(sizes, n)
		return err
	})
	return sizes, err
}

// place checks sizes and offsets against the size of the data after a header that ends at start,
// and makes the offsets count from the start of the file.
func (f *file) place(start, size int) error {
	for _, e := range f.entries {
		want, ok := byteSize(e.typ, e.shape)
		switch {
		case !ok:
			return fmt.Errorf("tensor %q: shape %v is larger than any file", e.name, e.shape)
		case e.begin > e.end:
			return fmt.Errorf("tensor %q: bytes %d to %d run backwards", e.name, e.begin, e.end)
		case e.end > size:
			return fmt.Errorf("tensor %q: bytes %d to %d, but the file has %d after its header: it is cut off or damaged",
				e.name, e.begin, e.end, size)
		case e.end-e.begin != want:
			return fmt.Errorf("tensor %q: %v %v needs %d bytes, its offsets give %d",
				e.name, e.typ, e.shape, want, e.end-e.begin)
		}
	}
	slices.SortStableFunc(f.entries, func(a, b *entry) int {
		if a.begin != b.begin {
			return a.begin - b.begin
		}
		return a.end - b.end
	})
	last := 0
	for i, e := range f.entries {
		if e.begin == last {
			last = e.end
			continue
		}
		before := "the header"
		if i > 0 {
			before = strconv.Quote(f.entries[i-1].name)
		}
		if e.begin < last {
			return fmt.Errorf("tensor %q overlaps %s", e.name, before)
		}
		return fmt.Errorf("tensor %q: %d bytes between it and %s belong to no tensor", e.name, e.begin-last, before)
	}
	if last != size {
		return fmt.Errorf("%d bytes after the last tensor belong to no tensor", size-last)
	}
	for _, e := range f.entries {
		e.begin += start
		e.end += start
	}
	f.placed = true
	return nil
}

// byteSize is the size of a tensor; ok is false when it does not fit an int.
func byteSize(t dtype.Type, shape []int) (n int, ok bool) {
	n = t.Size()
	for i, d := range shape {
		if d == 0 {
			return 0, true
		}
		if d < 0 {
			return 0, false
		}
		hi, lo := bits.Mul(uint(n), uint(d))
		if n = int(lo); hi != 0 || n < 0 {
			// A later zero would make the product zero again, regardless of this overflow.
			return 0, slices.Contains(shape[i:], 0)
		}
	}
	return n, true
}

// shapeText writes a shape as it stands in headers: [2, 3].
func shapeText(shape []int) string {
	return strings.ReplaceAll(fmt.Sprint(shape), " ", ", ")
}
