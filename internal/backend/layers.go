package backend

import "github.com/foretoken/foretoken/internal/dtype"

// PageTokens is how many positions a page has. Attention is summed page by page, so it is
// also where attention is cut: at positions fixed for all batches.
const PageTokens = 64

// PageBytes is what PageTokens positions of heads rows of width numbers take of a page. They
// are [heads, PageTokens, width]; in I8 the PageTokens rows of a head are codes, and their
// PageTokens scales follow them, in float32: a number is its code times its row's scale.
func PageBytes(t dtype.Type, heads, width int) int {
	n := width * t.Size()
	if t == dtype.I8 {
		n += dtype.F32.Size()
	}
	return heads * PageTokens * n
}

// Seq says which rows of a call belong to one sequence, and where its state is.
type Seq struct {
	First, N int // rows [First, First+N) of the call
	Pos      int // position of the first of them
	Drafts   int // how many of the last rows are draft tokens, which may be rejected
	Accepted int // draft tokens of the former call that were accepted and are not yet in Delta's State

	Pages []Tensor    // PageTokens positions each, of all layers that have any: bytes, of type I8
	Delta []Recurrent // one per DeltaNet layer
}

// Place is where one layer's state lies in every Seq of a model: a part of each page, or a
// Recurrent. A device adds Page to the addresses of its page table.
type Place struct {
	Type  dtype.Type // of the numbers in pages: F32, F16 or I8
	Page  int        // first byte of a page that is the layer's
	Delta int        // index of the layer's Recurrent
}

// Attention is a layer of gated attention with partial rotation.
//
// Its part of a page is its keys and then its values, both [KVHeads, PageTokens, HeadDim] as
// PageBytes says.
type Attention struct {
	Heads, KVHeads, HeadDim int
	QNorm, KNorm            Tensor    // [1, HeadDim], effective gains
	Freqs                   []float32 // rotation per position of dimension pairs (i, i+len)
	Eps                     float32
}

// DeltaNet is a Gated DeltaNet layer.
type DeltaNet struct {
	KeyHeads, ValueHeads int
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

// Experts is a mixture-of-experts block. Contributions are added in the order of the
// router's ranking (ties: lower index first), then the shared expert's.
type Experts struct {
	Router         Weight // [experts, width]
	Gate, Up, Down Weight // stacks, one matrix per expert
	TopK           int
	Normalize      bool   // selected weights sum to 1
	SharedRouter   Weight // [1, width]
	SharedGate     Weight
	SharedUp       Weight
	SharedDown     Weight
}
