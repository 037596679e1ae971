package model

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/state"
)

// NoToken is the id in the place of a row that is not a token's.
const NoToken = -1

// Span is a piece of one sequence: a prompt's chunk, a token, a token with draft tokens.
type Span struct {
	State  *state.State // the span continues at State.Len()
	Tokens []int32      // at least one, each within the vocabulary, or NoToken where Inputs has a row
	Drafts int          // how many trailing tokens are draft tokens, of which State.Commit accepts some
	Want   int          // how many trailing positions need logits
	Short  bool         // Output.Hidden is needed of these positions and of the last one only: other rows may have any contents

	// Inputs are rows in place of embedded tokens, for example of an image: ascending and disjoint.
	// At counts the span's tokens.
	Inputs []backend.Input
	// Positions are the rotations of the tokens; nil: the tokens are text that continues at
	// State.Next. See state.After.
	Positions [][3]int32

	// Hidden is for heads only: the model's hidden row for each token.
	Hidden backend.Tensor
	// Lender is for heads without memory only, in place of State: the model's state, of which the only token reads the first At
	// tokens. Its own position is At.
	Lender *state.State
	At     int
}

// Check reports errors of a span for a model of that vocabulary and width.
func (s *Span) Check(vocab, width int) error {
	n := len(s.Tokens)
	if n == 0 || s.Drafts < 0 || s.Drafts > n || s.Want < 0 || s.Want > n {
		return fmt.Errorf("span of %d tokens with %d draft tokens and %d wanted rows", n, s.Drafts, s.Want)
	}
	if s.Lender != nil && (n != 1 || s.Drafts != 0 || s.At < 1 || s.At > s.Lender.Len()) {
		return fmt.Errorf("span of %d tokens with %d draft tokens that reads the first %d of %d tokens", n, s.Drafts, s.At, s.Lender.Len())
	}
	if s.Positions != nil && len(s.Positions) != n {
		return fmt.Errorf("%d positions for %d tokens", len(s.Positions), n)
	}
	for _, p := range s.Positions {
		if min(p[0], p[1], p[2]) < 0 {
			return fmt.Errorf("position %d is negative", p)
		}
	}
	at := 0
	for _, in := range s.Inputs {
		end := in.At + in.Rows.Rows
		if in.At < at || end <= in.At || end > n {
			return fmt.Errorf("%d rows at position %d, want at least one row within [%d, %d)", in.Rows.Rows, in.At, at, n)
		}
		if err := CheckRows(in.Rows, in.Rows.Rows, width); err != nil {
			return err
		}
		for _, id := range s.Tokens[in.At:end] {
			if id != NoToken {
				return fmt.Errorf("token id %d at the position of a row, want %d", id, NoToken)
			}
		}
		if err := checkIDs(s.Tokens[at:in.At], vocab); err != nil {
			return err
		}
		at = end
	}
	return checkIDs(s.Tokens[at:], vocab)
}

// CheckRows reports an error unless rows are n rows for a model of that width.
func CheckRows(rows backend.Tensor, n, width int) error {
	if rows.Rows != n || rows.Cols != width || rows.Type != dtype.F32 {
		return fmt.Errorf("%d rows of %d numbers of type %v, want %d of %d of type %v", rows.Rows, rows.Cols, rows.Type, n, width, dtype.F32)
	}
	return nil
}

func checkIDs(ids []int32, vocab int) error {
	for _, id := range ids {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("token id %d is outside of the vocabulary of %d", id, vocab)
		}
	}
	return nil
}

// HasInputs reports whether any span has some.
func HasInputs(batch []Span) bool {
	return slices.ContainsFunc(batch, func(s Span) bool { return len(s.Inputs) > 0 })
}

// Embed sets the rows of dst to the inputs of the spans: embeddings of tokens, multiplied with factor, or
// rows of their Inputs. ids are the tokens of all spans; NoToken among them becomes some token.
func Embed(b backend.Backend, dst backend.Tensor, table backend.Weight, ids []int32, factor float32, batch []Span) {
	inputs(batch, func(at int, rows backend.Tensor) { clear(ids[at : at+rows.Rows]) })
	b.Embed(dst, table, ids, factor)
	inputs(batch, func(at int, rows backend.Tensor) { b.Copy(dst.RowRange(at, at+rows.Rows), rows) })
}

// inputs visits those of all spans; at counts the tokens of all.
func inputs(batch []Span, visit func(at int, rows backend.Tensor)) {
	first := 0
	for i := range batch {
		for _, in := range batch[i].Inputs {
			visit(first+in.At, in.Rows)
		}
		first += len(batch[i].Tokens)
	}
}
