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

// Repairs implements network.Config: norms shifted by one twice or not at all, and fc with
// its halves exchanged.
func (*config) Repairs(h *network.Head) []model.Repair {
	var list []model.Repair
	add := func(r model.Repair, v variant) {
		r.Open = func() (model.Head, func(), error) {
			return v.of(h)
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

// of returns a head with the matrices of h, which must outlive it, and norms of its own. The caller
// calls done.
func (v variant) of(h *network.Head) (x *network.Head, done func(), err error) {
	x = h.Variant(func(n *network.Network) network.Layer {
		y, attn := *h.Layer().(*layer), *h.Layer().(*layer).attn
		y.rows, y.attn = newRows(y.cfg, n), &attn
		return &y
	})
	x.Pairs.Swapped = v.hiddenFirst
	gains := norms(x)
	for name, gain := range gains {
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
			return nil, nil, err // what was allocated is freed with the backend
		}
	}
	return x, func() {
		for _, gain := range gains {
			h.Backend.Free(*gain)
		}
		x.Release()
	}, nil
}

// norms are the gains of a head by their names.
func norms(h *network.Head) map[string]*backend.Tensor {
	gains := map[string]*backend.Tensor{}
	for w := range h.Weights() {
		if w.Kind == weights.Gain {
			gains[strings.TrimSuffix(strings.TrimPrefix(w.Name, "mtp."), ".weight")] = w.Tensor()
		}
	}
	return gains
}
