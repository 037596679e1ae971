package qwen35

import (
	"fmt"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// Converters have damaged heads in a few ways that can be undone once they are known. Here
// is what it takes to find out which it was: the head with the damage undone, beside the
// head as it was loaded, without loading anything again.

// HiddenRows implements model.Examinable.
func (m *Model) HiddenRows() (before, after backend.Tensor) { return m.X, m.Hidden }

// shifts are the norms that converters treat alike: all of them first.
var shifts = []struct {
	which, were string
	norms       []string
}{
	{"all norms of the head", "were", []string{
		"pre_fc_norm_embedding", "pre_fc_norm_hidden", "layers.0.input_layernorm", "layers.0.post_attention_layernorm",
		"layers.0.self_attn.q_norm", "layers.0.self_attn.k_norm", "norm",
	}},
	{"the norms before fc", "were", []string{"pre_fc_norm_embedding", "pre_fc_norm_hidden"}},
	{"the norms of the head's layer", "were", []string{
		"layers.0.input_layernorm", "layers.0.post_attention_layernorm", "layers.0.self_attn.q_norm", "layers.0.self_attn.k_norm",
	}},
	{"the head's last norm", "was", []string{"norm"}},
}

// Repairs implements model.Repairable: norms shifted by one twice or not at all, and fc with
// its halves exchanged.
func (h *Head) Repairs() []model.Repair {
	var list []model.Repair
	add := func(r model.Repair, v variant) {
		r.Open = func() (model.Head, func(), error) {
			x, err := h.variant(v)
			if err != nil {
				return nil, nil, err
			}
			return x, x.close, nil
		}
		list = append(list, r)
	}
	for i, s := range shifts {
		less, more := variant{shift: map[string]float32{}}, variant{shift: map[string]float32{}}
		for _, n := range s.norms {
			less.shift[n], more.shift[n] = -1, 1
		}
		add(model.Repair{Name: s.which + " less one", Kind: "norms", Cause: fmt.Sprintf("%s %s shifted by one twice", s.which, s.were), Common: i == 0}, less)
		add(model.Repair{Name: s.which + " plus one", Kind: "norms", Cause: fmt.Sprintf("%s %s not shifted by one", s.which, s.were), Common: i == 0}, more)
	}
	add(model.Repair{
		Name: "fc with the hidden state first", Kind: "fc", Cause: "fc is permuted: its first input is the hidden state, its second the embedding",
	}, variant{hiddenFirst: true})
	return list
}

// variant is in what a head is to differ from the one that was loaded.
type variant struct {
	// shift is added to the effective gain of norms, by the tensor's name without "mtp." and
	// ".weight".
	shift map[string]float32
	// hiddenFirst gives fc the hidden state first and the embedding second.
	hiddenFirst bool
}

// variant returns a head with the matrices of h, which must outlive it, and norms of its
// own. The caller closes it.
func (h *Head) variant(v variant) (*Head, error) {
	block, attn := h.block, *h.block.attn
	block.attn = &attn
	x := &Head{layout: h.layout, block: block}
	x.pairs = network.Pairs{NormHidden: h.pairs.NormHidden, NormEmbed: h.pairs.NormEmbed, FC: h.pairs.FC, Swapped: v.hiddenFirst}
	x.begin(h.cfg, x.operations)
	x.Backend, x.Embed, x.Unembed, x.Norm = h.Backend, h.Embed, h.Unembed, h.Norm
	for name, gain := range x.norms() {
		old, err := h.Backend.Host(*gain)
		if err == nil {
			*gain, err = backend.At(h.Backend, backend.Part{Kind: backend.HeadPart}).Alloc(dtype.F32, 1, len(old))
		}
		if err == nil {
			moved := slices.Clone(old)
			for i := range moved {
				moved[i] += v.shift[name]
			}
			err = h.Backend.Write(*gain, moved)
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
		if w.Kind == weights.Gain {
			gains[strings.TrimSuffix(strings.TrimPrefix(w.Name, "mtp."), ".weight")] = w.Tensor()
		}
	}
	return gains
}

// close frees the norms and the workspace of a variant. The head of a Model is closed with it.
func (h *Head) close() {
	for _, gain := range h.norms() {
		h.Backend.Free(*gain)
	}
	h.pairs.Free(&h.Network)
}
