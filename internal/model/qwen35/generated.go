package qwen35

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
)

// shape is a released size.
type shape struct {
	name                                    string
	layers, hidden, intermediate            int
	heads, kvHeads, keyHeads, valueHeads    int
	experts, topK, expertWidth, sharedWidth int
	tied                                    bool
}

var releasedShapes = []shape{
	{name: "0.8b", layers: 24, hidden: 1024, intermediate: 3584, heads: 8, kvHeads: 2, keyHeads: 16, valueHeads: 16, tied: true},
	{name: "2b", layers: 24, hidden: 2048, intermediate: 6144, heads: 8, kvHeads: 2, keyHeads: 16, valueHeads: 16, tied: true},
	{name: "4b", layers: 32, hidden: 2560, intermediate: 9216, heads: 16, kvHeads: 4, keyHeads: 16, valueHeads: 32, tied: true},
	{name: "9b", layers: 32, hidden: 4096, intermediate: 12288, heads: 16, kvHeads: 4, keyHeads: 16, valueHeads: 32},
	{name: "27b", layers: 64, hidden: 5120, intermediate: 17408, heads: 24, kvHeads: 4, keyHeads: 16, valueHeads: 48},
	{
		name: "35b-a3b", layers: 40, hidden: 2048, heads: 16, kvHeads: 2, keyHeads: 16, valueHeads: 32,
		experts: 256, topK: 8, expertWidth: 512, sharedWidth: 512,
	},
}

// Shapes lists the released sizes that Generate knows, the smallest first.
func Shapes() []string {
	names := make([]string, len(releasedShapes))
	for i, s := range releasedShapes {
		names[i] = s.name
	}
	return names
}

// Generate makes a model of a released size with weights that mean nothing: its speed is
// that of the real one, which needs no download to be measured. The weights have the given
// bits of dtype.Affine in groups of 64, or 16 for bf16.
func Generate(name string, bits int, b backend.Backend, o model.Options) (*Model, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for _, s := range releasedShapes {
		if s.name != name {
			continue
		}
		l := &loader{from: &generator{bits: bits}, b: b, o: o}
		m, err := l.model(s.config(), true)
		if err != nil {
			l.free()
		}
		return m, err
	}
	return nil, fmt.Errorf("qwen35: no shape %q, want one of %s", name, strings.Join(Shapes(), ", "))
}

// config is what config.json of that size says.
func (s *shape) config() *config {
	c := &config{
		modelType: "qwen3_5", tied: s.tied, vocab: releasedVocab, hidden: s.hidden, intermediate: s.intermediate,
		heads: s.heads, kvHeads: s.kvHeads, headDim: 256, keyHeads: s.keyHeads, valueHeads: s.valueHeads,
		keyDim: 128, valueDim: 128, kernel: 4, eps: 1e-6, context: 262144, theta: 1e7, rotary: 64,
		experts: s.experts, topK: s.topK, expertWidth: s.expertWidth, sharedWidth: s.sharedWidth, normTopK: true,
		mtpLayers: 1,
	}
	for i := range s.layers {
		c.layers = append(c.layers, (i+1)%4 == 0)
	}
	return c
}

// generator is a source that makes weights up. All matrices are views of the same few bytes.
type generator struct {
	bits          int
	codes         []byte
	scale, biases []byte
}

var _ source = (*generator)(nil)

func (g *generator) find(*Weight) bool          { return true }
func (g *generator) err() error                 { return nil }
func (g *generator) release(*dtype.Matrix) bool { return true }

func (g *generator) matrices(w *Weight) ([]dtype.Matrix, error) {
	m, err := g.matrix(w.Rows, w.Cols)
	if err != nil {
		return nil, fmt.Errorf("qwen35: %s: %w", w.module(), err)
	}
	return slices.Repeat([]dtype.Matrix{m}, w.Count()), nil
}

// matrix is noise of a size that keeps activations near one.
func (g *generator) matrix(rows, cols int) (dtype.Matrix, error) {
	const group = 64
	m := dtype.Matrix{Rows: rows, Cols: cols, Type: dtype.BF16}
	deviation := 1 / math.Sqrt(float64(cols))
	if g.bits == 16 {
		n := 2 * rows * cols
		for i := len(g.codes) / 2; len(g.codes) < n; i++ {
			x := dtype.ToBF16(float32(deviation * noise(i)))
			g.codes = append(g.codes, byte(x), byte(x>>8))
		}
		m.Data = g.codes[:n]
		return m, m.Validate()
	}
	m.Format, m.Type, m.Bits, m.Group, m.ScaleType = dtype.Affine, dtype.Invalid, g.bits, group, dtype.BF16
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
		if v[i] = 1; !strings.Contains(w.Name, "norm") {
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

// PassBytes is the weights that a pass over one row reads: all of the model but the
// embedding, of which it reads one row unless it is the output matrix too, and of the
// experts only those that are chosen.
func (m *Model) PassBytes() int64 {
	total := int64(0)
	for w := range m.weights() {
		if !w.IsMatrix() || w.matrix == &m.embed && !m.cfg.tied {
			continue
		}
		n := (*w.matrix).Bytes()
		if w.Experts > 0 {
			n = n * int64(m.cfg.topK) / int64(w.Experts)
		}
		total += n
	}
	return total
}
