package drafter

import (
	"github.com/foretoken/foretoken/internal/backend"
)

// Fused are the rows of the last call that were made of taps.
func (d *Drafter) Fused() backend.Tensor {
	if d.Head != nil {
		return d.Head.fused
	}
	return d.block.context.Hidden
}

// Last are the last rows of the last call: those of blocks after the norm, those of EAGLE-3 before it.
func (d *Drafter) Last() backend.Tensor {
	if d.Head != nil {
		return d.Head.X
	}
	return d.block.Hidden
}
