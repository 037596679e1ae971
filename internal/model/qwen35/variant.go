package qwen35

import (
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/spec"
)

// Converters have damaged heads in a few ways that can be undone once they are known. Here
// is what it takes to find out which it was: the head with the damage undone, beside the
// head as it was loaded, without loading anything again.

// HiddenRows are the rows of the last Forward before and after the final norm, [tokens of
// all spans, width]. They are valid until the next Forward.
func (m *Model) HiddenRows() (before, after backend.Tensor) { return m.call.x, m.call.hidden }

// DraftVocab is the draft vocabulary after a text, with the given number of frequent tokens:
// blocks of backend.RowBlock tokens, ascending; nil for all.
func (m *Model) DraftVocab(frequent int, text []int32) []int32 {
	var host any
	vocab := m.draftVocab(frequent)
	return vocab.of([]spec.Run{{Text: text, Depth: 1, HostState: &host}})
}

// Variant is in what a head is to differ from the one that was loaded.
type Variant struct {
	// Shift is added to the effective gain of norms, by the tensor's name without "mtp." and
	// ".weight".
	Shift map[string]float32
	// HiddenFirst gives fc the hidden state first and the embedding second.
	HiddenFirst bool
}

// Variant returns a head with the matrices of h, which must outlive it, and norms of its
// own. The caller closes it.
func (h *Head) Variant(v Variant) (*Head, error) {
	block, attn := h.block, *h.block.attn
	block.attn = &attn
	x := &Head{
		transformer: transformer{b: h.b, cfg: h.cfg, embed: h.embed, unembed: h.unembed, norm: h.norm},
		layout:      h.layout, normHidden: h.normHidden, normEmbed: h.normEmbed, fc: h.fc, block: block, swapped: v.HiddenFirst,
	}
	for name, gain := range x.norms() {
		old, err := h.b.Host(*gain)
		if err == nil {
			*gain, err = h.b.Alloc(dtype.F32, 1, len(old))
		}
		if err == nil {
			moved := slices.Clone(old)
			for i := range moved {
				moved[i] += v.Shift[name]
			}
			err = h.b.Write(*gain, moved)
		}
		if err != nil {
			return nil, err // what was allocated is freed with the backend
		}
	}
	return x, nil
}

// norms are the gains of the head by their names.
func (h *Head) norms() map[string]*backend.Tensor {
	gains := map[string]*backend.Tensor{}
	for w := range h.weights() {
		if w.Kind == Gain {
			gains[strings.TrimSuffix(strings.TrimPrefix(w.Name, "mtp."), ".weight")] = w.tensor
		}
	}
	return gains
}

// Close frees the norms and the workspace of a variant. The head of a Model is closed with it.
func (h *Head) Close() {
	for _, gain := range h.norms() {
		h.b.Free(*gain)
	}
	h.work.free(h.b)
	h.b.Free(h.pair)
}
