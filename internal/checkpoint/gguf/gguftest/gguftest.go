// Package gguftest writes GGUF files for tests, slowly and from the definition of the
// format: it shares no code with package gguf, whose reader it checks. It
// knows the layout of files and blocks, but no models. Only tests import it.
package gguftest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
)

// File is a GGUF file to be written.
type File struct {
	Version uint32 // 3 if it is 0
	Align   int    // of tensors; 0: 32, and not written

	keys    [][]byte
	tensors []tensor
}

type tensor struct {
	name  string
	typ   uint32
	shape []int
	data  []byte // repeated up to size
	size  int
}

var little = binary.LittleEndian

// Set adds a key: a bool, uint16, uint32, int32, uint64, float32, string, or a list of
// strings, int32 or bools.
func (f *File) Set(key string, v any) {
	typ, raw := value(v)
	b := text(nil, key)
	b = little.AppendUint32(b, typ)
	f.keys = append(f.keys, append(b, raw...))
}

// Add adds a tensor of the values, the last dimension the fastest, and returns the
// numbers that will be in the file.
func (f *File) Add(name, typ string, shape []int, values []float32) []float32 {
	data, stored := Encode(typ, values)
	f.AddRaw(name, Types[typ], shape, data)
	return stored
}

// AddRaw adds a tensor of any type by its bytes.
func (f *File) AddRaw(name string, typ uint32, shape []int, data []byte) {
	f.tensors = append(f.tensors, tensor{name, typ, slices.Clone(shape), data, len(data)})
}

// AddTiled adds a tensor of any size. Its blocks are those of tile, which Encode returned, again and again.
func (f *File) AddTiled(name, typ string, shape []int, tile []byte) {
	block, _ := Encode(typ, make([]float32, Columns(typ)))
	size := len(block)
	for _, n := range shape {
		size *= n
	}
	f.tensors = append(f.tensors, tensor{name, Types[typ], slices.Clone(shape), tile, size / Columns(typ)})
}

// Split deals the tensors out to n files, of which the first has all keys.
func (f *File) Split(n int) []*File {
	parts := make([]*File, n)
	for i := range parts {
		parts[i] = &File{Version: f.Version, Align: f.Align}
		if i == 0 {
			parts[i].keys = slices.Clone(f.keys)
		}
		parts[i].Set("split.no", uint16(i))
		parts[i].Set("split.count", uint16(n))
		parts[i].Set("split.tensors.count", int32(len(f.tensors)))
	}
	for i, t := range f.tensors {
		p := parts[i*n/len(f.tensors)]
		p.tensors = append(p.tensors, t)
	}
	return parts
}

// Bytes is the whole file.
func (f *File) Bytes() []byte {
	var b bytes.Buffer
	f.Write(&b) //nolint:errcheck // memory
	return b.Bytes()
}

// Write writes the whole file, of which it has no copy.
func (f *File) Write(to io.Writer) error {
	version, align, keys := max(f.Version, 2), 32, f.keys
	if f.Version == 0 {
		version = 3
	}
	if f.Align != 0 {
		align = f.Align
		keys = append(slices.Clone(keys), append(little.AppendUint32(text(nil, "general.alignment"), 4), little.AppendUint32(nil, uint32(align))...))
	}
	b := little.AppendUint32([]byte("GGUF"), version)
	b = little.AppendUint64(b, uint64(len(f.tensors)))
	b = little.AppendUint64(b, uint64(len(keys)))
	b = append(b, slices.Concat(keys...)...)
	at := 0
	for _, t := range f.tensors {
		b = text(b, t.name)
		b = little.AppendUint32(b, uint32(len(t.shape)))
		for i := range t.shape {
			b = little.AppendUint64(b, uint64(t.shape[len(t.shape)-1-i]))
		}
		b = little.AppendUint32(b, t.typ)
		b = little.AppendUint64(b, uint64(at))
		at += t.size + padding(t.size, align)
	}
	w := bufio.NewWriterSize(to, 1<<20)
	write := func(data []byte) { _, _ = w.Write(data) } // Flush returns the first error
	write(b)
	write(make([]byte, padding(len(b), align)))
	for _, t := range f.tensors {
		for left := t.size; left > 0; left -= len(t.data) {
			write(t.data[:min(left, len(t.data))])
		}
		write(make([]byte, padding(t.size, align)))
	}
	return w.Flush()
}

// padding is how many bytes of padding follow n.
func padding(n, align int) int { return (align - n%align) % align }

func text(b []byte, s string) []byte { return append(little.AppendUint64(b, uint64(len(s))), s...) }

// value is the number of a value's type, and its bytes.
func value(v any) (typ uint32, raw []byte) {
	switch v := v.(type) {
	case uint16:
		return 2, little.AppendUint16(nil, v)
	case uint32:
		return 4, little.AppendUint32(nil, v)
	case int32:
		return 5, little.AppendUint32(nil, uint32(v))
	case float32:
		return 6, little.AppendUint32(nil, math.Float32bits(v))
	case bool:
		if v {
			return 7, []byte{1}
		}
		return 7, []byte{0}
	case string:
		return 8, text(nil, v)
	case uint64:
		return 10, little.AppendUint64(nil, v)
	case []string:
		return list(8, v)
	case []int32:
		return list(5, v)
	case []bool:
		return list(7, v)
	case []float32:
		return list(6, v)
	}
	panic(fmt.Sprintf("gguftest: value of type %T", v))
}

func list[T any](elem uint32, v []T) (uint32, []byte) {
	b := little.AppendUint32(nil, elem)
	b = little.AppendUint64(b, uint64(len(v)))
	for _, x := range v {
		_, raw := value(x)
		b = append(b, raw...)
	}
	return 9, b
}
