package drafter

import (
	"fmt"
	"maps"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
)

// Fused are the rows of the last call that were made of taps.
func (d *Drafter) Fused() backend.Tensor {
	if d.eagle != nil {
		return d.eagle.fused
	}
	return d.block.context.Hidden
}

// Last are the last rows of the last call: those of blocks after the norm, those of EAGLE-3 before it, those of assistants after theirs.
func (d *Drafter) Last() backend.Tensor {
	switch {
	case d.eagle != nil:
		return d.eagle.X
	case d.assistant != nil:
		return d.assistant.Hidden
	}
	return d.block.Hidden
}

// Shares reports whether embedding and output matrix are the model's.
func (d *Drafter) Shares() (embed, output bool) {
	n, _ := d.network()
	return n.Embed == n.lentEmbed, n.Unembed == n.lentOutput
}

// GGUFName is the name of a tensor in GGUF files, "" if they do not have it.
func GGUFName(name, arch string) string {
	name = short(name)
	for i := range 4 {
		for gguf, last := range ggufLayer {
			if name == fmt.Sprintf("layers.%d.%s", i, last) {
				return fmt.Sprintf("blk.%d.%s", i, gguf)
			}
		}
	}
	for _, gguf := range append(slices.Sorted(maps.Keys(ggufTop)), "enc.output_norm.weight") {
		if other, err := ggufName(gguf, arch); err == nil && (other == name || other == name+".weight") {
			return gguf
		}
	}
	return ""
}
