package gguf

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// part is the contents of one file.
type part struct {
	values  map[string]value
	tensors []*Tensor
}

// parse reads a whole file's header: magic, version, the numbers of tensors and of keys,
// the keys, the directory of tensors. Their data follow at the next aligned byte.
func parse(data []byte) (*part, error) {
	c := &cursor{data: data}
	if string(c.take(4)) != "GGUF" {
		return nil, errors.New("not a GGUF file")
	}
	switch version := c.u32(); version {
	case 2, 3:
	default:
		if bits.ReverseBytes32(version) <= 3 {
			return nil, errors.New("big-endian GGUF files are not supported")
		}
		return nil, fmt.Errorf("GGUF version %d, want 2 or 3: convert the model again", version)
	}
	tensors, keys := c.u64(), c.u64()
	if tensors > maxTensors || keys > maxKeys {
		return nil, fmt.Errorf("%d tensors and %d keys, want at most %d and %d", tensors, keys, maxTensors, maxKeys)
	}
	p := &part{values: map[string]value{}}
	for range keys {
		key := c.text()
		v := c.value()
		if c.err != nil {
			return nil, fmt.Errorf("key %.60q: %w", key, c.err)
		}
		if _, ok := p.values[key]; ok {
			return nil, fmt.Errorf("key %.60q appears twice", key)
		}
		p.values[key] = v
	}
	for range tensors {
		t := c.tensor()
		if c.err != nil {
			return nil, fmt.Errorf("tensor %.60q: %w", t.Name, c.err)
		}
		p.tensors = append(p.tensors, t)
	}
	return p, p.place(data, c.at)
}

// place finds the data of the tensors, whose directory ends at byte end.
func (p *part) place(data []byte, end int) error {
	align := 32
	if v, ok := p.values["general.alignment"]; ok {
		n, err := v.whole()
		if err != nil || n < 1 || n > maxAlign || n&(n-1) != 0 {
			return fmt.Errorf("general.alignment is not a power of two up to %d", maxAlign)
		}
		align = n
	}
	start := (end + align - 1) &^ (align - 1)
	order := slices.Clone(p.tensors)
	slices.SortStableFunc(order, func(a, b *Tensor) int { return cmp.Compare(a.offset, b.offset) })
	last := uint64(0)
	for _, t := range order {
		size := uint64(t.rows()) * uint64(t.rowBytes()) // checked by the cursor
		switch {
		case t.offset%uint64(align) != 0:
			return fmt.Errorf("tensor %q begins at byte %d, want a multiple of %d", t.Name, t.offset, align)
		case start > len(data) || t.offset > uint64(len(data)-start) || size > uint64(len(data)-start)-t.offset:
			return fmt.Errorf("tensor %q ends beyond the end of the file: it was cut off", t.Name)
		case t.offset < last:
			return fmt.Errorf("tensor %q overlaps another", t.Name)
		}
		last = t.offset + size
		t.data = data[start+int(t.offset):][:size:size]
	}
	return nil
}

// cursor reads a file from its start. After an error it reads zeros.
type cursor struct {
	data []byte
	at   int
	err  error
}

var errShort = errors.New("the file ends within its header: it was cut off")

// take is the next n bytes, a view of the file; nil after an error.
func (c *cursor) take(n uint64) []byte {
	if c.err == nil && n > uint64(len(c.data)-c.at) {
		c.err = errShort
	}
	if c.err != nil {
		return nil
	}
	b := c.data[c.at : c.at+int(n)]
	c.at += int(n)
	return b
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// text is the next string, in new memory.
func (c *cursor) text() string { return string(c.take(c.u64())) }

// tensor reads an entry of the directory.
func (c *cursor) tensor() *Tensor {
	t := &Tensor{Name: c.text()}
	dims := c.u32()
	if c.err == nil && (dims < 1 || dims > maxDims) {
		c.err = fmt.Errorf("%d dimensions, want 1 to %d", dims, maxDims)
	}
	if c.err != nil {
		return t
	}
	n := uint64(1)
	for range dims {
		d := c.u64()
		hi, lo := bits.Mul64(n, d)
		// Four bytes a number, at most, and room for sums.
		if n = lo; c.err == nil && (hi != 0 || lo == 0 || lo > 1<<58) {
			c.err = fmt.Errorf("dimension %d makes the tensor empty or larger than any file", d)
		}
		t.Shape = append(t.Shape, int(d))
	}
	slices.Reverse(t.Shape) // the file has the fastest first
	t.Type = Type(c.u32())
	t.offset = c.u64()
	if k := t.Type.kind(); c.err == nil && k != nil && t.cols()%k.columns != 0 {
		c.err = fmt.Errorf("%v rows of %d numbers are not a multiple of the block size %d", t.Type, t.cols(), k.columns)
	}
	return t
}
