package bench

import (
	"cmp"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// timed is a backend that knows how long each of its operations took, and how much
// arithmetic there was in matrix products. It is right for devices that do not queue work.
type timed struct {
	backend.Backend
	spent map[string]time.Duration
	ops   float64 // multiplications and additions
}

func newTimed(b backend.Backend) *timed {
	return &timed{Backend: b, spent: map[string]time.Duration{}}
}

// reset forgets.
func (t *timed) reset() {
	clear(t.spent)
	t.ops = 0
}

// multiplied books a product of rows rows with w.
func (t *timed) multiplied(rows int, w backend.Weight) {
	t.ops += 2 * float64(rows) * float64(w.Rows()) * float64(w.Cols())
}

// since books the time from start on.
func (t *timed) since(op string, start time.Time) { t.spent[op] += time.Since(start) }

// At implements backend.Parted, as the two that follow do: of two devices as one both are timed.
func (t *timed) At(p backend.Part) backend.Backend { return backend.At(t.Backend, p) }

func (t *timed) AllocParts(x dtype.Type, parts []backend.Part, cols []int) (backend.Tensor, error) {
	return backend.AllocParts(t.Backend, x, parts, cols)
}

func (t *timed) FreeParts(parts []backend.Part, cols []int) int64 {
	return backend.FreeParts(t.Backend, parts, cols)
}

func (t *timed) Embed(dst backend.Tensor, table backend.Weight, ids []int32, factor float32) {
	defer t.since("embed", time.Now())
	t.Backend.Embed(dst, table, ids, factor)
}

func (t *timed) Gather(dst, x backend.Tensor, rows []int32) {
	defer t.since("gather", time.Now())
	t.Backend.Gather(dst, x, rows)
}

func (t *timed) MatMul(x backend.Tensor, products ...backend.Product) {
	defer t.since("matmul", time.Now())
	for _, p := range products {
		t.multiplied(x.Rows, p.W)
	}
	t.Backend.MatMul(x, products...)
}

func (t *timed) RMSNorm(dst, x, gain backend.Tensor, eps float32) {
	defer t.since("norm", time.Now())
	t.Backend.RMSNorm(dst, x, gain, eps)
}

func (t *timed) NormAdd(dst, x, gain backend.Tensor, eps, scale float32) {
	defer t.since("norm", time.Now())
	t.Backend.NormAdd(dst, x, gain, eps, scale)
}

func (t *timed) LayerNorm(dst, x, gain, bias backend.Tensor, eps float32) {
	defer t.since("norm", time.Now())
	t.Backend.LayerNorm(dst, x, gain, bias, eps)
}

func (t *timed) GELU(dst, x backend.Tensor, tanh bool) {
	defer t.since("gelu", time.Now())
	t.Backend.GELU(dst, x, tanh)
}

func (t *timed) Convolve(dst, x backend.Tensor, c *backend.Convolution, batch []backend.Seq) {
	defer t.since("convolution", time.Now())
	t.Backend.Convolve(dst, x, c, batch)
}

func (t *timed) Rotate(x, cos, sin backend.Tensor, heads int) {
	defer t.since("rotation", time.Now())
	t.Backend.Rotate(x, cos, sin, heads)
}

func (t *timed) Mix(dst, q, k, v backend.Tensor, heads int, scale float32) {
	defer t.since("mix", time.Now())
	t.Backend.Mix(dst, q, k, v, heads, scale)
}

func (t *timed) GLU(dst, gate, up backend.Tensor, f backend.Activation) {
	defer t.since("glu", time.Now())
	t.Backend.GLU(dst, gate, up, f)
}

func (t *timed) Cap(x backend.Tensor, c float32) {
	defer t.since("cap", time.Now())
	t.Backend.Cap(x, c)
}

func (t *timed) Experts(dst, x, router backend.Tensor, e *backend.Experts) {
	defer t.since("experts", time.Now())
	for _, w := range []backend.Weight{e.Gate, e.Up, e.Down} {
		t.multiplied(x.Rows*e.TopK, w)
	}
	for _, w := range []backend.Weight{e.Router, e.SharedRouter, e.SharedGate, e.SharedUp, e.SharedDown} {
		if w != nil {
			t.multiplied(x.Rows, w)
		}
	}
	t.Backend.Experts(dst, x, router, e)
}

func (t *timed) Attend(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
	defer t.since("attention", time.Now())
	t.Backend.Attend(dst, a, at, q, k, v, batch)
}

func (t *timed) DeltaNet(dst backend.Tensor, d *backend.DeltaNet, at backend.Place, in backend.DeltaInput, batch []backend.Seq) {
	defer t.since("deltanet", time.Now())
	t.Backend.DeltaNet(dst, d, at, in, batch)
}

func (t *timed) Top(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
	defer t.since("top", time.Now())
	return t.Backend.Top(src, asks)
}

// Share is the part of a pass that one operation takes.
type Share struct {
	Op   string  `json:"op"`
	Part float64 `json:"part"` // of the whole pass
}

// shares are the parts of whole, the largest first; what is left is "other".
func (t *timed) shares(whole time.Duration) []Share {
	list := make([]Share, 0, len(t.spent)+1)
	rest := whole
	for op, d := range t.spent {
		list = append(list, Share{op, d.Seconds() / whole.Seconds()})
		rest -= d
	}
	list = append(list, Share{"other", rest.Seconds() / whole.Seconds()})
	slices.SortFunc(list, func(a, b Share) int { return cmp.Compare(b.Part, a.Part) })
	return list
}
