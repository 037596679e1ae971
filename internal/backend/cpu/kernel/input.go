package kernel

import (
	"slices"

	"github.com/foretoken/foretoken/internal/dtype"
)

// Input is a dtype.Input with its tables in the layout of kernels.
//
// A group of a rotation is 128 numbers. Each round reads its operands by place and writes its
// results in order: first those of the pairs' first numbers, then of the second ones. So results are
// never scattered. The places of a round are places among the results of the round before it, and after
// the last round there are places that restore the order of the columns.
type Input struct {
	order  []int32 // nil: it is a rotation
	rounds int
	scales []float32 // [cols]
	places []uint8   // [groups, rounds+1, 128]
	turns  []float32 // [groups, rounds, 2, 64]: cosines and sines of the pairs
}

const (
	turnGroup = dtype.RotationGroup
	turnPairs = turnGroup / 2
)

// NewInput makes the tables of a valid transformation.
func NewInput(t *dtype.Input) *Input {
	if t.Rotation == nil {
		return &Input{order: slices.Clone(t.Order)}
	}
	r := t.Rotation
	cols := len(r.Scales)
	in := &Input{
		rounds: r.Rounds, scales: slices.Clone(r.Scales),
		places: make([]uint8, 0, (r.Rounds+1)*cols), turns: make([]float32, 0, r.Rounds*cols),
	}
	for g := 0; g < cols; g += turnGroup {
		var at [turnGroup]uint8 // the places of the columns' numbers
		for i := range at {
			at[i] = uint8(i)
		}
		for round := range r.Rounds {
			pairs := r.Pairs[round*cols+g:][:turnGroup]
			for side := range 2 {
				for t := range turnPairs {
					in.places = append(in.places, at[pairs[2*t+side]])
				}
			}
			for i, column := range pairs {
				at[column] = uint8(i%2*turnPairs + i/2)
			}
			first := (round*cols + g) / 2
			in.turns = append(in.turns, r.Cos[first:][:turnPairs]...)
			in.turns = append(in.turns, r.Sin[first:][:turnPairs]...)
		}
		in.places = append(in.places, at[:]...)
	}
	return in
}

// Equal reports whether two transformations are the same.
func (in *Input) Equal(other *Input) bool {
	return slices.Equal(in.order, other.order) && in.rounds == other.rounds && slices.Equal(in.scales, other.scales) &&
		slices.Equal(in.places, other.places) && slices.Equal(in.turns, other.turns)
}

// Bytes is the size of the tables.
func (in *Input) Bytes() int64 {
	return int64(4*len(in.order) + 4*len(in.scales) + len(in.places) + 4*len(in.turns))
}

// Order is the order of columns, or nil.
func (in *Input) Order() []int32 { return in.order }

// Rotation is the tables of a rotation: [cols], [groups, rounds+1, 128] and [groups, rounds, 2, 64].
func (in *Input) Rotation() (scales []float32, places []uint8, turns []float32, rounds int) {
	return in.scales, in.places, in.turns, in.rounds
}

// Transform writes the transformed row src to dst, which is not src: dtype.Input.Apply.
func (k *Set) Transform(dst, src []float32, in *Input) {
	if in.order == nil {
		k.Vector.Turn(dst[:len(in.scales)], src, in.scales, in.places, in.turns, in.rounds)
		return
	}
	dst = dst[:len(in.order)]
	for i, c := range in.order {
		dst[i] = src[c]
	}
}

// TurnRows is Vector.Turn for as many rows as a vector has lanes: each has the numbers of one row, so that the tables are read once for
// all. buffer has place for 256 columns.
type TurnRows struct {
	Rows int
	Turn func(dst []float32, dstStride int, src []float32, stride int, scales []float32, places []uint8, turns []float32, rounds int, buffer []float32)
}

// TransformRows writes the transformed rows of x to dst, row after row.
func (k *Set) TransformRows(dst []float32, x Rows, in *Input, s *Scratch) {
	r := 0
	if t := k.Vector.TurnRows; t != nil && in.order == nil {
		s.columns = Grow(s.columns, 2*turnGroup*t.Rows)
		for ; r+t.Rows <= x.N; r += t.Rows {
			t.Turn(dst[r*x.Cols:], x.Cols, x.Data[r*x.Stride:], x.Stride, in.scales, in.places, in.turns, in.rounds, s.columns)
		}
	}
	for ; r < x.N; r++ {
		k.Transform(dst[r*x.Cols:], x.at(r), in)
	}
}
