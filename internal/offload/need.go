// Package offload decides which device computes which parts of a model, if the user names several devices or the first has not
// enough memory for all. It knows the sizes of the parts, by a survey of the checkpoint, and the memory bandwidth of the devices;
// package split combines them. The decision changes the speed of a model and no bit of its answers.
//
// The first device gets the last layers, because what follows them is there: the output matrix, which is the largest, the logits,
// and the head, which drafts between passes. The rest of its memory is for the embedding and the vision tower. Experts are most of
// such a model and little of what a token reads, so they may stay on the host alone. Among all placements that fit, the plan has
// the least time per token: the reads of all devices at the speed of their memory, and the transfers between them.
package offload

import (
	"maps"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// Need is the memory that a model needs.
type Need struct {
	Layers  int
	Tied    bool                   // the embedding is also the output matrix
	Parts   map[backend.Part]Share // existing parts
	Context int                    // tokens that there is state for
	Work    int64                  // bytes of activations on a device that computes layers
	Logits  int64                  // bytes of activations where the output is
}

// Share is the memory of a part.
type Share struct {
	Weights int64 // bytes on the host
	Pass    int64 // bytes of Weights that a token reads
	State   int64 // bytes of sequences

	matrices []weights.Matrices // most of Weights, for devices on which they take another size
}

// on is the share on one device: weights and reads of a token.
func (s Share) on(d *Side) Share {
	if d.Size == nil || s.Weights == 0 {
		return s
	}
	bytes := s.Weights
	for i := range s.matrices {
		m := &s.matrices[i]
		bytes += d.Size(&m.Form) - m.Bytes
	}
	s.Weights, s.Pass = bytes, int64(float64(bytes)/float64(s.Weights)*float64(s.Pass))
	return s
}

// Options say how a model will be loaded. The zero value is the default.
type Options struct {
	Quantize int   // bits, see model.Options
	KVBits   int   // likewise
	Context  int   // tokens of the longest sequence; 0: the model's limit, at most DefaultContext
	KVMemory int64 // bytes of sequences, if more than one of the longest needs; 0 or less: that one
	NoVision bool
	NoHead   bool
	// Drafter is the drafter of the model, in files of its own; nil: none.
	Drafter *checkpoint.Checkpoint
}

// DefaultContext is the maximum context if Options set none and the model allows more.
const DefaultContext = 32768

// DefaultBatch is the maximum number of sequences at a time if Options set none.
const DefaultBatch = 16

// Rows for which activations are counted: the rows of a round, and those of them with logits.
const (
	workRows  = 512
	logitRows = 64
)

// NewNeed is the need of a surveyed model.
func NewNeed(s *weights.Survey, o Options) *Need {
	sizes := quantized(s.Sizes, o.Quantize, false)
	if o.NoHead {
		delete(sizes, backend.Part{Kind: backend.HeadPart})
	}
	if o.Drafter != nil {
		if d, err := model.Fit(o.Drafter, model.TargetOf(s)); err == nil { // loading it reports an error
			with := *s
			with.Sizes = sizes
			d.Sizes = quantized(d.Sizes, o.Quantize, true)
			with.AddDrafter(d, o.NoHead)
			s, sizes = &with, with.Sizes
		}
	}
	n := &Need{
		Layers: len(s.Layout.Layers), Tied: s.Tied, Parts: map[backend.Part]Share{}, Context: o.Context,
		Logits: 4 * logitRows * int64(s.Vocab),
	}
	widest := 0
	for p, part := range sizes {
		if p.Kind == backend.TowerPart && o.NoVision {
			continue
		}
		x := Share{Weights: part.Bytes, Pass: part.Pass, matrices: part.Matrices}
		if p.Kind == backend.LayerPart || p.Kind == backend.ExpertsPart {
			widest = max(widest, part.Outputs)
		}
		n.Parts[p] = x
	}
	n.Work = 4 * workRows * int64(2*widest+6*s.Hidden)
	n.state(s, o)
	return n
}

// quantized are the sizes of parts that are quantized on load, if bits is not 0. Heads and towers have 8 bits, but drafters have as many
// as their models.
func quantized(sizes map[backend.Part]weights.Size, bits int, drafter bool) map[backend.Part]weights.Size {
	sizes = maps.Clone(sizes)
	for p, part := range sizes {
		n := int64(bits)
		if (p.Kind == backend.HeadPart || p.Kind == backend.TowerPart) && !drafter {
			n = 8
		}
		// Every group of 64 has a scale and an offset of two bytes, which are widened.
		w := part.Parameters * (n + 1) / 8
		if bits == 0 || w >= part.Bytes {
			continue
		}
		const cols = 64 * 64
		part.Pass, part.Bytes = int64(float64(part.Pass)*float64(w)/float64(part.Bytes)), w
		part.Matrices = []weights.Matrices{{Form: dtype.Matrix{Rows: int(part.Parameters / cols), Cols: cols, Format: dtype.Affine, Bits: int(n), Group: 64, ScaleType: dtype.BF16}, Bytes: w}}
		sizes[p] = part
	}
	return sizes
}

// state adds the memory of sequences.
func (n *Need) state(s *weights.Survey, o Options) {
	kv := (&model.Options{KVBits: o.KVBits}).KVType()
	layers, head := s.Layout.Typed(kv).LayerBytes(o.Context), []int64(nil)
	if _, ok := n.Parts[backend.Part{Kind: backend.HeadPart}]; ok {
		head = s.HeadLayout.Typed(kv).LayerBytes(o.Context)
	}
	total := int64(0)
	for _, list := range [][]int64{layers, head} {
		for _, b := range list {
			total += b
		}
	}
	scale := max(1, float64(o.KVMemory)/max(float64(total), 1))
	add := func(p backend.Part, bytes int64) {
		if x, ok := n.Parts[p]; ok {
			x.State += int64(scale * float64(bytes))
			n.Parts[p] = x
		}
	}
	for i, b := range layers {
		add(backend.Part{Kind: backend.LayerPart, Layer: i}, b)
	}
	for _, b := range head {
		add(backend.Part{Kind: backend.HeadPart}, b)
	}
}

// Weights is the bytes of all weights.
func (n *Need) Weights() int64 { return n.total().Weights }

// total is the sum over all parts.
func (n *Need) total() (t Share) {
	for _, x := range n.Parts {
		t.Weights, t.Pass, t.State = t.Weights+x.Weights, t.Pass+x.Pass, t.State+x.State
	}
	return t
}

// experts reports whether any layer has some.
func (n *Need) experts() bool {
	for p := range n.Parts {
		if p.Kind == backend.ExpertsPart {
			return true
		}
	}
	return false
}
