package backend

import (
	"fmt"
	"strings"

	"github.com/foretoken/foretoken/internal/dtype"
)

// The functions of this file check the shapes of operations, the ids of Embed and the rows of Gather for all devices. They panic
// if operands do not fit together. Limits of a device are its own to check. Package remote checks asks, draws and blocks as well.

// refuse panics with the shapes of an operation's tensors.
func refuse(op string, list ...Tensor) {
	var text strings.Builder
	for _, t := range list {
		_, _ = fmt.Fprintf(&text, " %d×%d", t.Rows, t.Cols) // never fails
	}
	panic("backend: shapes of " + op + " do not fit:" + text.String())
}

// alike reports whether two tensors have the same shape.
func alike(a, b Tensor) bool { return a.Rows == b.Rows && a.Cols == b.Cols }

// vector reports whether a tensor is a row of n numbers.
func vector(t Tensor, n int) bool { return t.Rows == 1 && t.Cols == n }

// CheckCopy checks Copy.
func CheckCopy(dst, src Tensor) {
	if dst.Type != src.Type || !alike(dst, src) {
		refuse(fmt.Sprintf("Copy of %v into %v", src.Type, dst.Type), dst, src)
	}
}

// CheckEmbed checks Embed.
func CheckEmbed(dst Tensor, table Weight, ids []int32) {
	if dst.Rows != len(ids) || dst.Cols != table.Cols() {
		refuse(fmt.Sprintf("Embed of %d ids of width %d", len(ids), table.Cols()), dst)
	}
	for _, id := range ids {
		if id < 0 || int(id) >= table.Rows() {
			panic(fmt.Sprintf("backend: Embed of id %d with a table of %d rows", id, table.Rows()))
		}
	}
}

// CheckGather checks Gather.
func CheckGather(dst, x Tensor, rows []int32) {
	if dst.Rows != len(rows) || dst.Cols != x.Cols {
		refuse(fmt.Sprintf("Gather of %d rows", len(rows)), dst, x)
	}
	for _, r := range rows {
		if r < 0 || int(r) >= x.Rows {
			panic(fmt.Sprintf("backend: Gather of row %d of %d", r, x.Rows))
		}
	}
}

// CheckProduct checks one product of MatMul.
func CheckProduct(x Tensor, p *Product) {
	in, out, n := p.W.Cols(), p.W.Rows(), p.W.Count()
	wrong := x.Rows != p.Dst.Rows
	if p.Each {
		wrong = wrong || x.Cols%n != 0 || p.Dst.Cols%n != 0 || x.Cols/n < in || p.Dst.Cols/n < out || p.Bias.Mem != nil || p.Only != nil
	} else {
		wrong = wrong || x.Cols != in || p.Dst.Cols != out || p.Bias.Mem != nil && !vector(p.Bias, out)
	}
	if wrong {
		refuse(fmt.Sprintf("MatMul with %d of %d×%d, each %t, blocks %v", n, out, in, p.Each, p.Only), p.Dst, x, p.Bias)
	}
}

// CheckRMSNorm checks RMSNorm.
func CheckRMSNorm(dst, x, gain Tensor) {
	if !alike(dst, x) || !vector(gain, x.Cols) {
		refuse("RMSNorm", dst, x, gain)
	}
}

// CheckNormAdd checks NormAdd.
func CheckNormAdd(dst, x, gain Tensor) {
	if !alike(dst, x) || !vector(gain, x.Cols) {
		refuse("NormAdd", dst, x, gain)
	}
}

// CheckLayerNorm checks LayerNorm.
func CheckLayerNorm(dst, x, gain, bias Tensor) {
	if !alike(dst, x) || !vector(gain, x.Cols) || !vector(bias, x.Cols) {
		refuse("LayerNorm", dst, x, gain, bias)
	}
}

// CheckGLU checks GLU.
func CheckGLU(dst, gate, up Tensor, f Activation) {
	if !alike(dst, gate) || !alike(up, gate) || f > GELUTanh {
		refuse(fmt.Sprintf("GLU by function %d", f), dst, gate, up)
	}
}

// CheckCap checks Cap.
func CheckCap(x Tensor, c float32) {
	if !(c > 0) {
		refuse(fmt.Sprintf("Cap at %v", c), x)
	}
}

// CheckGELU checks GELU.
func CheckGELU(dst, x Tensor) {
	if !alike(dst, x) {
		refuse("GELU", dst, x)
	}
}

// CheckConvolve checks Convolve.
func CheckConvolve(dst, x Tensor, c *Convolution) {
	taps := c.Base.Rows
	if !alike(dst, x) || dst == x || taps == 0 || c.Base.Cols != x.Cols || c.Delta.Rows != x.Rows ||
		c.Delta.Cols == 0 || c.Delta.Cols%taps != 0 || x.Cols%(c.Delta.Cols/taps) != 0 {
		refuse("Convolve", dst, x, c.Base, c.Delta)
	}
}

// CheckRotate checks Rotate.
func CheckRotate(x, cos, sin Tensor, heads int) {
	if heads < 1 || x.Cols != 2*heads*cos.Cols || cos.Rows != x.Rows || !alike(sin, cos) {
		refuse(fmt.Sprintf("Rotate of %d heads", heads), x, cos, sin)
	}
}

// CheckMix checks Mix.
func CheckMix(dst, q, k, v Tensor, heads int) {
	if heads < 1 || q.Cols%heads != 0 || !alike(dst, q) || k.Cols != q.Cols || !alike(v, k) || q.Rows > 0 && k.Rows == 0 {
		refuse(fmt.Sprintf("Mix of %d heads", heads), dst, q, k, v)
	}
}

// CheckTop checks Top.
func CheckTop(src Tensor, asks []Ask) {
	if src.Type != dtype.F32 || len(asks) != src.Rows {
		refuse(fmt.Sprintf("Top of %v with %d queries", src.Type, len(asks)), src)
	}
}

// CheckAttend checks Attend.
func CheckAttend(dst Tensor, a *Attention, q, k, v Tensor) {
	values, turned, normed := a.KVHeads*a.Values(), a.HeadDim, a.HeadDim
	if a.Latent > 0 {
		values, turned, normed = 0, a.HeadDim-a.Latent, a.Latent
	}
	wrong := a.QNorm.Mem != nil && !vector(a.QNorm, normed) || a.KNorm.Mem != nil && !vector(a.KNorm, normed)
	if reads := k.Mem == nil; reads {
		k.Rows, k.Cols, v.Cols = q.Rows, a.KVHeads*a.HeadDim, values
		wrong = wrong || v.Mem != nil || a.Block || a.Before && a.Window == 1
		v.Rows = k.Rows
	} else {
		wrong = wrong || a.Before
	}
	for _, s := range a.Sections {
		wrong = wrong || s > 2
	}
	if wrong || k.Cols != a.KVHeads*a.HeadDim || v.Cols != values || values > 0 && v.Rows != k.Rows || 2*len(a.Freqs) > turned || a.Heads%a.KVHeads != 0 ||
		q.Rows > 0 && (q.Rows != k.Rows || q.Cols != a.Queries() || dst.Rows != q.Rows || dst.Cols != a.Heads*a.Values()) ||
		a.Latent > 0 && (a.KVHeads != 1 || a.ValueDim != 0 || turned < 0) || a.Sections != nil && len(a.Sections) != len(a.Freqs) {
		refuse(fmt.Sprintf("Attend with %+v", *a), dst, q, k, v)
	}
}

// CheckDeltaNet checks DeltaNet.
func CheckDeltaNet(dst Tensor, d *DeltaNet, in *DeltaInput) {
	rows, values := in.QKV.Rows, d.ValueHeads*d.ValueDim
	if in.QKV.Cols != d.Channels() || in.Z.Rows != rows || in.Z.Cols != values || !alike(dst, in.Z) || in.A.Rows != rows || in.A.Cols != d.ValueHeads ||
		!alike(in.B, in.A) || d.ValueHeads%d.KeyHeads != 0 || d.Conv.Rows != d.Kernel || d.Conv.Cols != d.Channels() ||
		!vector(d.Norm, d.ValueDim) || !vector(d.DecayRate, d.ValueHeads) || !vector(d.DecayBias, d.ValueHeads) {
		refuse(fmt.Sprintf("DeltaNet with %+v", *d), dst, in.QKV, in.Z, in.B, in.A)
	}
}

// CheckExperts checks Experts, and that there are as many experts as are to be chosen.
func CheckExperts(dst, x, router Tensor, e *Experts) {
	n, free := e.Router.Rows(), e.Router.Rows()
	wrong := e.Bias.Mem != nil && !vector(e.Bias, n) || e.PerExpert.Mem != nil && !vector(e.PerExpert, n) || e.Activation > GELUTanh ||
		e.SharedRouter != nil && e.SharedGate == nil || e.SharedGate != nil && (e.SharedUp == nil || e.SharedDown == nil)
	if e.Groups > 1 {
		free = n / e.Groups * e.TopGroups
		wrong = wrong || n%e.Groups != 0 || e.TopGroups > e.Groups
	}
	if wrong || e.TopK > free {
		panic(fmt.Sprintf("backend: choice of %d from %d experts, %d of %d groups, %d biases, %d factors, function %d",
			e.TopK, n, e.TopGroups, e.Groups, e.Bias.Cols, e.PerExpert.Cols, e.Activation))
	}
	fits := func(gate, up, down Weight, count int) bool {
		return gate.Cols() == x.Cols && up.Cols() == x.Cols && up.Rows() == gate.Rows() && down.Cols() == gate.Rows() && down.Rows() == x.Cols &&
			min(gate.Count(), up.Count(), down.Count()) >= count
	}
	if !alike(dst, x) || router.Mem != nil && !alike(router, x) || e.Router.Cols() != x.Cols || !fits(e.Gate, e.Up, e.Down, n) || e.SharedGate != nil && !fits(e.SharedGate, e.SharedUp, e.SharedDown, 1) {
		refuse(fmt.Sprintf("Experts: %d of %d×%d and %d×%d", e.Gate.Count(), e.Gate.Rows(), e.Gate.Cols(), e.Down.Rows(), e.Down.Cols()), dst, x, router)
	}
}

// CheckDraw checks Draw.
func CheckDraw(drawn, logits, tokens Tensor, draws []Draw) {
	n := tokens.Rows
	if drawn.Rows != logits.Rows || drawn.Cols != 3 || len(draws) != logits.Rows || n > 0 && (n > 1 && n != logits.Rows || tokens.Cols != logits.Cols) {
		refuse(fmt.Sprintf("%d draws", len(draws)), drawn, logits, tokens)
	}
}

// CheckEmbedDrawn checks EmbedDrawn.
func CheckEmbedDrawn(dst Tensor, table Weight, drawn Tensor) {
	if dst.Rows != drawn.Rows || dst.Cols != table.Cols() || drawn.Cols < 1 {
		refuse(fmt.Sprintf("EmbedDrawn of width %d", table.Cols()), dst, drawn)
	}
}

// CheckCandidates checks Candidates.
func CheckCandidates(ids, best, logits Tensor, draws []Draw) {
	if ids.Rows != logits.Rows || !alike(ids, best) || len(draws) != logits.Rows || ids.Cols < 1 {
		refuse(fmt.Sprintf("Candidates of %d draws", len(draws)), ids, best, logits)
	}
}

// CheckScore checks Score.
func CheckScore(scores, left, mid, right Tensor) {
	if left.Rows != scores.Rows || !alike(left, mid) || right.Rows != scores.Cols*scores.Rows || right.Cols != left.Cols {
		refuse("Score", scores, left, mid, right)
	}
}
