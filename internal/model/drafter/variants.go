package drafter

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/checkpoint"
)

// eagle reads what EAGLE-3 has of its own.
func (f *fileConfig) eagle(c *config, tensors names) error {
	c.beforeResidual = value(f, false, func(k *fileKeys) *bool { return k.BeforeResidual })
	c.beforeFC = tensors.has("input_norm") || value(f, false, func(k *fileKeys) *bool { return k.BeforeFC })
	c.fcNorms = tensors.has("fc_norm.0") || value(f, false, func(k *fileKeys) *bool { return k.FCNorm })
	c.normOutput = value(f, false, func(k *fileKeys) *bool { return k.NormOutput })
	switch {
	case len(c.layers) != 1 || tensors.has("layers.1.self_attn.q_proj"):
		return fmt.Errorf("config.json: an EAGLE-3 drafter of %d layers is not supported, want 1", max(len(c.layers), 2))
	case c.noFC && c.width != c.target.Width:
		return fmt.Errorf("config.json: use_aux_hidden_state is false and hidden_size is %d, want that of the model, %d", c.width, c.target.Width)
	case !c.mapped && c.draftVocab != c.target.Vocab:
		return fmt.Errorf("config.json: draft_vocab_size is %d and the model's vocabulary has %d tokens, but the file has no d2t", c.draftVocab, c.target.Vocab)
	case c.mapped && !c.ownOutput:
		return fmt.Errorf("the file has d2t but no lm_head")
	}
	return nil
}

// blocks reads what block drafters have of their own.
func (f *fileConfig) blocks(c *config, tensors names) error {
	r := &reader{f: f}
	c.block = r.size("block_size", 0, MaxBlock, func(k *fileKeys) *checkpoint.Whole { return k.Block })
	mask := pick(f, func(k *fileKeys) *checkpoint.Whole { return k.Mask })
	if mask == nil {
		r.fail("config.json: mask_token_id is missing")
	} else if *mask < 0 || int(*mask) >= c.target.Vocab {
		r.fail("config.json: mask_token_id is %d, but the model's vocabulary has %d tokens", *mask, c.target.Vocab)
	} else {
		c.mask = int32(*mask)
	}
	if c.kind == DFlash2 {
		c.kernel = r.size("conv_kernel_size", 0, 16, func(k *fileKeys) *checkpoint.Whole { return k.Kernel })
		c.group = r.size("conv_group_size", 0, c.width, func(k *fileKeys) *checkpoint.Whole { return k.Group })
		c.rank = r.size("selector_rank", 0, 1<<14, func(k *fileKeys) *checkpoint.Whole { return k.Rank })
		c.top = r.size("selector_top_k", 0, 1<<8, func(k *fileKeys) *checkpoint.Whole { return k.Top })
		if r.err == nil && c.width%c.group != 0 {
			r.fail("config.json: conv_group_size %d does not divide hidden_size %d", c.group, c.width)
		}
	}
	if c.kind == DSpark {
		f.dspark(c, tensors, r)
	}
	least := 2
	if c.anchor {
		least = 1
	}
	switch {
	case r.err != nil:
	case c.block < least:
		r.fail("config.json: block_size is %d, want at least %d", c.block, least)
	case c.mapped != (c.draftVocab != c.target.Vocab):
		r.fail("config.json: draft_vocab_size is %d and the model's vocabulary has %d tokens: want d2t if and only if they differ", c.draftVocab, c.target.Vocab)
	case c.mapped && (!c.ownOutput || c.kind == DFlash2):
		r.fail("the file has d2t but no lm_head, or is of kind DFlash2, whose selector knows all tokens")
	case tensors["mask_embedding"] && f.Speculators == "":
		r.fail("tensor mask_embedding is not supported: rows of the mask are embeddings of mask_token_id")
	}
	if r.err != nil {
		return r.err
	}
	return f.windows(c)
}

// dspark reads what DSpark has of its own.
func (f *fileConfig) dspark(c *config, tensors names, r *reader) {
	c.anchor = value(f, true, func(k *fileKeys) *bool { return k.FromAnchor })
	if tensors.has("markov_head.markov_w1") {
		c.markov = r.size("markov_rank", 0, 1<<14, func(k *fileKeys) *checkpoint.Whole { return k.Markov })
		switch kind := value(f, "vanilla", func(k *fileKeys) *string { return k.MarkovType }); kind {
		case "vanilla":
		case "gated":
			c.gated = true
		default:
			r.fail("config.json: markov_head_type %q is not supported, want vanilla or gated", kind)
		}
	}
	c.confMarkov = c.markov > 0 && value(f, true, func(k *fileKeys) *bool { return k.ConfMarkov })
}

// windows says what the layers see.
func (f *fileConfig) windows(c *config) error {
	types := list(f, func(k *fileKeys) []string { return k.LayerTypes })
	if types != nil && len(types) != len(c.layers) {
		return fmt.Errorf("config.json: layer_types has %d entries, num_hidden_layers is %d", len(types), len(c.layers))
	}
	window := int(value(f, 0, func(k *fileKeys) *checkpoint.Whole { return k.Window }))
	if window < 0 || window > 1<<30 {
		return fmt.Errorf("config.json: sliding_window is %d, want a positive number", window)
	}
	if c.sliding.window = window; !value(f, true, func(k *fileKeys) *bool { return k.UseWindow }) {
		window = 0
	}
	causal := pick(f, func(k *fileKeys) *bool { return k.IsCausal })
	all := causal != nil && *causal || value(f, false, func(k *fileKeys) *bool { return k.Causal })
	c.sliding.causal = all || causal == nil
	for i := range c.layers {
		l := &c.layers[i]
		l.causal = all
		if types == nil {
			continue
		}
		switch types[i] {
		case "full_attention":
		case "sliding_attention":
			if window > 0 {
				*l = c.sliding
			}
		default:
			return fmt.Errorf("config.json: layer_types[%d] is %q, want full_attention or sliding_attention", i, types[i])
		}
	}
	return nil
}
