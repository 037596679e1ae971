package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/foretoken/foretoken/internal/dtype"
)

// Decl announces a tensor to be written.
type Decl struct {
	Name  string
	Type  dtype.Type
	Shape []int
}

// Writer writes one safetensors file as a stream: the header from the declared
// shapes, then the bytes of the tensors in the declared order, in pieces of any
// size. It keeps no tensor in memory.
type Writer struct {
	w     io.Writer
	decls []Decl
	sizes []int
	next  int // the tensor that Begin expects
	left  int // bytes still to come of the one before it
}

// dataAlign is the alignment of the start of the tensor data, a cache line.
// The format allows no padding between tensors.
const dataAlign = 64

// NewWriter writes the header to w. metadata may be nil. The caller keeps w and
// closes it after Close.
func NewWriter(w io.Writer, decls []Decl, metadata map[string]string) (*Writer, error) {
	out := &Writer{w: w, decls: decls, sizes: make([]int, len(decls))}
	header := []byte("{")
	if len(metadata) > 0 {
		text, err := json.Marshal(metadata) // sorts the keys
		if err != nil {
			return nil, fmt.Errorf("checkpoint: metadata: %w", err)
		}
		header = fmt.Appendf(header, `"__metadata__":%s,`, text)
	}
	seen := map[string]bool{"__metadata__": true}
	at := 0
	for i, d := range decls {
		if seen[d.Name] {
			return nil, fmt.Errorf("checkpoint: tensor %q is declared twice", d.Name)
		}
		seen[d.Name] = true
		size, text, err := d.describe(at)
		if err != nil {
			return nil, fmt.Errorf("checkpoint: tensor %q: %w", d.Name, err)
		}
		header = append(append(header, text...), ',')
		out.sizes[i] = size
		at += size
	}
	header = append(bytes.TrimSuffix(header, []byte(",")), '}')
	for (8+len(header))%dataAlign != 0 {
		header = append(header, ' ')
	}
	if len(header) > maxHeader {
		return nil, fmt.Errorf("checkpoint: header of %d bytes, at most %d", len(header), maxHeader)
	}
	_, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...))
	return out, err
}

// describe is the size of the tensor and its member of the header, with its bytes
// beginning at the given offset.
func (d Decl) describe(at int) (size int, text []byte, err error) {
	if _, err := dtype.Parse(d.Type.String()); err != nil {
		return 0, nil, err
	}
	size, ok := byteSize(d.Type, d.Shape)
	if !ok || at+size < at || len(d.Shape) > maxRank {
		return 0, nil, fmt.Errorf("shape %s is too large", shapeText(d.Shape))
	}
	if !utf8.ValidString(d.Name) {
		return 0, nil, errors.New("name is not UTF-8")
	}
	name, err := json.Marshal(d.Name)
	return size, fmt.Appendf(nil, `%s:{"dtype":"%v","shape":%s,"data_offsets":[%d,%d]}`,
		name, d.Type, shapeText(d.Shape), at, at+size), err
}

// Begin announces the next tensor, whose bytes are then given to Write. It is an
// error if the previous one is incomplete or name is not the next declared.
func (w *Writer) Begin(name string) error {
	if err := w.complete(); err != nil {
		return err
	}
	if w.next == len(w.decls) || w.decls[w.next].Name != name {
		return fmt.Errorf("checkpoint: tensor %q is not the next declared tensor", name)
	}
	w.left = w.sizes[w.next]
	w.next++
	return nil
}

// Write writes the next bytes of the tensor that was begun.
func (w *Writer) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return 0, fmt.Errorf("checkpoint: write of %d bytes, but only %d are left of tensor %q", len(p), w.left, w.current())
	}
	n, err := w.w.Write(p)
	w.left -= n
	return n, err
}

// WriteTensor writes the next tensor whole.
func (w *Writer) WriteTensor(name string, data []byte) error {
	if err := w.Begin(name); err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	return w.complete()
}

// Close checks that every declared tensor was written whole.
func (w *Writer) Close() error {
	if err := w.complete(); err != nil {
		return err
	}
	if w.next < len(w.decls) {
		return fmt.Errorf("checkpoint: tensor %q was declared and not written", w.decls[w.next].Name)
	}
	return nil
}

func (w *Writer) complete() error {
	if w.left > 0 {
		return fmt.Errorf("checkpoint: %d bytes of tensor %q are missing", w.left, w.current())
	}
	return nil
}

func (w *Writer) current() string {
	if w.next == 0 {
		return ""
	}
	return w.decls[w.next-1].Name
}
