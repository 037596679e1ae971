package backend

import (
	"math"

	"github.com/foretoken/foretoken/internal/dtype"
)

// PageTokens is how many positions a page has. Attention is summed page by page, so it is
// also where attention is cut: at positions fixed for all batches.
const PageTokens = 64

// KeyBytes is the bytes of a page for PageTokens positions of heads rows of width numbers as keys.
// They are [heads, PageTokens, width]. In I8 rows are padded to whole groups of CodedGroup codes,
// each of which is stored with 128 added, and a head's rows are followed by their scales in
// float32, [groups, PageTokens]: a number is its code times its group's scale.
//
// In I4 the codes of a group, as they are stored in I8, are rounded to 16 levels in each of its halves:
// level i is low + i*step. A byte has number i in its low bits and number CodedGroup/2+i in its high bits.
// Between codes and scales are step and low of the first half and of the second, [groups, PageTokens, 4].
func KeyBytes(t dtype.Type, heads, width int) int {
	groups := (width + CodedGroup - 1) / CodedGroup
	switch t {
	case dtype.I8:
		return heads * PageTokens * groups * (CodedGroup + dtype.F32.Size())
	case dtype.I4:
		return heads * PageTokens * groups * (CodedGroup/2 + 4 + dtype.F32.Size())
	}
	return heads * PageTokens * width * t.Size()
}

// ValueBytes is KeyBytes of values. In I8 they are stored by column, [heads, width, PageTokens], the
// width padded to a multiple of 16, and one scale for each position follows them.
//
// In I4 the width is padded to whole groups of CodedGroup columns, and codes have 128 added before they are
// rounded. A group is [CodedGroup/2, PageTokens], two columns in a byte as two numbers of a key are, and
// then [4, PageTokens]: step and low of its halves.
func ValueBytes(t dtype.Type, heads, width int) int {
	switch {
	case width == 0:
		return 0
	case t == dtype.I8:
		return heads * PageTokens * ((width+15)/16*16 + dtype.F32.Size())
	case t == dtype.I4:
		return heads * PageTokens * ((width+CodedGroup-1)/CodedGroup*(CodedGroup/2+4) + dtype.F32.Size())
	}
	return heads * PageTokens * width * t.Size()
}

// LatentBytes is KeyBytes of rows that are keys, or keys and values in one. In I8 and I4 they are laid
// out as keys are, and have one scale for each position.
func LatentBytes(t dtype.Type, width int) int {
	if !CodedPages(t) || width == 0 {
		return KeyBytes(t, 1, width)
	}
	groups := (width + CodedGroup - 1) / CodedGroup
	return KeyBytes(t, 1, width) - (groups-1)*PageTokens*dtype.F32.Size()
}

// CodedPages reports whether pages whose numbers have type t are attended to with integers.
func CodedPages(t dtype.Type) bool { return t == dtype.I8 || t == dtype.I4 }

// CodedGroup is how many numbers of a key have one scale in I8 and I4.
const CodedGroup = 64

// Seq is the rows of one sequence in a call, and its state.
type Seq struct {
	First, N int // rows [First, First+N) of the call
	Pos      int // slot of the first of them: how many tokens came before it
	Drafts   int // how many of the last rows are draft tokens, which may be rejected
	Accepted int // draft tokens of the former call that were accepted and are not yet in Delta's State

	// Positions are the rotations of the rows; nil: the slot, on all three axes. See
	// Attention.Sections.
	Positions [][3]int32

	Pages   []Tensor    // PageTokens positions each, of all layers whose memory grows with the sequence: bytes, of type I8
	Windows []Window    // the pages of other layers
	Delta   []Recurrent // one per DeltaNet layer
}

// Window is the pages of layers with one window. The first ones were released: no row of this call or of a later one sees them.
type Window struct {
	First int      // number of released pages
	Pages []Tensor // the pages behind them, as Seq.Pages
}

// Table is the pages of a layer, and the number of the first.
func (s *Seq) Table(at *Place) (first int, pages []Tensor) {
	if at.Window == 0 {
		return 0, s.Pages
	}
	w := &s.Windows[at.Window-1]
	return w.First, w.Pages
}

// AllPages yields the pages of all layers.
func (s *Seq) AllPages(yield func(Tensor) bool) {
	for i := -1; i < len(s.Windows); i++ {
		list := s.Pages
		if i >= 0 {
			list = s.Windows[i].Pages
		}
		for _, t := range list {
			if !yield(t) {
				return
			}
		}
	}
}

// Input is rows that a model is fed in place of embedded tokens, those of a part of a sequence
// from At on.
type Input struct {
	At   int
	Rows Tensor // [n, width], float32
}

// Place is the location of one layer's state in every Seq of a model: a part of each page, or a
// Recurrent. A device adds Page to the addresses of its page table.
type Place struct {
	Type   dtype.Type // of the numbers in pages: F32, F16, I8 or I4
	Window int        // the layer's pages: Seq.Pages if 0, else Seq.Windows[Window-1]
	Page   int        // first byte of a page that is the layer's
	Delta  int        // index of the layer's Recurrent
}

// Attention is a layer of softmax attention. The zero value of an option is its absence.
//
// Its part of a page is its keys, [KVHeads, PageTokens, HeadDim], and then its values,
// [KVHeads, PageTokens, ValueDim]; with Latent it is the first Latent numbers of its keys and
// then the rest. KeyBytes, ValueBytes and LatentBytes have their formats.
type Attention struct {
	Heads, KVHeads int
	HeadDim        int // numbers of a query and of a key
	ValueDim       int // numbers of a value; 0: HeadDim
	// Latent is of layers with one key for all heads, whose first Latent numbers are also the
	// value: KVHeads is 1, ValueDim is 0 and there is no v.
	Latent int
	// Gate has every head's query followed by its gate, ValueDim numbers: the head's answer is
	// multiplied with their sigmoid.
	Gate bool

	QNorm, KNorm Tensor // [1, HeadDim], with Latent [1, Latent]: effective gains
	Eps          float32

	// Freqs is the rotation per position of the pairs (i, i+len(Freqs)) of queries and keys;
	// with Latent i counts from number Latent on. Dimensions that are in no pair stay.
	Freqs []float32
	// Interleaved rotates the pairs (2i, 2i+1) instead.
	Interleaved bool
	// Turn is the factor of the cosines and sines of the rotation; 0: 1.
	Turn float32
	// Sections says which of its row's three positions rotates pair i; nil: the first.
	Sections []uint8

	Scale  float32 // of scores; 0: 1/sqrt(HeadDim)
	Window int     // how many positions a row sees up to its own, its own included; 0: all
	// Block has the rows of a sequence in a call see each other both ways, as those of a block drafter
	// do. With Window a row sees as many positions from its own on, its own included, as up to it.
	//
	// The rows' keys and values are appended as ever, behind the context. The next call at the same
	// Pos overwrites them, as it does those of rejected drafts, so they are never part of the context.
	// The layer alone decides, not the call or the sequence: passes are recorded for a network, and the
	// layers of one drafter differ. The result of a row depends on N of its sequence.
	Block bool
	// Before has a row see only the positions before its own. It is of drafters that read the memory of
	// another model: their row stands for the token that follows it. The call has no keys. A row sees one
	// position at least: the first of a sequence has no such call, and a Window is 2 or more.
	Before bool
	// Rows is the expected number of rows of a sequence in a call with queries, 0 if any may come. Devices choose code by it,
	// with the same bits.
	Rows int
}

// Sees is the range of positions [from, to) that row i of a sequence sees: one range, so devices
// compute causal rows, windows and blocks by the same code.
func (a *Attention) Sees(s *Seq, i int) (from, to int) {
	pos := s.Pos + i
	if a.Window > 0 {
		from = max(0, pos+1-a.Window)
	}
	return from, min(s.Pos+s.N, pos+a.Ahead())
}

// Ahead is how many positions of its sequence's rows in the call a row sees from its own on, its own
// included: 1, none of Before, or more of Block.
func (a *Attention) Ahead() int {
	switch {
	case a.Before:
		return 0
	case !a.Block:
		return 1
	case a.Window == 0:
		return MaxWindow
	}
	return min(a.Window, MaxWindow)
}

// MaxWindow is more positions than a sequence has.
const MaxWindow = 1 << 28

// Values is the numbers of a value, for both layouts.
func (a *Attention) Values() int {
	switch {
	case a.Latent > 0:
		return a.Latent
	case a.ValueDim > 0:
		return a.ValueDim
	}
	return a.HeadDim
}

// PageBytes is the layer's part of a page whose numbers have type t.
func (a *Attention) PageBytes(t dtype.Type) int {
	if a.Latent > 0 {
		return LatentBytes(t, a.Latent) + LatentBytes(t, a.HeadDim-a.Latent)
	}
	return KeyBytes(t, a.KVHeads, a.HeadDim) + ValueBytes(t, a.KVHeads, a.Values())
}

// Queries is the numbers of a row of queries, gates included.
func (a *Attention) Queries() int {
	n := a.HeadDim
	if a.Gate {
		n += a.Values()
	}
	return a.Heads * n
}

// ScoreScale is the factor of the product of a query and a key.
func (a *Attention) ScoreScale() float32 {
	if a.Scale != 0 {
		return a.Scale
	}
	return 1 / float32(math.Sqrt(float64(a.HeadDim)))
}

// Convolution is a causal convolution along the rows that a sequence has in a call, with a kernel of
// its own for every row:
//
//	y_j[c] = Σ (Base[t][c] + Delta_j[t*groups + c*groups/cols]) * x_{j-t}[c]   for t < taps, t ≤ j
//
// The sum begins with 0, or with dst, and the taps are added in ascending order. There are no rows
// before the first of the sequence in the call: a convolution has no state.
type Convolution struct {
	Base  Tensor // [taps, cols]
	Delta Tensor // [rows, taps*groups]; groups divides cols
	Add   bool   // the sum begins with dst
}

// DeltaNet is a Gated DeltaNet layer. Every key head has as many value heads as any other, which use
// its query and its key: they are neighbors, or with Tiled value head h is one of key head h%KeyHeads.
type DeltaNet struct {
	KeyHeads, ValueHeads int
	Tiled                bool
	KeyDim, ValueDim     int
	Kernel               int
	Conv                 Tensor // [Kernel, channels]: tap Kernel-1 meets the current row
	DecayRate            Tensor // [1, ValueHeads]: -exp(A_log)
	DecayBias            Tensor // [1, ValueHeads]: dt_bias
	Norm                 Tensor // [1, ValueDim]
	Eps                  float32
	SigmoidGate          bool // gate of the norm: sigmoid instead of SiLU
}

// Channels is the number of convolved channels: queries, keys, values.
func (d *DeltaNet) Channels() int { return 2*d.KeyHeads*d.KeyDim + d.ValueHeads*d.ValueDim }

// Share is the number of value heads of a key head.
func (d *DeltaNet) Share() int { return d.ValueHeads / d.KeyHeads }

// ValueHead is the i-th value head of key head m.
func (d *DeltaNet) ValueHead(m, i int) int {
	if d.Tiled {
		return i*d.KeyHeads + m
	}
	return m*d.Share() + i
}

// DeltaInput are the projections a DeltaNet layer starts from.
type DeltaInput struct {
	QKV  Tensor // [rows, channels]
	Z    Tensor // [rows, ValueHeads*ValueDim]
	B, A Tensor // [rows, ValueHeads]
}

// Recurrent is the state of a DeltaNet layer for one sequence.
//
// Draft tokens are not written into State. Their effect on it, one rank-1 update each, is stored
// in Keys, Deltas and Decays, and the next call replays the accepted ones with the operations
// that would have been done at once: rollback costs nothing, and accepting a draft gives the
// same bits as decoding without drafts.
type Recurrent struct {
	State  Tensor // [ValueHeads*KeyDim, ValueDim]
	Tail   Tensor // [Kernel-1+drafts, channels]: input rows before the next; row Accepted is the oldest needed
	Keys   Tensor // [drafts, KeyHeads*KeyDim], normalized
	Deltas Tensor // [drafts, ValueHeads*ValueDim]
	Decays Tensor // [drafts, ValueHeads]
}

// Tensors are the fields in order.
func (r *Recurrent) Tensors() [5]*Tensor {
	return [5]*Tensor{&r.State, &r.Tail, &r.Keys, &r.Deltas, &r.Decays}
}

// Experts is a mixture-of-experts block. The zero value of an option is its absence.
//
// Every expert has a score, made of the router's logits. The TopK experts with the highest
// scores, once Bias is added to them, are chosen, and weighted by their scores without it.
// Contributions are added in the order of that ranking (ties: lower index first), then the
// shared expert's.
type Experts struct {
	Router         Weight // [experts, width]
	Gate, Up, Down Weight // stacks, one matrix per expert
	TopK           int
	Sigmoid        bool   // scores are sigmoids of the logits; else their softmax
	Bias           Tensor // [1, experts], for choosing only
	// Groups cuts the experts into groups of neighbors. Only those of the TopGroups
	// groups whose two highest scores, Bias added, have the highest sum can be chosen. 0 or 1:
	// all.
	Groups, TopGroups int
	Normalize         bool    // weights are divided by their sum
	Scale             float32 // of weights, after that; 0: 1
	PerExpert         Tensor  // [1, experts]: factors of weights, after that

	Activation Activation // of the gates

	// The shared expert has every row, with the sigmoid of SharedRouter's product as its weight.
	SharedRouter Weight // [1, width]; nil: its weight is 1
	SharedGate   Weight // nil: there is no shared expert
	SharedUp     Weight
	SharedDown   Weight
}
