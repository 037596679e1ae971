package backendtest

import (
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// inputFaults are those of transformations of weights' inputs.
var inputFaults = []planted{
	turned("rounds in the wrong order", func(r *dtype.Rotation) {
		cols := len(r.Scales)
		for i, j := 0, r.Rounds-1; i < j; i, j = i+1, j-1 {
			swap(r.Pairs[i*cols:][:cols], r.Pairs[j*cols:])
			swap(r.Cos[i*cols/2:][:cols/2], r.Cos[j*cols/2:])
			swap(r.Sin[i*cols/2:][:cols/2], r.Sin[j*cols/2:])
		}
	}),
	turned("a scale is missing", func(r *dtype.Rotation) { r.Scales[len(r.Scales)-1] = 1 }),
	turned("the numbers of a pair are exchanged", func(r *dtype.Rotation) {
		r.Pairs[0], r.Pairs[1] = r.Pairs[1], r.Pairs[0]
	}),
	turned("the last pair has another's angle", func(r *dtype.Rotation) {
		r.Cos[len(r.Cos)-1], r.Sin[len(r.Sin)-1] = r.Cos[0], r.Sin[0]
	}),
	loaded("the order is inverted", func(in *dtype.Input) {
		for i, c := range slices.Clone(in.Order) {
			in.Order[c] = int32(i)
		}
	}),
}

func swap[T any](a, b []T) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}

// loaded is a device that changes the transformations of the weights that it loads.
func loaded(what string, change func(in *dtype.Input)) planted {
	return planted{"Load", what, func(f *faulty, b *Opaque) {
		f.load = func(c backend.Compute, stack []dtype.Matrix) (backend.Weight, error) {
			stack = slices.Clone(stack)
			for i := range stack {
				if m := &stack[i]; m.Validate() == nil && m.Input != nil {
					in := dtype.Input{Order: slices.Clone(m.Input.Order)}
					if r := m.Input.Rotation; r != nil {
						in.Rotation = &dtype.Rotation{
							Rounds: r.Rounds, Scales: slices.Clone(r.Scales), Pairs: slices.Clone(r.Pairs),
							Cos: slices.Clone(r.Cos), Sin: slices.Clone(r.Sin),
						}
					}
					change(&in)
					m.Input = &in
				}
			}
			return b.Load(c, stack...)
		}
	}}
}

// turned is loaded for rotations.
func turned(what string, change func(r *dtype.Rotation)) planted {
	return loaded(what, func(in *dtype.Input) {
		if in.Rotation != nil {
			change(in.Rotation)
		}
	})
}
