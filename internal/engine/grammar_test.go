package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	_ "github.com/foretoken/foretoken/internal/model/qwen35"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/mtp"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/internal/tokenizer"
	"github.com/foretoken/foretoken/sample"
)

// constrained is a request under a grammar, and a check of its text.
type constrained struct {
	name    string
	grammar *grammar.Grammar
	after   int32 // token from which on the grammar holds; -1: from the start
	check   func(text string) error
}

// constrain makes the request's constraint.
func (h *constrained) constrain() sample.Constraint {
	if h.after >= 0 {
		return &later{Constraint: h.grammar.Matcher(), from: h.after}
	}
	return h.grammar.Matcher()
}

// later is a constraint that begins after the first token from.
type later struct {
	sample.Constraint
	from  int32
	begun bool
}

func (l *later) Allowed(ahead []int32) []uint64 {
	if !l.begun {
		i := slices.Index(ahead, l.from)
		if i < 0 {
			return nil
		}
		ahead = ahead[i+1:]
	}
	return l.Constraint.Allowed(ahead)
}

func (l *later) Accept(id int32) {
	if l.begun {
		l.Constraint.Accept(id)
	}
	l.begun = l.begun || id == l.from
}

// openTiny opens the embedded model's checkpoint with its tokenizer.
func openTiny(t testing.TB) (model.Model, *state.Pool, *tokenizer.Tokenizer) {
	t.Helper()
	dir := golden.Dir(t, "tiny")
	r := modeltest.Open(t, dir, 0, model.Options{Compute: backend.Int8, MaxDrafts: spec.MaxDepth})
	data := filetest.Read(t, filepath.Join(dir, "tokenizer.json"))
	tok, err := tokenizer.New(data)
	if err != nil {
		t.Fatal(err)
	}
	return r.Model, r.Pool, tok
}

// newVocab prepares a tokenizer's tokens: control tokens never, the model's stop tokens at
// the end only.
func newVocab(t testing.TB, tok *tokenizer.Tokenizer, stop []int32) *grammar.Vocab {
	t.Helper()
	tokens := make([]string, tok.Size())
	for id := range tokens {
		if !tok.Special(int32(id)) {
			tokens[id], _ = tok.Token(int32(id))
		}
	}
	v, err := grammar.NewVocab(tokens, stop)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func constrainedRequests(t *testing.T, v *grammar.Vocab, period int32) []constrained {
	t.Helper()
	compile := func(s grammar.Source) *grammar.Grammar {
		g, err := grammar.Compile(s, v)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	cat := compile(grammar.Schema([]byte(`{"type": "object", "additionalProperties": false,
		"properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 1, "maximum": 20},
			"likes": {"type": "array", "items": {"enum": ["fish", "milk", "sun"]}, "minItems": 1, "maxItems": 3}},
		"required": ["name", "age", "likes"]}`)))
	checkCat := func(text string) error {
		var got struct {
			Name  string   `json:"name"`
			Age   int      `json:"age"`
			Likes []string `json:"likes"`
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&got); err != nil {
			return err
		}
		if len([]rune(got.Name)) > 12 || got.Age < 1 || got.Age > 20 || len(got.Likes) < 1 || len(got.Likes) > 3 {
			return fmt.Errorf("%+v is not what the schema says", got)
		}
		return nil
	}
	answer := compile(grammar.Sequence(grammar.Regexp(`\n{0,2}`), grammar.Choice("yes", "no")))
	return []constrained{
		{"schema", cat, -1, checkCat},
		{"choice", compile(grammar.Choice("a cat", "a dog", "a bird")), -1, func(text string) error {
			if !slices.Contains([]string{"a cat", "a dog", "a bird"}, text) {
				return fmt.Errorf("%q is no choice", text)
			}
			return nil
		}},
		{"sentence", compile(grammar.Regexp(`[A-Z][a-z]+( [a-z]+){3,12}\.`)), -1, func(text string) error {
			if !strings.HasSuffix(text, ".") || strings.ContainsAny(text, ",\n\"") {
				return fmt.Errorf("%q is no sentence", text)
			}
			return nil
		}},
		{"after a sentence", answer, period, func(text string) error {
			if _, answer, _ := strings.Cut(text, "."); !slices.Contains([]string{"yes", "no"}, strings.TrimLeft(answer, "\n")) {
				return fmt.Errorf("answer %q", text)
			}
			return nil
		}},
	}
}

// trial is the requests under grammars with each of some samplings, on one model.
type trial struct {
	*testing.T
	model     model.Model
	pool      *state.Pool
	tok       *tokenizer.Tokenizer
	requests  []constrained
	samplings []sample.Options

	mu       sync.Mutex // protects what follows
	accepted int        // drafts that were accepted
	ended    int        // texts that ended by themselves
}

// outcome is the exact result of a request.
type outcome struct {
	ids  []int32
	hash uint64
}

// generate runs one request and checks its text.
func (t *trial) generate(e *engine.Engine, h *constrained, sampling sample.Options, depth spec.Depth) (o outcome) {
	sampling.Constraint = h.constrain
	s, err := e.Generate(context.Background(), engine.Request{
		Prompt: t.tok.Encode("Once upon a time there was"), MaxTokens: 60, Sampling: sampling, Hash: true, Depth: depth,
	})
	if err != nil {
		t.Errorf("%s, depth %v: %v", h.name, depth, err)
		return o
	}
	for token, err := range s.Tokens() {
		if err != nil {
			t.Errorf("%s, depth %v: %v", h.name, depth, err)
			return o
		}
		o.ids = append(o.ids, token.ID)
	}
	r := s.Result()
	o.hash = r.LogitsHash
	t.mu.Lock()
	defer t.mu.Unlock()
	t.accepted += r.Speculation.Accepted
	if r.Finish == engine.FinishStop {
		t.ended++
		if err := h.check(t.tok.Decode(o.ids[:len(o.ids)-1], false)); err != nil {
			t.Errorf("%s, depth %v: %v", h.name, depth, err)
		}
	}
	return o
}

// all runs every request with every sampling: one after the other without drafts, at once
// with them.
func (t *trial) all(depth spec.Depth) []outcome {
	e, err := engine.New(t.model, t.pool, engine.Options{Drafter: mtp.New(t.model.Head(), mtp.Options{Vocab: t.model.Info().Vocab})})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	got := make([]outcome, len(t.requests)*len(t.samplings))
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			got[i] = t.generate(e, &t.requests[i/len(t.samplings)], t.samplings[i%len(t.samplings)], depth)
		})
		if depth == spec.DepthOff {
			wg.Wait()
		}
	}
	wg.Wait()
	return got
}

// TestGrammarChangesNothingElse checks exactness under grammars: tokens and bits of the logits
// are the same with drafts of any depth, alone and in a batch, and the texts match the grammars.
func TestGrammarChangesNothingElse(t *testing.T) {
	m, pool, tok := openTiny(t)
	period, ok := tok.ID(".") // the model does not know how to end a block of thinking
	if !ok {
		t.Fatal("no token for a period")
	}
	r := &trial{
		T: t, model: m, pool: pool, tok: tok,
		requests: constrainedRequests(t, newVocab(t, tok, m.Info().Stop), period),
		samplings: []sample.Options{
			{},
			{Temperature: 0.8, TopK: 20, TopP: 0.95, Seed: 7, RepetitionPenalty: 1.1},
			{Temperature: 1.2, Seed: 8},
		},
	}
	if testing.Short() {
		r.samplings = r.samplings[:2]
	}
	want := r.all(spec.DepthOff)
	for i := range want {
		t.Logf("%s, sampling %d: %q", r.requests[i/len(r.samplings)].name, i%len(r.samplings), tok.Decode(want[i].ids, false))
	}
	for _, depth := range []spec.Depth{1, 2, 3, spec.DepthAuto} {
		for i, got := range r.all(depth) {
			if !slices.Equal(got.ids, want[i].ids) || got.hash != want[i].hash {
				t.Errorf("%s, sampling %d, depth %v: %q %x\nwithout drafts: %q %x", r.requests[i/len(r.samplings)].name, i%len(r.samplings), depth,
					tok.Decode(got.ids, false), got.hash, tok.Decode(want[i].ids, false), want[i].hash)
			}
		}
	}
	t.Logf("%d drafts accepted, %d texts ended", r.accepted, r.ended)
	if r.accepted < 50 || r.ended < len(want)*4 {
		t.Errorf("%d drafts accepted and %d of %d texts ended", r.accepted, r.ended, 5*len(want))
	}
}
