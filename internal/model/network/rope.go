package network

import (
	"fmt"
	"math"

	"github.com/foretoken/foretoken/internal/exactmath"
)

// RopeFile is an entry of rope_parameters in config.json, which has one for each kind of layers.
type RopeFile struct {
	Type    string   `json:"rope_type"`
	Theta   *float64 `json:"rope_theta"`
	Partial *float64 `json:"partial_rotary_factor"`
	Factor  *float64 `json:"factor"`
}

// Rope rotates the first pairs of a head. Pair i is the numbers i and i+dim/2 of a head of dim numbers.
type Rope struct {
	Theta, Factor float64 // frequencies are divided by Factor
	Pairs         int
}

// WindowRope is the rotation of layers with a window in Gemma 4 and its assistants, for heads of dim numbers.
func (f *RopeFile) WindowRope(dim int) (Rope, error) {
	if f == nil {
		f = &RopeFile{}
	}
	return f.rope(1e4, dim)
}

// FullRope is the rotation of their other layers.
func (f *RopeFile) FullRope(dim int) (Rope, error) {
	if f == nil {
		quarter := 0.25
		f = &RopeFile{Type: "proportional", Partial: &quarter}
	}
	return f.rope(1e6, dim)
}

// rope checks the entry, whose default theta is given.
func (f *RopeFile) rope(theta float64, dim int) (Rope, error) {
	r, partial := Rope{Theta: Or(f.Theta, theta), Factor: 1}, 1.0
	switch f.Type {
	case "", "default":
	case "proportional":
		partial, r.Factor = Or(f.Partial, 1), Or(f.Factor, 1)
	default:
		return r, fmt.Errorf("rope_parameters: rope_type %q is not supported, want default or proportional", f.Type)
	}
	switch {
	case !(r.Theta > 1) || math.IsInf(r.Theta, 0):
		return r, fmt.Errorf("rope_parameters: rope_theta is %v, want a number above 1", r.Theta)
	case !(partial >= 0 && partial <= 1):
		return r, fmt.Errorf("rope_parameters: partial_rotary_factor is %v, want a number from 0 to 1", partial)
	case !(r.Factor > 0) || math.IsInf(r.Factor, 0):
		return r, fmt.Errorf("rope_parameters: factor is %v, want a positive number", r.Factor)
	}
	r.Pairs = int(partial * float64(dim) / 2)
	return r, nil
}

// Freqs are the angles per position of all pairs of a head of dim numbers: 0 for pairs that are not rotated. The exponent divides by
// dim even if only some pairs are.
func (r *Rope) Freqs(dim int) []float32 {
	log, f := exactmath.LogOfExp(r.Theta), make([]float32, dim/2)
	for i := range r.Pairs {
		f[i] = float32(exactmath.Exp(-log*float64(2*i)/float64(dim)) / r.Factor)
	}
	return f
}
