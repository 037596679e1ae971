//go:build unix

package kernel

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// randomRotation is a rotation with random pairs and angles.
func randomRotation(rng *rand.Rand, rounds, cols int) *dtype.Input {
	r := &dtype.Rotation{Rounds: rounds}
	for range cols {
		r.Scales = append(r.Scales, float32(rng.NormFloat64()))
	}
	for range rounds * cols / dtype.RotationGroup {
		for _, p := range rng.Perm(dtype.RotationGroup) {
			r.Pairs = append(r.Pairs, uint8(p))
		}
		for range dtype.RotationGroup / 2 {
			s, c := exactmath.Sincos32(float32(rng.NormFloat64()))
			r.Cos, r.Sin = append(r.Cos, c), append(r.Sin, s)
		}
	}
	return &dtype.Input{Rotation: r}
}

// TestTransformKeepsToItsDefinition compares every instruction set with dtype.Input.Apply.
func TestTransformKeepsToItsDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	order := &dtype.Input{}
	for _, c := range rng.Perm(200) {
		order.Order = append(order.Order, int32(c))
	}
	inputs := []*dtype.Input{order}
	for _, rounds := range []int{1, 2, 3, 8, 16} {
		inputs = append(inputs, randomRotation(rng, rounds, 128), randomRotation(rng, rounds, 640))
	}
	for _, in := range inputs {
		cols := len(in.Order)
		if in.Rotation != nil {
			cols = len(in.Rotation.Scales)
		}
		table := NewInput(in)
		for _, set := range Sets() {
			if set.Missing != "" {
				continue
			}
			x, want, got := floatsOf(guarded(t, 4*cols)), make([]float32, cols), floatsOf(guarded(t, 4*cols))
			for i := range x {
				x[i] = float32(rng.NormFloat64() * math.Exp(4*rng.NormFloat64()))
			}
			in.Apply(want, x)
			set.Transform(got, x, table)
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%s: %d columns, number %d: %g, want %g", set.Name, cols, i, got[i], want[i])
				}
			}
		}
	}
}

// TestTransformRowsEqualsEach compares rows together with each alone.
func TestTransformRowsEqualsEach(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const cols, gap = 384, 5
	in := NewInput(randomRotation(rng, 3, cols))
	for _, set := range Sets() {
		if set.Missing != "" {
			continue
		}
		for _, rows := range []int{1, 7, 8, 16, 35} {
			x := Rows{Data: floatsOf(guarded(t, 4*(rows*(cols+gap)-gap))), N: rows, Cols: cols, Stride: cols + gap}
			for i := range x.Data {
				x.Data[i] = float32(rng.NormFloat64())
			}
			got, want := floatsOf(guarded(t, 4*rows*cols)), make([]float32, cols)
			set.TransformRows(got, x, in, &Scratch{})
			for r := range rows {
				Generic.Transform(want, x.at(r), in)
				for i, w := range want {
					if g := got[r*cols+i]; math.Float32bits(g) != math.Float32bits(w) {
						t.Fatalf("%s, %d rows: row %d, number %d: %g, want %g", set.Name, rows, r, i, g, w)
					}
				}
			}
		}
	}
}

func BenchmarkTransform(b *testing.B) {
	const cols = 5120
	in := NewInput(randomRotation(rand.New(rand.NewPCG(1, 2)), 8, cols))
	x, y := make([]float32, cols), make([]float32, cols)
	for _, set := range Sets() {
		if set.Missing == "" {
			b.Run(set.Name, func(b *testing.B) {
				b.SetBytes(in.Bytes())
				for b.Loop() {
					set.Transform(y, x, in)
				}
			})
			b.Run(set.Name+"/rows=16", func(b *testing.B) {
				x, y, s := make([]float32, 16*cols), make([]float32, 16*cols), &Scratch{}
				for b.Loop() {
					set.TransformRows(y, Rows{Data: x, N: 16, Cols: cols, Stride: cols}, in, s)
				}
			})
		}
	}
}
