package backendtest

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// faulty is a device of which some methods are replaced.
type faulty struct {
	*Opaque

	free       func() int64
	usage      func() []backend.Usage
	alloc      func(t dtype.Type, rows, cols int) (backend.Tensor, error)
	release    func(t backend.Tensor)
	load       func(c backend.Compute, stack []dtype.Matrix) (backend.Weight, error)
	unload     func(w backend.Weight)
	write      func(dst backend.Tensor, src []float32) error
	fill       func(dst backend.Tensor, x float32)
	host       func(src backend.Tensor) ([]float32, error)
	top        func(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error)
	copy       func(dst, src backend.Tensor)
	readBytes  func(dst []byte, src backend.Tensor) error
	writeBytes func(dst backend.Tensor, src []byte) error
	embed      func(dst backend.Tensor, table backend.Weight, ids []int32, factor float32)
	draw       func(ids, logits, tokens backend.Tensor, draws []backend.Draw)
	candidates func(ids, best, logits backend.Tensor, draws []backend.Draw)
	score      func(scores, left, mid, right backend.Tensor)
	embedDrawn func(dst backend.Tensor, table backend.Weight, ids backend.Tensor, factor float32)
	gather     func(dst, x backend.Tensor, rows []int32)
	matmul     func(x backend.Tensor, products []backend.Product)
	rmsnorm    func(dst, x, gain backend.Tensor, eps float32)
	layerNorm  func(dst, x, gain, bias backend.Tensor, eps float32)
	normAdd    func(dst, x, gain backend.Tensor, eps, scale float32)
	glu        func(dst, gate, up backend.Tensor, f backend.Activation)
	cap        func(x backend.Tensor, c float32)
	gelu       func(dst, x backend.Tensor, tanh bool)
	convolve   func(dst, x backend.Tensor, c *backend.Convolution, batch []backend.Seq)
	rotate     func(x, cos, sin backend.Tensor, heads int)
	mix        func(dst, q, k, v backend.Tensor, heads int, scale float32)
	experts    func(dst, x, router backend.Tensor, e *backend.Experts)
	attend     func(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq)
	pass       func(p backend.Pass, queue func())
	deltaNet   func(dst backend.Tensor, d *backend.DeltaNet, at backend.Place, in backend.DeltaInput, batch []backend.Seq)
}

// or is f, or what the device does.
func or[F any](f F, missing bool, otherwise F) F {
	if missing {
		return otherwise
	}
	return f
}

func (f *faulty) FreeMemory() int64 { return or(f.free, f.free == nil, f.Opaque.FreeMemory)() }

func (f *faulty) Usage() []backend.Usage { return or(f.usage, f.usage == nil, f.Opaque.Usage)() }

func (f *faulty) Alloc(t dtype.Type, rows, cols int) (backend.Tensor, error) {
	return or(f.alloc, f.alloc == nil, f.Opaque.Alloc)(t, rows, cols)
}

func (f *faulty) Free(t backend.Tensor) { or(f.release, f.release == nil, f.Opaque.Free)(t) }

func (f *faulty) Load(c backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	if f.load != nil {
		return f.load(c, stack)
	}
	return f.Opaque.Load(c, stack...)
}

func (f *faulty) Unload(w backend.Weight) { or(f.unload, f.unload == nil, f.Opaque.Unload)(w) }

func (f *faulty) Write(dst backend.Tensor, src []float32) error {
	return or(f.write, f.write == nil, f.Opaque.Write)(dst, src)
}

func (f *faulty) Fill(dst backend.Tensor, x float32) {
	or(f.fill, f.fill == nil, f.Opaque.Fill)(dst, x)
}

func (f *faulty) Host(src backend.Tensor) ([]float32, error) {
	return or(f.host, f.host == nil, f.Opaque.Host)(src)
}

func (f *faulty) Top(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
	return or(f.top, f.top == nil, f.Opaque.Top)(src, asks)
}

func (f *faulty) Copy(dst, src backend.Tensor) {
	or(f.copy, f.copy == nil, f.Opaque.Copy)(dst, src)
}

func (f *faulty) ReadBytes(dst []byte, src backend.Tensor) error {
	return or(f.readBytes, f.readBytes == nil, f.Opaque.ReadBytes)(dst, src)
}

func (f *faulty) WriteBytes(dst backend.Tensor, src []byte) error {
	return or(f.writeBytes, f.writeBytes == nil, f.Opaque.WriteBytes)(dst, src)
}

func (f *faulty) Embed(dst backend.Tensor, table backend.Weight, ids []int32, factor float32) {
	or(f.embed, f.embed == nil, f.Opaque.Embed)(dst, table, ids, factor)
}

func (f *faulty) Draw(ids, logits, tokens backend.Tensor, draws []backend.Draw) {
	or(f.draw, f.draw == nil, f.Opaque.Draw)(ids, logits, tokens, draws)
}

func (f *faulty) Candidates(ids, best, logits backend.Tensor, draws []backend.Draw) {
	or(f.candidates, f.candidates == nil, f.Opaque.Candidates)(ids, best, logits, draws)
}

func (f *faulty) Score(scores, left, mid, right backend.Tensor) {
	or(f.score, f.score == nil, f.Opaque.Score)(scores, left, mid, right)
}

func (f *faulty) EmbedDrawn(dst backend.Tensor, table backend.Weight, ids backend.Tensor, factor float32) {
	or(f.embedDrawn, f.embedDrawn == nil, f.Opaque.EmbedDrawn)(dst, table, ids, factor)
}

func (f *faulty) Gather(dst, x backend.Tensor, rows []int32) {
	or(f.gather, f.gather == nil, f.Opaque.Gather)(dst, x, rows)
}

func (f *faulty) MatMul(x backend.Tensor, products ...backend.Product) {
	if f.matmul != nil {
		f.matmul(x, products)
		return
	}
	f.Opaque.MatMul(x, products...)
}

func (f *faulty) RMSNorm(dst, x, gain backend.Tensor, eps float32) {
	or(f.rmsnorm, f.rmsnorm == nil, f.Opaque.RMSNorm)(dst, x, gain, eps)
}

func (f *faulty) LayerNorm(dst, x, gain, bias backend.Tensor, eps float32) {
	or(f.layerNorm, f.layerNorm == nil, f.Opaque.LayerNorm)(dst, x, gain, bias, eps)
}

func (f *faulty) GELU(dst, x backend.Tensor, tanh bool) {
	or(f.gelu, f.gelu == nil, f.Opaque.GELU)(dst, x, tanh)
}

func (f *faulty) Convolve(dst, x backend.Tensor, c *backend.Convolution, batch []backend.Seq) {
	or(f.convolve, f.convolve == nil, f.Opaque.Convolve)(dst, x, c, batch)
}

func (f *faulty) Rotate(x, cos, sin backend.Tensor, heads int) {
	or(f.rotate, f.rotate == nil, f.Opaque.Rotate)(x, cos, sin, heads)
}

func (f *faulty) Mix(dst, q, k, v backend.Tensor, heads int, scale float32) {
	or(f.mix, f.mix == nil, f.Opaque.Mix)(dst, q, k, v, heads, scale)
}

func (f *faulty) NormAdd(dst, x, gain backend.Tensor, eps, scale float32) {
	or(f.normAdd, f.normAdd == nil, f.Opaque.NormAdd)(dst, x, gain, eps, scale)
}

func (f *faulty) GLU(dst, gate, up backend.Tensor, kind backend.Activation) {
	or(f.glu, f.glu == nil, f.Opaque.GLU)(dst, gate, up, kind)
}

func (f *faulty) Cap(x backend.Tensor, c float32) { or(f.cap, f.cap == nil, f.Opaque.Cap)(x, c) }

func (f *faulty) Experts(dst, x, router backend.Tensor, e *backend.Experts) {
	or(f.experts, f.experts == nil, f.Opaque.Experts)(dst, x, router, e)
}

func (f *faulty) Attend(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
	or(f.attend, f.attend == nil, f.Opaque.Attend)(dst, a, at, q, k, v, batch)
}

func (f *faulty) DeltaNet(dst backend.Tensor, d *backend.DeltaNet, at backend.Place, in backend.DeltaInput, batch []backend.Seq) {
	or(f.deltaNet, f.deltaNet == nil, f.Opaque.DeltaNet)(dst, d, at, in, batch)
}

func (f *faulty) Pass(p backend.Pass, queue func()) {
	or(f.pass, f.pass == nil, f.Opaque.Pass)(p, queue)
}
