package model

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/state"
)

// Head is a multi-token-prediction head that can be called: it drafts the token at t+2 from
// the model's hidden row at t and the token at t+1. One goroutine uses it and its model at a
// time.
type Head interface {
	// Layout is the state of a sequence. Slot t belongs to the hidden row at t and the token
	// at t+1.
	Layout() state.Layout
	// Forward feeds pairs: row i of a span's Hidden goes with its token i, which is the next
	// token, an id or a row. A pair's position is that of its Hidden's token. Output rows are
	// the head's own: Hidden can be fed again to draft further. If no span wants rows
	// the head only catches up, and there is no output. only is the blocks of backend.RowBlock
	// ids to compute logits of, ascending, nil for all: the other logits are minus infinity.
	Forward(batch []Span, only []int32) (Output, error)
}

// Chainer is a head that can draft several tokens without a word of the host in between, where
// its device can.
type Chainer interface {
	Head
	// Chain is one call of Forward for each of draws. The first feeds the batch, each of whose spans
	// wants one row; the others feed the tokens drawn by the previous call, with their hidden rows.
	// draws[i][j] is the draw of call i for span j, and drawn[i][j] the result; results after an ID of -1
	// in a span are undefined. A call has as many spans as its list of draws, the first ones: the list
	// is no longer than that of the previous call. ok is false if the device cannot draw: then nothing
	// was done.
	Chain(batch []Span, only []int32, draws [][]backend.Draw) (drawn [][]Drawn, ok bool, err error)
}

// Borrower is a head without memory, which reads that of its model: see Span.Lender.
type Borrower interface {
	Head
	Borrows()
}

// Drawn is a token that a device has drawn.
type Drawn struct {
	ID   int32   // -1: there was nothing to draw from
	Prob float32 // see backend.Drawer
}

// Examinable is a model that returns the possible inputs of its head.
type Examinable interface {
	Model
	// HiddenRows are the rows of the last Forward before and after the final norm, [tokens of
	// all spans, width]. They are valid until the next Forward.
	HiddenRows() (before, after backend.Tensor)
}

// Tappable is a model that returns activations between its layers, for drafters that read more
// than the last hidden rows.
type Tappable interface {
	Model
	// Tap makes every Forward from now on copy the inputs of the given layers into Output.Taps.
	// The input of layer 0 is the embedding; the number of layers stands for the output of the last,
	// before the final norm, and one more for Output.Hidden. Without layers nothing is copied, as at
	// first.
	Tap(layers ...int) error
}

// Grouped is a model with memory for several calls. An output is overwritten by the next call of its group only, so calls of
// several groups can be computed at the same time: see backend.Pipeline.
type Grouped interface {
	Model
	// Group selects the group of the next calls. At first it is 0.
	Group(i int)
}

// Lender is a Tappable model whose matrices a drafter can share.
type Lender interface {
	Tappable
	// Matrices are the embedding and the output matrix, [vocab, width].
	Matrices() (embed, output backend.Weight)
	// EmbeddingFactor is what rows of the embedding are multiplied with; 0: 1.
	EmbeddingFactor() float32
}

// Repairable is a head that can undo known damage by converters.
type Repairable interface {
	Head
	// Repairs are ways to undo such damage, the most common first.
	Repairs() []Repair
}

// Repair undoes one kind of damage. If drafts are accepted more often with it, that was done
// to the head.
type Repair struct {
	Name   string // the change
	Kind   string // norms, fc or rope: where
	Cause  string // the damage that this undoes
	Common bool   // worth trying also if nothing seems wrong
	// Open returns the head with the damage undone. It shares the matrices of the head, which
	// must outlive it. The caller calls done when it is no longer used.
	Open func() (h Head, done func(), err error)
}
