package foretoken

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/rescue"
)

// grammars caches compiled grammars of a model's vocabulary: clients send the same few again and
// again.
type grammars struct {
	vocab func() (*grammar.Vocab, error) // made when it is first wanted
	turns chan struct{}                  // one for each compilation that runs
	max   int64                          // maximum bytes of kept grammars

	mu      sync.Mutex // protects what follows
	recent  []compiled // the most recently used at the end
	pending map[grammar.Key]*compilation
}

type compiled struct {
	key     grammar.Key
	grammar *grammar.Grammar
}

// compilation is a running compilation, shared by all requests that wait for it.
type compilation struct {
	done    chan struct{} // closed when what follows is set
	grammar *grammar.Grammar
	err     error

	waiting int                // waiting requests; protected by the mutex of grammars
	cancel  context.CancelFunc // called when the last waiting request leaves
}

const (
	// maxGrammars and maxGrammarBytes limit the kept grammars. A grammar grows while it is used,
	// up to 64 MB; package grammar limits the sum of all.
	maxGrammars     = 32
	maxGrammarBytes = 192 << 20
	// maxCompilations is the maximum number at a time: a hostile one needs some tens of megabytes.
	maxCompilations = 4
)

func newGrammars(vocab func() (*grammar.Vocab, error)) *grammars {
	return &grammars{
		vocab: sync.OnceValues(vocab), turns: make(chan struct{}, maxCompilations),
		max: maxGrammarBytes, pending: map[grammar.Key]*compilation{},
	}
}

// ErrGrammar is wrapped by the error for a Request.Grammar that cannot be compiled.
var ErrGrammar = errors.New("structured output")

// get returns the grammar of a key, compiled if need be: once for all requests for the key, without
// delaying requests for others, and canceled when the last waiting request leaves.
func (g *grammars) get(ctx context.Context, key grammar.Key, compile func(context.Context) (*grammar.Grammar, error)) (*grammar.Grammar, error) {
	g.mu.Lock()
	if at := slices.IndexFunc(g.recent, func(c compiled) bool { return c.key == key }); at >= 0 {
		c := g.recent[at]
		g.recent = append(slices.Delete(g.recent, at, at+1), c)
		g.trim()
		g.mu.Unlock()
		return c.grammar, nil
	}
	c := g.pending[key]
	if c == nil {
		c = &compilation{done: make(chan struct{})}
		var work context.Context
		work, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
		g.pending[key] = c
		go g.run(work, key, c, compile)
	}
	c.waiting++
	g.mu.Unlock()
	select {
	case <-c.done:
		return c.grammar, c.err
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.waiting--; c.waiting == 0 {
		c.cancel()
		g.forget(key, c) // a later request starts another compilation
	}
	return nil, ctx.Err()
}

// run compiles a grammar when it is its turn.
func (g *grammars) run(ctx context.Context, key grammar.Key, c *compilation, compile func(context.Context) (*grammar.Grammar, error)) {
	defer c.cancel()
	defer close(c.done)
	select {
	case g.turns <- struct{}{}:
		defer func() { <-g.turns }()
	case <-ctx.Done():
		c.err = ctx.Err()
		return
	}
	c.grammar, c.err = func() (made *grammar.Grammar, err error) {
		defer rescue.To(&err)
		return compile(ctx)
	}()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget(key, c)
	if c.err == nil {
		g.recent = append(g.recent, compiled{key, c.grammar})
		g.trim()
	}
}

// forget removes a compilation, so that no more requests join it. The mutex is held.
func (g *grammars) forget(key grammar.Key, c *compilation) {
	if g.pending[key] == c {
		delete(g.pending, key)
	}
}

// trim evicts the least recently used grammars until the rest are few and
// small enough; the last stays. Answers that use one keep it. The mutex is held.
func (g *grammars) trim() {
	total := int64(0)
	for _, c := range g.recent {
		total += c.grammar.Bytes()
	}
	for len(g.recent) > 1 && (len(g.recent) > maxGrammars || total > g.max) {
		total -= g.recent[0].grammar.Bytes()
		g.recent = slices.Delete(g.recent, 0, 1)
	}
}
