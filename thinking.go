package foretoken

import (
	"context"
	"errors"
	"fmt"

	"github.com/foretoken/foretoken/sample"
)

// ErrGrammar is wrapped by the error for a Request.Grammar that cannot be compiled.
var ErrGrammar = errors.New("structured output")

// constraint is what limits a request's tokens, nil for nothing. Thinking is free text; the
// grammar begins after it.
func (m *Model) constraint(ctx context.Context, r *Request) (func() sample.Constraint, error) {
	var after func() sample.Constraint
	if !r.Grammar.IsZero() {
		g, err := m.grammar(ctx, r.Grammar)
		if err != nil {
			return nil, err
		}
		after = func() sample.Constraint { return g.Matcher() }
	}
	if !r.Prompt.Thinking || after == nil && r.MaxThinking == 0 {
		return after, nil
	}
	end, ok := m.tok.ID("</think>")
	if !ok {
		return nil, fmt.Errorf("model %s: a limit of thinking, or a grammar of what follows it: the tokenizer has no token </think>", m.name)
	}
	// The text that the model's makers close a block with. A grammar says itself what follows.
	closing := "\n</think>\n\n"
	if after != nil {
		closing = "\n</think>"
	}
	ids := m.tok.Encode(closing)
	return func() sample.Constraint {
		t := &thinking{
			end: end, closing: ids, left: r.MaxThinking, limited: r.MaxThinking > 0, words: make([]uint64, (m.vocab+63)/64),
		}
		if after != nil {
			t.after = after()
		}
		return t
	}, nil
}

// thinking is free text up to a number of tokens; then its block is closed, token
// by token, and another constraint applies to what comes after.
type thinking struct {
	end     int32   // the token that ends the block
	closing []int32 // what closes it when it is too long
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
	case !then.over() && then.limited && then.left <= 0:
		clear(t.words)
		id := then.closing[then.at]
		t.words[id/64] |= 1 << (id % 64)
		return t.words
	case !then.over() || t.after == nil:
		return nil
	default:
		return t.after.Allowed(ahead)
	}
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
	if t.limited && t.left <= 0 {
		t.at++
	}
	t.left--
	t.done = t.done || id == t.end
}
