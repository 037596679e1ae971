package weights

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/dtype"
)

// generator is a source that makes weights up. All matrices are views of the same few bytes.
type generator struct {
	bits          int
	codes, plain  []byte // of quantized matrices and of others
	scale, biases []byte
}

var _ source = (*generator)(nil)

func (g *generator) find(*Weight) bool              { return true }
func (g *generator) copies(w *Weight) (bool, error) { return w.copied != "", nil }
func (g *generator) err() error                     { return nil }
func (g *generator) release(*dtype.Matrix) bool     { return true }

func (g *generator) matrices(w *Weight) ([]dtype.Matrix, error) {
	m, err := g.matrix(w.Rows, w.Cols, w.Kind == Kernel)
	if err != nil {
		return nil, fmt.Errorf("weights: %s: %w", w.module(), err)
	}
	return slices.Repeat([]dtype.Matrix{m}, w.Count()), nil
}

// generatedGroup is the columns that have a scale and a bias.
const generatedGroup = 64

// quantizes reports whether a matrix of that many columns is.
func (g *generator) quantizes(cols int, plain bool) bool {
	return g.bits < 16 && cols%generatedGroup == 0 && !plain
}

// Generated surveys the tables' weights as Loader.Generated makes them up, with that many bits.
func (s *Survey) Generated(bits int, t Tables) {
	g := &generator{bits: bits}
	for _, table := range []iter.Seq[*Weight]{t.Model, t.Head, t.Tower} {
		if table == nil {
			continue
		}
		for w := range table {
			bytes := 4 * w.Parameters()
			switch {
			case w.copied != "":
				continue
			case !w.IsMatrix() || w.Kind == Table:
			case g.quantizes(w.Cols, w.Kind == Kernel):
				bytes = w.Parameters() * int64(bits*generatedGroup+32) / (8 * generatedGroup)
			default:
				bytes = 2 * w.Parameters()
			}
			s.add(w, bytes)
			if w.IsMatrix() && w.Kind != Table && g.quantizes(w.Cols, w.Kind == Kernel) {
				s.form(w, &dtype.Matrix{Format: dtype.Affine, Bits: bits, Group: generatedGroup, ScaleType: dtype.BF16}, bytes)
			}
		}
	}
}

// matrix is noise of a size that keeps activations near one. It is not quantized if it must not be,
// or if its rows cannot be cut into groups.
func (g *generator) matrix(rows, cols int, plain bool) (dtype.Matrix, error) {
	m := dtype.Matrix{Rows: rows, Cols: cols, Type: dtype.BF16}
	deviation := 1 / math.Sqrt(float64(cols))
	if !g.quantizes(cols, plain) {
		n := 2 * rows * cols
		for i := len(g.plain) / 2; len(g.plain) < n; i++ {
			x := dtype.ToBF16(float32(deviation * noise(i)))
			g.plain = append(g.plain, byte(x), byte(x>>8))
		}
		m.Data = g.plain[:n]
		return m, m.Validate()
	}
	m.Format, m.Type, m.Bits, m.Group, m.ScaleType = dtype.Affine, dtype.Invalid, g.bits, generatedGroup, dtype.BF16
	n, scales := rows*m.RowBytes(), rows*m.ScaleRowBytes()
	for i := len(g.codes); len(g.codes) < n; i++ {
		g.codes = append(g.codes, byte(noise(i)*512))
	}
	// Codes are uniform: their deviation is their range over the root of twelve.
	top := float64(int(1)<<g.bits - 1)
	scale := deviation * math.Sqrt(12) / top
	g.scale = fill(g.scale, scales, float32(scale))
	g.biases = fill(g.biases, scales, float32(-scale*top/2))
	m.Data, m.Scales, m.Biases = g.codes[:n], g.scale[:scales], g.biases[:scales]
	return m, m.Validate()
}

// fill makes b at least n bytes of the same bf16 number.
func fill(b []byte, n int, x float32) []byte {
	if len(b) < n {
		b = make([]byte, n)
	}
	h := dtype.ToBF16(x)
	for i := 0; i < n; i += 2 {
		b[i], b[i+1] = byte(h), byte(h>>8)
	}
	return b
}

// values are ones for norms, small noise for the rest.
func (g *generator) values(w *Weight) ([]float32, error) {
	v := make([]float32, w.Rows*w.Cols)
	for i := range v {
		if v[i] = 1; !strings.Contains(w.Name, "norm") || strings.HasSuffix(w.Name, ".bias") {
			v[i] = float32(noise(i))
		}
	}
	return v, nil
}

// noise is a number in [-1, 1) that looks random.
func noise(i int) float64 {
	x := uint64(i)*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 32
	return float64(int64(x)) / (1 << 63)
}
