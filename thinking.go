package foretoken

import (
	"context"
	"errors"
	"fmt"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/sample"
)

// ErrGrammar is wrapped by the error for a Request.Grammar that cannot be compiled.
var ErrGrammar = errors.New("structured output")

// constraint is what limits a request's tokens, nil for nothing. Thinking is free text; the
// grammar, or the constraint of the sampling options, begins after it.
func (m *Model) constraint(ctx context.Context, r *Request, after func() sample.Constraint) (func() sample.Constraint, error) {
	if !r.Grammar.IsZero() {
		if after != nil {
			return nil, errors.New("foretoken: Request.Grammar and the Constraint of its sampling options are both set: set one of them")
		}
		g, err := m.grammar(ctx, r.Grammar)
		if err != nil {
			return nil, err
		}
		after = func() sample.Constraint { return g.Matcher() }
	}
	if !r.Prompt.Thinking && r.Prompt.opens == "" || after == nil && r.MaxThinking == 0 {
		return after, nil
	}
	end, ok := m.tok.ID("</think>")
	if !ok {
		return nil, fmt.Errorf("model %s: a thinking limit, or a grammar after thinking, needs the token </think>, which the tokenizer does not have", m.name)
	}
	// The text that the template closes a block with. A grammar says itself what follows.
	thinks := r.Prompt.thinks
	if thinks.Close == "" { // the prompt is the caller's own
		thinks = chat.Thinking{Close: "\n</think>", Apart: "\n\n"}
	}
	closing := thinks.Close
	if after == nil {
		closing += thinks.Apart
	}
	opening, ids := m.tok.Encode(r.Prompt.opens), m.tok.Encode(closing)
	var free []uint64
	if after != nil {
		free = m.unended()
	}
	return func() sample.Constraint {
		t := &thinking{
			opening: opening, end: end, closing: ids, free: free, left: r.MaxThinking, limited: r.MaxThinking > 0, words: make([]uint64, (m.vocab+63)/64),
		}
		if after != nil {
			t.after = after()
		}
		return t
	}, nil
}

// unended is all tokens but those that end a text.
func (m *Model) unended() []uint64 {
	words := make([]uint64, (m.vocab+63)/64)
	for i := range m.vocab {
		words[i/64] |= 1 << (i % 64)
	}
	for _, id := range m.stops() {
		if int(id) < m.vocab {
			words[id/64] &^= 1 << (id % 64)
		}
	}
	return words
}

// thinking is free text up to a number of tokens; then its block is closed, token
// by token, and another constraint applies to what comes after. A block that the
// prompt did not open is opened first.
type thinking struct {
	opening []int32  // what is left to open it
	end     int32    // the token that ends the block
	free    []uint64 // the tokens of a thought; nil: all. An answer that must follow is not to end before it.
	closing []int32  // what closes it when it is too long
	limited bool
	left    int               // tokens of thinking
	at      int               // tokens of closing that were forced
	done    bool              // the block has ended
	after   sample.Constraint // nil: nothing
	words   []uint64          // of the last answer
}

// Allowed implements sample.Constraint.
func (t *thinking) Allowed(ahead []int32) []uint64 {
	then := *t
	for len(ahead) > 0 && !then.over() {
		then.step(ahead[0])
		ahead = ahead[1:]
	}
	switch {
	case len(then.opening) > 0:
		return t.only(then.opening[0])
	case !then.over() && then.limited && then.left <= 0:
		return t.only(then.closing[then.at])
	case !then.over():
		return t.free
	case t.after == nil:
		return nil
	default:
		return t.after.Allowed(ahead)
	}
}

// only is the answer that allows one token.
func (t *thinking) only(id int32) []uint64 {
	clear(t.words)
	t.words[id/64] |= 1 << (id % 64)
	return t.words
}

// Accept implements sample.Constraint.
func (t *thinking) Accept(id int32) {
	if !t.over() {
		t.step(id)
	} else if t.after != nil {
		t.after.Accept(id)
	}
}

// over reports whether the block has ended, and been closed if it had to be.
func (t *thinking) over() bool { return t.done && (t.at == 0 || t.at == len(t.closing)) }

// step takes in a token of the block.
func (t *thinking) step(id int32) {
	if len(t.opening) > 0 {
		t.opening = t.opening[1:]
		return
	}
	if t.limited && t.left <= 0 {
		t.at++
	}
	t.left--
	t.done = t.done || id == t.end
}
