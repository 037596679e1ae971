// Package backend is the boundary between a model and a device: memory, weights and
// the operations of models. It does not know layers, sequences or files. Devices
// register themselves here by the names that users type.
package backend

import "github.com/foretoken/foretoken/internal/dtype"

// Compute is how matrix products with quantized weights are computed. Each is exact
// by itself: the same bits for any batch and speculation. Between the two there are tolerances.
type Compute uint8

const (
	// Int8 quantizes activations to 8 bits per weight group and multiplies integers.
	Int8 Compute = iota
	// Float32 uses every weight as its float32 value and keeps activations in float32.
	Float32
)

// String is the name a user types for c.
func (c Compute) String() string {
	if c == Float32 {
		return "float32"
	}
	return "int8"
}

// Backend is one device. Memory calls may fail. Ops queue work and never fail: a device
// error is stored and returned by the next ReadBytes, Host or Top. Wrong shapes panic, since only our
// own mistakes make them. A Backend is used by one goroutine at a time.
type Backend interface {
	// Name is the device and the instruction set in use, for people.
	Name() string
	// FreeMemory is about how many bytes Alloc and Load may still take.
	FreeMemory() int64
	// Alloc returns zeroed memory of type F32, F16 or I8.
	Alloc(t dtype.Type, rows, cols int) (Tensor, error)
	// Free frees memory of Alloc; the whole tensor, not a view of it.
	Free(Tensor)
	// Load brings matrices of one shape and format to the device as one Weight. It reads
	// them before it returns, so the files they alias may be released afterwards.
	Load(c Compute, stack ...dtype.Matrix) (Weight, error)
	// Unload frees a weight's memory.
	Unload(Weight)
	// Write copies numbers of the host into dst, row after row.
	Write(dst Tensor, src []float32) error
	// Fill sets all numbers of dst.
	Fill(dst Tensor, x float32)
	// Host is a view of src's numbers, row after row; src has no gaps between its rows. It
	// waits for queued work and is valid until the next call of the device.
	Host(src Tensor) ([]float32, error)
	// Top returns the highest numbers of each row of src, a tensor of type F32, one ask per row: a
	// row of logits is a megabyte, and most requests need a few of them. It waits for queued
	// work; the answers are valid until the next call of the device.
	Top(src Tensor, asks []Ask) ([]Best, error)
	// Copy copies src to dst, which has the same type and shape.
	Copy(dst, src Tensor)
	// ReadBytes copies src's numbers to the host, row after row, little-endian; dst has their
	// length. The bytes are the same on every device, so that one can continue with another's
	// results. It waits for queued work.
	ReadBytes(dst []byte, src Tensor) error
	// WriteBytes is the reverse of ReadBytes.
	WriteBytes(dst Tensor, src []byte) error
	// Pass runs queue, which queues the operations of one call of a network: Ops, Copy and
	// Fill. A device that has recorded a pass of the same network and shape may replay it
	// instead, with the lists of p in place of the recorded ones. So the lists of
	// operations are those of p: Embed's ids, the batch of Attend, Convolve and DeltaNet, Gather's
	// rows, MatMul's Only. Everything else is the same in all passes of a shape, until memory or a
	// weight that they use is freed.
	Pass(p Pass, queue func())
	// Ops are the operations of this device.
	Ops
	// Close frees all that is left.
	Close() error
}

// Ops are the operations of models, each as large as families have in common:
// differences are options. Rows of all sequences follow one another; a Seq says
// which rows belong to which. A row's result depends neither on the other rows of the call nor on
// their number. Package backendtest checks that for every device.
type Ops interface {
	// Embed sets row i of dst to row ids[i] of table, multiplied with factor; 0: 1.
	Embed(dst Tensor, table Weight, ids []int32, factor float32)
	// Gather sets row i of dst to row rows[i] of x.
	Gather(dst, x Tensor, rows []int32)
	// MatMul multiplies x, [rows, in], with each of the products' weights.
	MatMul(x Tensor, products ...Product)
	// RMSNorm normalizes each row of x and multiplies it with gain, [1, cols].
	RMSNorm(dst, x, gain Tensor, eps float32)
	// NormAdd adds the RMSNorm of x to dst and multiplies the sum with scale:
	// dst = (dst + RMSNorm(x))*scale.
	NormAdd(dst, x, gain Tensor, eps, scale float32)
	// LayerNorm normalizes each row of x to mean 0 and variance 1 (biased), multiplies it with gain
	// and adds bias, both [1, cols]. dst may be x.
	LayerNorm(dst, x, gain, bias Tensor, eps float32)
	// GLU sets dst to f(gate)*up. dst may be gate or up.
	GLU(dst, gate, up Tensor, f Activation)
	// GELU sets dst to x·Φ(x), Φ being the normal distribution; with tanh to its approximation
	// x(1+tanh(√(2/π)(x+0.044715x³)))/2. dst may be x.
	GELU(dst, x Tensor, tanh bool)
	// Cap sets the numbers of x to c·tanh(x/c), in place. Minus infinity stays: it stands for what was not
	// computed.
	Cap(x Tensor, c float32)
	// Experts adds the answer of the chosen experts and the shared one for x to dst. The router's
	// input is router, which is like x; the zero Tensor: x.
	Experts(dst, x, router Tensor, e *Experts)
	// Attend is attention from the projections to the input of the output projection: norms,
	// rotation, appending keys and values, attention, gate. q is [rows, a.Queries()], k is
	// [rows, KVHeads*HeadDim], v is [rows, KVHeads*ValueDim], dst is [rows, Heads*a.Values()].
	// Without queries, that is with a q and a dst of no rows, it only appends. Without keys, that is
	// with the zero Tensor as k and v, it only reads: the keys and values are those that another layer
	// has appended at the same place, of the same widths.
	Attend(dst Tensor, a *Attention, at Place, q, k, v Tensor, batch []Seq)
	// Convolve is a short convolution along the rows of each sequence in the call. dst and x are
	// [rows, cols] and do not overlap.
	Convolve(dst, x Tensor, c *Convolution, batch []Seq)
	// Rotate turns the pairs (i, i+dim/2) of each head of x, [rows, heads*dim], in place. The cosine
	// and the sine of a row's angle of pair i are in its column i of cos and sin, [rows, dim/2].
	Rotate(x, cos, sin Tensor, heads int)
	// Mix is attention without mask and cache: every row of q sees all rows of k and v. q and dst
	// are [rows, heads*dim], k and v are [n, heads*dim]; scores are multiplied with scale. A row's
	// result does not depend on the other rows of q, nor a head's on the other heads. dst may be q.
	// A device may rearrange all of k and v first, so a caller that splits the work calls it for some
	// heads, and for fewer than n rows only if one head is too much.
	Mix(dst, q, k, v Tensor, heads int, scale float32)
	// DeltaNet is a Gated DeltaNet layer from the projections to the input of the output
	// projection: convolution, decay, delta rule, gated norm.
	DeltaNet(dst Tensor, d *DeltaNet, at Place, in DeltaInput, batch []Seq)
}

// Activation is the function of a gate.
type Activation uint8

const (
	// SiLU is x·sigmoid(x).
	SiLU Activation = iota
	// GELUTanh is GELU's approximation by tanh.
	GELUTanh
)

// Product is one result of a MatMul: Dst = x·Wᵀ, or Dst += x·Wᵀ; Bias is added last.
type Product struct {
	Dst  Tensor // [rows, out]
	W    Weight // [out, in]
	Bias Tensor // [1, out]; the zero Tensor: none
	Add  bool
	// Only lists the blocks of RowBlock rows of W to compute, ascending; the other columns
	// of Dst are unchanged. Nil: all.
	Only []int32
	// Each is the product of every head with its own matrix of the stack W.
	// The columns of x and of Dst are cut into as many blocks as W has matrices: matrix i
	// multiplies the first in columns of block i of x into the first out columns of block i of
	// Dst, whose other columns are unchanged. There is neither Bias nor Only.
	Each bool
}

// RowBlock is how many rows of a weight are computed together at least.
const RowBlock = 16

// Weight is a matrix, or a stack of equal ones, in a backend's own layout.
type Weight interface {
	Rows() int
	Cols() int
	Count() int // matrices in the stack
	Bytes() int64
}

// Memory is a piece of a device's memory. Only its backend accesses the contents.
type Memory interface{ Bytes() int64 }

// Tensor is a view of a device's memory: Rows rows of Cols numbers, Stride numbers apart,
// beginning Offset numbers into Mem. The zero Tensor means no tensor.
type Tensor struct {
	Type                       dtype.Type
	Rows, Cols, Stride, Offset int
	Mem                        Memory
}

// RowRange is the view of rows [from, to).
func (t Tensor) RowRange(from, to int) Tensor {
	if from < 0 || to < from || to > t.Rows {
		panic("backend: row range outside of the tensor")
	}
	t.Offset += from * t.Stride
	t.Rows = to - from
	return t
}

// ColRange is the view of columns [from, to).
func (t Tensor) ColRange(from, to int) Tensor {
	if from < 0 || to < from || to > t.Cols {
		panic("backend: column range outside of the tensor")
	}
	t.Offset += from
	t.Cols = to - from
	return t
}

// Copier is a device that copies to many places in one operation.
type Copier interface {
	// CopyEach is Copy of each src to the dst of the same number; none of them overlaps another.
	CopyEach(dst, src []Tensor)
}

// CopyEach copies each src to the dst of the same number. None of them may overlap another.
func CopyEach(b Backend, dst, src []Tensor) {
	if c, ok := b.(Copier); ok && len(dst) > 1 {
		c.CopyEach(dst, src)
		return
	}
	for i := range dst {
		b.Copy(dst[i], src[i])
	}
}
