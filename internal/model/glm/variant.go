package glm

import (
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
)

// Converters have damaged heads in a few ways that can be undone once they are known: the head
// with the damage undone shares all weights of the one that was loaded.

// Repairs implements model.Repairable.
func (h *Head) Repairs() []model.Repair {
	list := []model.Repair{h.repair(model.Repair{
		Name: "fc with the hidden state first", Kind: "fc", Cause: "eh_proj is permuted: its first input is the hidden state, its second the embedding",
	}, func(x *Head) { x.pairs.Swapped = !x.pairs.Swapped })}
	if h.block.latent == nil {
		return list
	}
	return append(list,
		h.repair(model.Repair{
			Name: "rotated rows in the other order", Kind: "rope",
			Cause: "the order of the rotated rows of q_b_proj and kv_a_proj_with_mqa does not match rope_interleave",
		}, func(x *Head) { x.block.latent.Interleaved = !x.block.latent.Interleaved }),
		h.repair(model.Repair{
			Name: "rms_norm_eps inside attention", Kind: "norms", Cause: "the norms inside attention were trained with rms_norm_eps",
		}, func(x *Head) { x.block.latent.Eps = h.Eps }))
}

// repair completes a repair that changes a head.
func (h *Head) repair(r model.Repair, change func(*Head)) model.Repair {
	r.Open = func() (model.Head, func(), error) {
		x := newHead(h.model)
		block := h.block
		if block.latent != nil {
			own := *block.latent
			block.latent = &own
		}
		x.Backend, x.Embed, x.Unembed, x.Norm = h.Backend, h.Embed, h.Unembed, h.Norm
		x.layout, x.block = h.layout, block
		x.pairs = network.Pairs{NormHidden: h.pairs.NormHidden, NormEmbed: h.pairs.NormEmbed, FC: h.pairs.FC, Swapped: h.pairs.Swapped}
		change(x)
		return x, func() { x.pairs.Free(&x.Network) }, nil
	}
	return r
}
