package dtype

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/exactmath"
)

// Input is a transformation of the rows that a matrix multiplies: y = T(x)·Wᵀ. It is part of the
// matrix's function. Matrices that share one have the same pointer. It has an Order or a Rotation.
type Input struct {
	// Order is of GPTQ's act-order: number i of T(x) is number Order[i] of x. It is a permutation.
	Order []int32
	// Rotation is ParoQuant's.
	Rotation *Rotation
}

// RotationGroup is how many columns are rotated among themselves.
const RotationGroup = 128

// Rotation scales a row and then rotates pairs of its numbers, round after round:
//
//	x_i = x_i * Scales[i]
//	x_i, x_j = fma(x_i, c, x_j*s), fma(x_j, c, -(x_i*s))     for each pair of a round
//
// The pairs of a round are disjoint, and within groups of RotationGroup columns.
type Rotation struct {
	Rounds int
	Scales []float32 // [cols]
	// Pairs are places within a group, [Rounds, cols]: pair t of group k is at 128k+2t and 128k+2t+1.
	Pairs []uint8
	// Cos and Sin are of the pairs' angles, [Rounds, cols/2], correctly rounded.
	Cos, Sin []float32
}

// NewRotation makes the rotation of rows of len(scales) numbers by angles, [rounds, columns/2].
func NewRotation(scales, angles []float32, pairs []uint8) *Input {
	r := &Rotation{
		Rounds: 2 * len(angles) / len(scales), Scales: scales, Pairs: pairs,
		Cos: make([]float32, len(angles)), Sin: make([]float32, len(angles)),
	}
	for i, x := range angles {
		r.Sin[i], r.Cos[i] = exactmath.Sincos32(x)
	}
	return &Input{Rotation: r}
}

// Validate reports what is wrong with a transformation of rows of cols numbers.
func (t *Input) Validate(cols int) error {
	if t.Rotation != nil {
		if t.Order != nil {
			return fmt.Errorf("dtype: input with an order and a rotation")
		}
		return t.Rotation.validate(cols)
	}
	if len(t.Order) != cols {
		return fmt.Errorf("dtype: order of %d columns, want %d", len(t.Order), cols)
	}
	seen := make([]bool, cols)
	for i, c := range t.Order {
		if c < 0 || int(c) >= cols || seen[c] {
			return fmt.Errorf("dtype: order has column %d at %d, which is no permutation of %d columns", c, i, cols)
		}
		seen[c] = true
	}
	return nil
}

func (t *Rotation) validate(cols int) error {
	if cols%RotationGroup != 0 || t.Rounds < 1 || len(t.Scales) != cols {
		return fmt.Errorf("dtype: rotation of %d rounds with %d scales for %d columns, want groups of %d", t.Rounds, len(t.Scales), cols, RotationGroup)
	}
	if len(t.Pairs) != t.Rounds*cols || len(t.Cos) != t.Rounds*cols/2 || len(t.Sin) != t.Rounds*cols/2 {
		return fmt.Errorf("dtype: rotation of %d rounds with %d places, %d cosines and %d sines for %d columns",
			t.Rounds, len(t.Pairs), len(t.Cos), len(t.Sin), cols)
	}
	for at := 0; at < len(t.Pairs); at += RotationGroup {
		var seen [RotationGroup]bool
		for _, p := range t.Pairs[at:][:RotationGroup] {
			if p >= RotationGroup || seen[p] {
				return fmt.Errorf("dtype: rotation has place %d twice, or it is outside of its group of %d", p, RotationGroup)
			}
			seen[p] = true
		}
	}
	return nil
}

// Apply writes T(src) to dst, which is not src. It is the definition that devices keep to.
func (t *Input) Apply(dst, src []float32) {
	if t.Rotation == nil {
		for i, c := range t.Order {
			dst[i] = src[c]
		}
		return
	}
	r := t.Rotation
	for i, s := range r.Scales {
		dst[i] = src[i] * s
	}
	cols := len(r.Scales)
	for at := range r.Rounds * cols / 2 {
		group := dst[at%(cols/2)/(RotationGroup/2)*RotationGroup:][:RotationGroup]
		i, j := &group[r.Pairs[2*at]], &group[r.Pairs[2*at+1]]
		c, s := r.Cos[at], r.Sin[at]
		p, m := float32(*j*s), float32(*i*s)
		*i, *j = exactmath.FMA32(*i, c, p), exactmath.FMA32(*j, c, -m)
	}
}

// Equal reports whether two transformations are the same; nil is none.
func (t *Input) Equal(other *Input) bool {
	if t == other || t == nil || other == nil {
		return t == other
	}
	a, b := t.Rotation, other.Rotation
	if a == b || a == nil || b == nil {
		return a == b && slices.Equal(t.Order, other.Order)
	}
	return a.Rounds == b.Rounds && slices.Equal(a.Scales, b.Scales) && slices.Equal(a.Pairs, b.Pairs) &&
		slices.Equal(a.Cos, b.Cos) && slices.Equal(a.Sin, b.Sin)
}

// Undo makes a row of a matrix that multiplies T(x) one that multiplies x: with an Order exactly, with a Rotation
// computed in float64 and rounded once.
func (t *Input) Undo(row []float32) {
	if t.Rotation == nil {
		sorted := slices.Clone(row)
		for i, c := range t.Order {
			row[c] = sorted[i]
		}
		return
	}
	r := t.Rotation
	cols := len(r.Scales)
	wide := make([]float64, cols)
	for i := range wide {
		wide[i] = float64(row[i])
	}
	for at := r.Rounds*cols/2 - 1; at >= 0; at-- {
		group := wide[at%(cols/2)/(RotationGroup/2)*RotationGroup:][:RotationGroup]
		i, j := &group[r.Pairs[2*at]], &group[r.Pairs[2*at+1]]
		c, s := float64(r.Cos[at]), float64(r.Sin[at])
		*i, *j = float64(*i*c)-float64(*j*s), float64(*i*s)+float64(*j*c)
	}
	for i, s := range r.Scales {
		row[i] = float32(wide[i] * float64(s))
	}
}
