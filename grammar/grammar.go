// Package grammar is constrained decoding: it restricts generated text to JSON, to JSON of a
// schema, to a regular expression, to a Lark grammar, to one of several texts, or to a sequence
// of such. It computes which tokens may come next, so that a sampler never chooses another one.
//
// It knows bytes and the bytes of tokens, but no logits, models or sampling.
// docs/structured-output.md lists the supported schemas and
// their meaning.
//
// A grammar becomes a pushdown automaton over bytes. Its lowest level are deterministic
// automata for everything that does not nest: strings, numbers, punctuation with white
// space, regular expressions. The relation of a state of these to the tokens of a
// vocabulary does not depend on its context, except for tokens that go beyond its end;
// so it is computed once, on demand, and a mask is combined from few
// such results and a check of the tokens beyond. The text so far is a set of stacks that
// share their parts (Tomita, 1985), so the cost of alternatives is at most their sum.
package grammar

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
)

// maxFacts is the maximum bytes that a grammar caches about tokens, and maxAllFacts that of all
// grammars of a vocabulary that are in use or kept. Results beyond that are computed
// again each time.
const (
	maxFacts    = 64 << 20
	maxAllFacts = 256 << 20
)

// Grammar is a source compiled for a vocabulary. It may be used by several goroutines at
// once, and should be reused for requests with the same source: its cache of tokens makes it
// faster.
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

// facts is the relation of a state of an automaton to the tokens. Two goroutines
// may compute the same; both results are equal.
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
