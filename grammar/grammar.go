// Package grammar is constrained decoding: it keeps generated text in JSON, in JSON of a
// schema, in a regular expression, in a Lark grammar, in one of several texts, or in a sequence
// of such. It says which tokens may come next, so that a sampler never chooses another one.
//
// It knows bytes and the bytes of tokens. It knows nothing of logits, models, sampling or
// where the tokens come from. docs/structured-output.md says which schemas it takes and
// what it makes of them.
//
// A grammar becomes a pushdown automaton over bytes. Its lowest level are deterministic
// automata for everything that does not nest: strings, numbers, punctuation with white
// space, regular expressions. What a state of one of these says about the tokens of a
// vocabulary does not depend on what is around it, save for tokens that go beyond its end;
// so it is worked out once, when it is first needed, and a mask is put together from few
// such results and a look at the tokens beyond. The text so far is a set of stacks that
// share their parts (Tomita, 1985), which makes alternatives cost no more than their sum.
package grammar

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
)

// maxFacts bounds, in bytes, what a grammar remembers about tokens, and maxAllFacts what all
// grammars of a vocabulary do that are still in use or kept. What goes beyond is worked out
// again each time.
const (
	maxFacts    = 64 << 20
	maxAllFacts = 256 << 20
)

// Grammar is a source compiled for a vocabulary. It may be used by several goroutines at
// once, and should be used again for requests with the same source: what it finds out about
// the tokens makes it faster.
type Grammar struct {
	program *program
	vocab   *Vocab
	fixed   int64 // bytes of the program
	learned *ledger
}

// ledger is the bytes of facts that a grammar remembers, which count for its vocabulary until
// the grammar is gone.
type ledger struct {
	bytes atomic.Int64
	all   *atomic.Int64
}

// add counts n bytes more, unless that is too much.
func (l *ledger) add(n int64) bool {
	if l.bytes.Add(n) > maxFacts {
		l.bytes.Add(-n)
		return false
	}
	if l.all.Add(n) > maxAllFacts {
		l.all.Add(-n)
		l.bytes.Add(-n)
		return false
	}
	return true
}

// Compile prepares a source for a vocabulary.
func Compile(s Source, v *Vocab) (*Grammar, error) {
	return CompileContext(context.Background(), s, v)
}

// CompileContext is Compile for as long as the result is wanted: when ctx ends, so does it,
// with the error of ctx.
func CompileContext(ctx context.Context, s Source, v *Vocab) (*Grammar, error) {
	b := newBuilder()
	b.work.ctx = ctx
	root, err := s.build(b)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("grammar: %w", err)
	}
	p, err := b.finish(root)
	if err != nil {
		return nil, fmt.Errorf("grammar: %s: %w", s.name, err)
	}
	g := &Grammar{program: p, vocab: v, fixed: p.bytes(), learned: &ledger{all: &v.learned}}
	runtime.AddCleanup(g, func(l *ledger) { l.all.Add(-l.bytes.Load()) }, g.learned)
	return g, nil
}

// Bytes is the memory of the grammar, about. It grows to a limit while the grammar is used.
func (g *Grammar) Bytes() int64 { return g.fixed + g.learned.bytes.Load() }

// facts is what a state of an automaton of the grammar says about the tokens. Two goroutines
// may work out the same; either result is as good.
func (g *Grammar) facts(w *walker, l *lex, s int32) *facts {
	if f := l.facts[s].Load(); f != nil {
		return f
	}
	f := w.facts(l.dfa, s)
	if n := int64(f.bytes()); g.learned.add(n) && !l.facts[s].CompareAndSwap(nil, f) {
		g.learned.add(-n) // another goroutine stored its own first
	}
	return f
}

// textFacts is the same for the strings of JSON, which all grammars share.
func (v *Vocab) textFacts(w *walker, s int32) *facts {
	f := v.text[s].Load()
	if f == nil {
		f = w.facts(textDFA(), s)
		v.text[s].Store(f)
	}
	return f
}
