package glm

import (
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
)

// Converters have damaged heads in a few ways that can be undone once they are known: the head
// with the damage undone shares all weights of the one that was loaded.

// Repairs implements network.Config.
func (*config) Repairs(h *network.Head) []model.Repair {
	list := []model.Repair{repair(h, model.Repair{
		Name: "fc with the hidden state first", Kind: "fc", Cause: "eh_proj is permuted: its first input is the hidden state, its second the embedding",
	}, func(x *network.Head, _ *latent) { x.Pairs.Swapped = !x.Pairs.Swapped })}
	if h.Layer().(*layer).latent == nil {
		return list
	}
	return append(list,
		repair(h, model.Repair{
			Name: "rotated rows in the other order", Kind: "rope",
			Cause: "the order of the rotated rows of q_b_proj and kv_a_proj_with_mqa does not match rope_interleave",
		}, func(_ *network.Head, a *latent) { a.Interleaved = !a.Interleaved }),
		repair(h, model.Repair{
			Name: "rms_norm_eps inside attention", Kind: "norms", Cause: "the norms inside attention were trained with rms_norm_eps",
		}, func(_ *network.Head, a *latent) { a.Eps = h.Eps }))
}

// repair completes a repair that changes a head or its attention, of which latent attention is a copy.
func repair(h *network.Head, r model.Repair, change func(*network.Head, *latent)) model.Repair {
	r.Open = func() (model.Head, func(), error) {
		var own latent
		x := h.Variant(func(n *network.Network) network.Layer {
			y := *h.Layer().(*layer)
			y.rows = newRows(y.cfg, n)
			if y.latent != nil {
				own = *y.latent
				y.latent = &own
			}
			return &y
		})
		change(x, &own)
		return x, x.Release, nil
	}
	return r
}
