package ngram

import (
	"path/filepath"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/tokenizer"
)

// tally is what drafting an answer came to.
type tally struct{ tokens, rounds, drafted, accepted int }

func (x *tally) add(y tally) {
	x.tokens, x.rounds, x.drafted, x.accepted = x.tokens+y.tokens, x.rounds+y.rounds, x.drafted+y.drafted, x.accepted+y.accepted
}

// dictate has a known answer drafted for, with up to most tokens a round.
func dictate(t *testing.T, prompt, answer []int32, most int) (x tally) {
	t.Helper()
	d, run := open(t, Options{})
	run[0].Prompt = len(prompt)
	text := append(append(make([]int32, 0, len(prompt)+len(answer)), prompt...), answer[0])
	x.tokens = len(answer)
	for at := 1; at < len(answer); x.rounds++ {
		tokens, _ := draft(t, d, run, text, min(most, len(answer)-at-1))
		x.drafted += len(tokens)
		for _, id := range tokens {
			if id != answer[at] {
				break
			}
			text, at = append(text, id), at+1
			x.accepted++
		}
		text, at = append(text, answer[at]), at+1
	}
	return x
}

// TestEditsAreCopied drafts for texts that are rewritten with small changes. Copies of up to spec.MaxCopy
// tokens must take at most two thirds of the rounds of copies of spec.MaxDepth tokens.
func TestEditsAreCopied(t *testing.T) {
	data := filetest.Read(t, filepath.Join(golden.Dir(t, "tiny"), "tokenizer.json"))
	tok, err := tokenizer.New(data)
	if err != nil {
		t.Fatal(err)
	}
	var short, long tally
	for _, e := range golden.Edits(t) {
		prompt, answer := tok.Encode(e.Prompt()), tok.Encode(e.Answer())
		a, b := dictate(t, prompt, answer, spec.MaxDepth), dictate(t, prompt, answer, spec.MaxCopy)
		t.Logf("%-8s %5d tokens after %5d: %4d rounds, %5d of %5d copies accepted; up to %d tokens: %4d rounds, %5d of %5d", e.Name,
			len(answer), len(prompt), a.rounds, a.accepted, a.drafted, spec.MaxCopy, b.rounds, b.accepted, b.drafted)
		short.add(a)
		long.add(b)
	}
	t.Logf("all: %+v, %+v", short, long)
	if 3*long.rounds > 2*short.rounds {
		t.Errorf("%d rounds with copies of up to %d tokens, %d with up to %d", long.rounds, spec.MaxCopy, short.rounds, spec.MaxDepth)
	}
}
