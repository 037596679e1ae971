package remote

import "github.com/foretoken/foretoken/internal/backend"

// The operations of backend.Backend. Each is checked here, and again on the node.

// Fill sets all numbers of dst.
func (d *Device) Fill(dst backend.Tensor, x float32) {
	d.do(operation{kind: opFill, t: operands(dst), x: x})
}

// Copy copies src to dst.
func (d *Device) Copy(dst, src backend.Tensor) {
	d.do(operation{kind: opCopy, t: operands(dst, src)})
}

// CopyEach implements backend.Copier.
func (d *Device) CopyEach(dst, src []backend.Tensor) {
	o := operation{kind: opCopyEach}
	for i := range dst {
		o.copies = append(o.copies, dst[i], src[i])
	}
	d.do(o)
}

// Embed implements backend.Ops, as all that follows.
func (d *Device) Embed(dst backend.Tensor, table backend.Weight, ids []int32) {
	d.do(operation{kind: opEmbed, t: operands(dst), table: table, list: ids})
}

func (d *Device) Gather(dst, x backend.Tensor, rows []int32) {
	d.do(operation{kind: opGather, t: operands(dst, x), list: rows})
}

func (d *Device) MatMul(x backend.Tensor, products ...backend.Product) {
	d.do(operation{kind: opMatMul, t: operands(x), products: products})
}

func (d *Device) RMSNorm(dst, x, gain backend.Tensor, eps float32) {
	d.do(operation{kind: opRMSNorm, t: operands(dst, x, gain), x: eps})
}

func (d *Device) LayerNorm(dst, x, gain, bias backend.Tensor, eps float32) {
	d.do(operation{kind: opLayerNorm, t: operands(dst, x, gain, bias), x: eps})
}

func (d *Device) SwiGLU(dst, gate, up backend.Tensor) {
	d.do(operation{kind: opSwiGLU, t: operands(dst, gate, up)})
}

func (d *Device) GELU(dst, x backend.Tensor, tanh bool) {
	d.do(operation{kind: opGELU, t: operands(dst, x), flag: tanh})
}

func (d *Device) Experts(dst, x backend.Tensor, e *backend.Experts) {
	d.do(operation{kind: opExperts, t: operands(dst, x), experts: e})
}

func (d *Device) Attend(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
	d.do(operation{kind: opAttend, t: operands(dst, q, k, v), attention: a, at: at, batch: batch})
}

func (d *Device) Convolve(dst, x backend.Tensor, c *backend.Convolution, batch []backend.Seq) {
	bare := make([]backend.Seq, len(batch)) // a convolution has no state, and that of others may be elsewhere
	for i := range batch {
		bare[i].First, bare[i].N = batch[i].First, batch[i].N
	}
	d.do(operation{kind: opConvolve, t: operands(dst, x), conv: c, batch: bare})
}

func (d *Device) Rotate(x, cos, sin backend.Tensor, heads int) {
	d.do(operation{kind: opRotate, t: operands(x, cos, sin), n: heads})
}

func (d *Device) Mix(dst, q, k, v backend.Tensor, heads int, scale float32) {
	d.do(operation{kind: opMix, t: operands(dst, q, k, v), n: heads, x: scale})
}

func (d *Device) DeltaNet(dst backend.Tensor, n *backend.DeltaNet, at backend.Place, in backend.DeltaInput, batch []backend.Seq) {
	d.do(operation{kind: opDeltaNet, t: operands(dst, in.QKV, in.Z, in.B, in.A), delta: n, at: at, batch: batch})
}

// Draw implements backend.Drawer, as all that follows.
func (d drawing) Draw(drawn, logits, tokens backend.Tensor, draws []backend.Draw) {
	d.do(operation{kind: opDraw, t: operands(drawn, logits, tokens), draws: draws})
}

func (d drawing) EmbedDrawn(dst backend.Tensor, table backend.Weight, drawn backend.Tensor) {
	d.do(operation{kind: opEmbedDrawn, t: operands(dst, drawn), table: table})
}

func (d drawing) Candidates(ids, best, logits backend.Tensor, draws []backend.Draw) {
	d.do(operation{kind: opCandidates, t: operands(ids, best, logits), draws: draws})
}

func (d drawing) Score(scores, left, mid, right backend.Tensor) {
	d.do(operation{kind: opScore, t: operands(scores, left, mid, right)})
}

func operands(list ...backend.Tensor) (t [5]backend.Tensor) {
	copy(t[:], list)
	return t
}
