package prompt

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/dialogue"
	"github.com/foretoken/foretoken/sample"
)

// Constraint limits the tokens of an answer to p: nil for no limit. Thinking is free text of at most
// most tokens, 0 for no limit; the constraint after, if it is not nil, begins behind it.
func (b *Builder) Constraint(p *Prompt, after func() sample.Constraint, most int) (func() sample.Constraint, error) {
	if !p.Thinking && p.Opens == "" || after == nil && most == 0 {
		return after, nil
	}
	tag := p.thinks.Tags.Known().Close
	end, ok := b.tok.ID(tag)
	if !ok {
		return nil, fmt.Errorf("model %s: a thinking limit, or a grammar after thinking, needs the token %s, which the tokenizer does not have", b.name, tag)
	}
	// The text that the template closes a block with. A grammar says itself what follows.
	thinks := p.thinks
	if thinks.Close == "" { // the prompt is the caller's own
		thinks = dialogue.Thinking{Close: "\n</think>", Apart: "\n\n"}
	}
	closing := thinks.Close
	if after == nil {
		closing += thinks.Apart
	}
	opening, ids := b.tok.Encode(p.Opens), b.tok.Encode(closing)
	var free []uint64
	if after != nil {
		free = b.unended()
	}
	return func() sample.Constraint {
		t := &thinking{
			opening: opening, end: end, closing: ids, free: free, left: most, limited: most > 0, words: make([]uint64, (b.vocab+63)/64),
		}
		if after != nil {
			t.after = after()
		}
		return t
	}, nil
}

// unended is all tokens but those that end a text.
func (b *Builder) unended() []uint64 {
	words := make([]uint64, (b.vocab+63)/64)
	for i := range b.vocab {
		words[i/64] |= 1 << (i % 64)
	}
	for _, id := range b.stops {
		if int(id) < b.vocab {
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
