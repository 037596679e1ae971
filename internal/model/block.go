package model

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/state"
)

// Block is a drafter that computes several draft tokens of a sequence in one pass, behind a context of rows that are tapped
// in the model. One goroutine uses it and its model at a time.
type Block interface {
	// Layout is the state of a sequence: the context.
	Layout() state.Layout
	// Drafts is the maximum number of draft tokens.
	Drafts() int
	// Size is the number of draft tokens to compute if n are wanted, n or more: blocks have few sizes, so that a device sees few shapes.
	Size(n int) int
	// Append adds the rows of each span's Hidden to the context. Only State, Hidden and Positions of the spans count.
	Append(batch []Span) error
	// Forward drafts behind the context, which it leaves as it is. The one token of a span is the last of the text, and Want is how
	// many tokens are drafted; spans that want more come first. The rows of logits are those of the first draft of each span,
	// then those of the second draft of each span that wants two, and so on. only is that of Head.Forward. Output has no
	// Hidden.
	Forward(batch []Span, only []int32) (Output, error)
	// Follow completes the logits of draft j, counted from 0, of the first spans, given the token before it of each of them. Drafts
	// are drawn in order: it is called before the logits of each are read.
	Follow(j int, before []int32) error
	// Draw draws all drafts of the last Forward on the device, in place of Follow and a Selector's methods: draws[j] are those of draft
	// j, for each span that wants it, and drawn[j] the results. Results after an ID of -1 in a span are undefined. ok
	// is false if the device cannot draw: then nothing was done.
	Draw(draws [][]backend.Draw) (drawn [][]Drawn, ok bool, err error)
	// Confidences are, for each row of logits, the probability that its draft is accepted if the drafts before it are. nil: the
	// drafter does not know. They are valid until the next call.
	Confidences() ([]float32, error)
}

// Selector is a Block whose drafts are chosen, one after another, among the candidates with the highest logits of each row.
type Selector interface {
	Block
	// Candidates is how many there are for each row.
	Candidates() int
	// Select takes in the candidates of all rows of the last Forward, row after row.
	Select(candidates []int32) error
	// Score is what is added to the logit of candidate c of a row if the token before is candidate before of the row of the draft
	// before it, or, for a first draft, the last token of the text.
	Score(row, c, before int) float32
}
