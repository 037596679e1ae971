package weights

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// generator is a source that makes weights up. All matrices are views of the same few bytes.
type generator struct {
	form          Form
	codes, plain  []byte // of encoded matrices and of others
	scale, biases []byte
	zeros         []byte
	inputs        map[int]*dtype.Input // by columns
}

var _ source = (*generator)(nil)

func (g *generator) find(*Weight) bool              { return true }
func (g *generator) copies(w *Weight) (bool, error) { return w.copied != "", nil }
func (g *generator) err() error                     { return nil }
func (g *generator) release(*dtype.Matrix) bool     { return true }

func (g *generator) keep(*dtype.Matrix) (free func() error) { return func() error { return nil } }

func (g *generator) numbers(w *Weight) ([]int64, error) { return make([]int64, w.Cols), nil }

func (g *generator) matrices(w *Weight) ([]dtype.Matrix, error) {
	rows := w.Rows
	if w.Kind == Lookup {
		rows = min(rows, lookedUp)
	}
	m, err := g.matrix(rows, w.Cols, g.plainly(w))
	if err != nil {
		return nil, fmt.Errorf("weights: %s: %w", w.module(), err)
	}
	return slices.Repeat([]dtype.Matrix{m}, w.Count()), nil
}

// lookedUp is how many rows a generated Lookup has: others repeat them.
const lookedUp = 1 << 10

// plainly reports whether a weight is plain numbers in every form: convolutions, and with transformed
// inputs the embedding, which has no input, and the output.
func (g *generator) plainly(w *Weight) bool {
	kind := partOf(w.Name).Kind
	return w.Kind == Kernel || g.form.input != nil && (kind == backend.EmbeddingPart || kind == backend.OutputPart)
}

// encodes reports whether a matrix of that many columns can have the form. Others are bf16.
func (g *generator) encodes(cols int, plain bool) bool {
	return cols%g.form.unit() == 0 && !plain && (g.form.input == nil || cols%dtype.RotationGroup == 0)
}

// Generated surveys the tables' weights as Loader.Generated makes them up in that form.
func (s *Survey) Generated(form Form, t Tables) {
	g := &generator{form: form}
	for _, table := range []iter.Seq[*Weight]{t.Model, t.Head, t.Tower} {
		if table == nil {
			continue
		}
		for w := range table {
			bytes := 4 * w.Parameters()
			matrix := w.IsMatrix() && w.Kind != Table
			m := dtype.Matrix{Type: dtype.BF16}
			switch {
			case w.copied != "", w.Kind == Lookup:
				continue
			case matrix:
				if g.encodes(w.Cols, g.plainly(w)) {
					m = form.matrix
					m.Input = g.input(w.Cols)
				}
				m.Cols = w.Cols
				bytes = w.Parameters()/int64(w.Cols)*int64(planned(&m).LoadedRowBytes()) + m.InputBytes()
			}
			s.add(w, bytes)
			if matrix && m.Format != dtype.Plain {
				s.form(w, planned(&m), bytes)
			}
		}
	}
}

// Matrix is a matrix of the form, of noise that keeps products near one.
func (f Form) Matrix(rows, cols int) (dtype.Matrix, error) {
	return (&generator{form: f}).matrix(rows, cols, false)
}

// matrix is noise of a size that keeps activations near one. It is bf16 if it must not be encoded,
// or if its rows cannot be cut into groups.
func (g *generator) matrix(rows, cols int, plain bool) (dtype.Matrix, error) {
	m := dtype.Matrix{Type: dtype.BF16}
	if g.encodes(cols, plain) {
		m = g.form.matrix
	}
	m.Rows, m.Cols = rows, cols
	deviation := 1 / math.Sqrt(float64(cols))
	if m.Format == dtype.Plain {
		n, size := rows*m.RowBytes(), m.Type.Size()
		for i := len(g.plain) / size; len(g.plain) < n; i++ {
			g.plain = append(g.plain, make([]byte, size)...)
			dtype.FromF32(g.plain[i*size:], m.Type, []float32{float32(deviation * noise(i))})
		}
		m.Data = g.plain[:n]
		return m, m.Validate()
	}
	m.Data = g.random(rows * m.RowBytes())
	if m.Format.Blocks() {
		g.blocks(&m, deviation)
	} else {
		g.groups(&m, deviation)
	}
	m.Input = g.input(cols)
	return m, m.Validate()
}

// input is the transformation of a matrix's input, or nil. Each matrix has its own.
func (g *generator) input(cols int) *dtype.Input {
	if g.form.input == nil {
		return nil
	}
	if g.inputs == nil {
		g.inputs = map[int]*dtype.Input{}
	}
	if g.inputs[cols] == nil {
		g.inputs[cols] = g.form.input(cols)
	}
	own := *g.inputs[cols]
	return &own
}

// random is n pseudo-random bytes. None is an E4M3 NaN, and no code of TQ2_0 or Q2_0 is 3, so
// that their mean is that of -1, 0 and 1.
func (g *generator) random(n int) []byte {
	const high = 0xaaaaaaaaaaaaaaaa // of pairs of bits
	for i := len(g.codes) / 8; len(g.codes) < n; i++ {
		x := hash(i)
		switch g.form.matrix.Format {
		case dtype.FP8, dtype.MXFP8:
			x &= 0xbfbfbfbfbfbfbfbf
		case dtype.TQ2, dtype.Q2_0:
			x &^= x << 1 & high
		}
		g.codes = binary.LittleEndian.AppendUint64(g.codes, x)
	}
	return g.codes[:n]
}

// groups completes a matrix of codes with scales.
func (g *generator) groups(m *dtype.Matrix, deviation float64) {
	scales, set := m.Rows*m.ScaleRowBytes(), func(scale float64) {}
	switch m.Format {
	case dtype.Affine, dtype.ZeroPoint:
		set = func(scale float64) {
			g.scale = fill(g.scale, scales, m.ScaleType, scale)
			if m.Scales = g.scale[:scales]; m.Format == dtype.Affine {
				g.biases = fill(g.biases, scales, m.ScaleType, -scale*float64(int(1)<<m.Bits-1)/2)
				m.Biases = g.biases[:scales]
			}
		}
		if m.Zeros != nil {
			n := m.Rows * m.Groups()
			for i := len(g.zeros); i < n; i++ {
				g.zeros = append(g.zeros, uint8(1<<(m.Bits-1)-i%2))
			}
			m.Zeros = g.zeros[:n]
		}
	case dtype.FP8:
		set = func(scale float64) {
			g.scale = fill(g.scale, scales, m.ScaleType, scale)
			m.Scales = g.scale[:scales]
		}
	case dtype.NVFP4:
		g.scale = slices.Grow(g.scale[:0], scales)[:scales]
		for i := range g.scale {
			g.scale[i] = e4m3One
		}
		m.Scales = g.scale
		set = func(scale float64) { m.Global = float32(scale) }
	default:
		set = func(scale float64) {
			g.scale = slices.Grow(g.scale[:0], scales)[:scales]
			for i := range g.scale {
				g.scale[i] = exponent(scale)
			}
			m.Scales = g.scale
		}
	}
	set(1)
	set(deviation / spread(m))
}

// e4m3One is the number one as E4M3.
const e4m3One = 0x38

// exponent is the E8M0 nearest to a number by its logarithm.
func exponent(x float64) byte {
	fraction, power := math.Frexp(x)
	if fraction*fraction < 0.5 {
		power--
	}
	return byte(127 + power)
}

// blocks completes a matrix of random blocks with scales, and with biases that make the mean of the weights zero:
// with another mean the states of recurrent layers become subnormal, which processors multiply slowly.
func (g *generator) blocks(m *dtype.Matrix, deviation float64) {
	columns, size := m.Format.BlockSize()
	middle := float64(int(1)<<m.ElementBits()-1) / 2
	if columns < 256 { // the bias is added; in superblocks it is subtracted
		middle = -middle
	}
	set := func(data []byte, scale float64) {
		halves := [2]uint16{dtype.ToF16(float32(scale)), dtype.ToF16(float32(middle * scale))}
		for at := 0; at < len(data); at += size {
			switch block := data[at : at+size]; m.Format {
			case dtype.MXFP4Blocks:
				block[0] = exponent(scale)
			case dtype.NVFP4Blocks:
				copy(block, []byte{e4m3One, e4m3One, e4m3One, e4m3One})
			default:
				next := 0
				m.Format.PutHalves(block, func() uint16 { next++; return halves[next-1] })
			}
		}
		if m.Format == dtype.NVFP4Blocks {
			m.Global = float32(scale)
		}
	}
	set(m.Data[:m.RowBytes()], 1)
	set(m.Data, deviation/spread(m))
}

// spread is the root of the mean square of the first row.
func spread(m *dtype.Matrix) float64 {
	row, sum := make([]float32, m.Cols), 0.0
	m.Row(row, 0)
	for _, x := range row {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum / float64(len(row)))
}

// fill makes b at least n bytes of the same number.
func fill(b []byte, n int, t dtype.Type, x float64) []byte {
	if len(b) < n {
		b = make([]byte, n)
	}
	size := t.Size()
	dtype.FromF32(b[:size], t, []float32{float32(x)})
	for at := size; at < n; at *= 2 {
		copy(b[at:n], b[:at])
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

// noise is a pseudo-random number in [-1, 1).
func noise(i int) float64 {
	return float64(int64(hash(i))) / (1 << 63)
}

// hash is 64 pseudo-random bits.
func hash(i int) uint64 {
	x := uint64(i)*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	return x ^ x>>32
}
