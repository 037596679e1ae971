package gguf

import (
	"fmt"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Piece is a weight of a checkpoint that is stored in a tensor: the whole tensor, or half of its rows.
type Piece struct {
	Name     string
	Shape    []int
	Encoding dtype.Matrix                                   // of the whole tensor
	Convert  func(b []byte, typ dtype.Type) ([]byte, error) // to float32; nil: the numbers are used as they are

	tensor *Tensor
	set    int // rows of a set, of which the piece has one half; 0: the piece has all rows
	half   int // 0 or 1
}

// Piece returns the whole tensor as the weight with the given name.
func (t *Tensor) Piece(name string) (Piece, error) {
	m, err := t.Encoding()
	return Piece{Name: name, Shape: t.Shape, tensor: t, Encoding: m}, err
}

// Pieces returns the tensor as the weight with the given name. A name that ends in a dot is that of experts, whose gates
// and ups the tensor has together.
func (t *Tensor) Pieces(name string) ([]Piece, error) {
	p, err := t.Piece(name)
	if err != nil || !strings.HasSuffix(name, ".") {
		return []Piece{p}, err
	}
	if len(t.Shape) != 3 || t.Shape[1]%2 != 0 {
		return nil, fmt.Errorf("shape %v, want gates and ups of experts", t.Shape)
	}
	return p.Halves(t.Shape[1], "gate_proj.weight", "up_proj.weight")
}

// Assembly is the file as a folder with the given config and the weights that pieces finds in each tensor.
func (f *File) Assembly(config []byte, words Words, pieces func(t *Tensor) ([]Piece, error)) (checkpoint.Assembly, error) {
	a := checkpoint.Assembly{Config: config, Texts: f.Folder(words), Files: f.Parts}
	for _, t := range f.Tensors {
		list, err := pieces(t)
		if err != nil {
			return a, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		for _, p := range list {
			a.Tensors = append(a.Tensors, p.Source())
		}
	}
	return a, nil
}

// Halves splits each set of rows into two halves. Their names are p's with first and second added.
func (p *Piece) Halves(set int, first, second string) ([]Piece, error) {
	if set < 2 || set%2 != 0 || p.Encoding.Rows%set != 0 || len(p.Shape) < 2 {
		return nil, fmt.Errorf("%d rows, want a multiple of %d", p.Encoding.Rows, set)
	}
	list := []Piece{*p, *p}
	for i, name := range []string{first, second} {
		h := &list[i]
		h.Name, h.Shape, h.set, h.half = p.Name+name, slices.Clone(p.Shape), set, i
		h.Shape[len(h.Shape)-2] /= 2
	}
	return list, nil
}

// Source returns the piece as a tensor of an assembled checkpoint.
func (p Piece) Source() checkpoint.Source {
	m := p.Encoding
	s := checkpoint.Source{Decl: checkpoint.Decl{Name: p.Name, Type: m.Type, Shape: slices.Clone(p.Shape)}, File: p.tensor.File, Read: p.read}
	switch {
	case p.Convert != nil:
		s.Type = dtype.F32
	case m.Format.Blocks():
		s.Type, s.Blocks, s.Factors = dtype.U8, &m, p.tensor.Factors
		s.Shape[len(s.Shape)-1] = m.RowBytes()
	}
	return s
}

func (p Piece) read() ([]byte, error) {
	m, err := p.tensor.Matrix()
	if err != nil {
		return nil, err
	}
	b := m.Data
	if size := p.set / 2 * m.RowBytes(); size > 0 {
		b = make([]byte, 0, len(m.Data)/2)
		for at := p.half * size; at < len(m.Data); at += 2 * size {
			b = append(b, m.Data[at:][:size]...)
		}
	}
	if p.Convert != nil {
		return p.Convert(b, p.Encoding.Type)
	}
	return b, nil
}
