package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/mtp"
	"github.com/foretoken/foretoken/internal/spec/ngram"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/internal/tokenizer"
	"github.com/foretoken/foretoken/sample"
)

// structured are the answers that forced drafts are measured with.
var structured = []struct {
	name   string
	source grammar.Source
}{
	{"enums", grammar.Schema([]byte(`{"type": "object", "additionalProperties": false, "required": ["color", "size", "material", "available"],
		"properties": {"color": {"enum": ["red", "green", "blue"]}, "size": {"enum": ["small", "medium", "large"]},
			"material": {"enum": ["cotton", "wool", "leather"]}, "available": {"type": "boolean"}}}`))},
	{"nested", grammar.Schema([]byte(`{"type": "object", "additionalProperties": false, "required": ["person", "address"], "properties": {
		"person": {"type": "object", "additionalProperties": false, "required": ["name", "age"],
			"properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 1, "maximum": 99}}},
		"address": {"type": "object", "additionalProperties": false, "required": ["street", "city"],
			"properties": {"street": {"type": "string", "maxLength": 20}, "city": {"type": "string", "maxLength": 20}}}}}`))},
	{"array", grammar.Schema([]byte(`{"type": "array", "minItems": 3, "maxItems": 4, "items": {"type": "object", "additionalProperties": false,
		"required": ["name", "kind", "count"], "properties": {"name": {"type": "string", "maxLength": 20},
			"kind": {"enum": ["animal", "plant", "stone"]}, "count": {"type": "integer", "minimum": 0, "maximum": 99}}}}`))},
	{"tool", grammar.Sequence(grammar.Literal("<tool_call>\n{\"name\": \"weather\", \"arguments\": "),
		grammar.Schema([]byte(`{"type": "object", "additionalProperties": false, "required": ["location", "unit"],
			"properties": {"location": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius", "fahrenheit"]}}}`)),
		grammar.Literal("}\n</tool_call>"))},
	{"keys", grammar.Schema([]byte(`{"type": "object", "additionalProperties": false,
		"required": ["estimatedDeliveryDate", "customerSatisfactionScore", "recommendedNextAction"], "properties": {
			"estimatedDeliveryDate": {"type": "string", "format": "date"}, "customerSatisfactionScore": {"type": "integer", "minimum": 0, "maximum": 10},
			"recommendedNextAction": {"enum": ["contactCustomerSupport", "scheduleFollowUpMeeting", "closeTheConversation"]}}}`))},
}

// spelling is a vocabulary in which settled text is written as the tokenizer writes it.
func spelling(t testing.TB, tok *tokenizer.Tokenizer, stop []int32) *grammar.Vocab {
	t.Helper()
	v := newVocab(t, tok, stop)
	v.SetEncoder(func(text string, more bool) []int32 {
		if more {
			return tok.EncodeOpen(text)
		}
		return tok.Encode(text)
	})
	return v
}

// limited allows everything for a number of tokens and then demands a text, as a limit of
// thinking does.
type limited struct {
	free, said int
	demanded   []int32
}

func (l *limited) Allowed(ahead []int32) []uint64 {
	at := l.said + len(ahead) - l.free
	if at < 0 || at >= len(l.demanded) {
		return nil
	}
	mask := make([]uint64, l.demanded[at]/64+1)
	mask[l.demanded[at]/64] |= 1 << (l.demanded[at] % 64)
	return mask
}

func (l *limited) Accept(int32) { l.said++ }

// forcing runs requests of which tokens are forced.
type forcing struct {
	testing.TB
	model       model.Model
	pool        *state.Pool
	prompt      []int32
	constraints []func() sample.Constraint

	mu     sync.Mutex // protects what follows
	forced int        // tokens
}

// openForcing has the answers of structured, one grammar that says nothing but a long text, and
// a limit of thinking.
func openForcing(t testing.TB) *forcing {
	t.Helper()
	m, pool, tok := openTiny(t)
	f := &forcing{TB: t, model: m, pool: pool, prompt: tok.Encode("Once upon a time there was a")}
	v := spelling(t, tok, m.Info().Stop)
	add := func(s grammar.Source) {
		g, err := grammar.Compile(s, v)
		if err != nil {
			t.Fatal(err)
		}
		f.constraints = append(f.constraints, func() sample.Constraint { return g.Matcher() })
	}
	for _, s := range structured {
		add(s.source)
	}
	add(grammar.Literal("She went to the park and saw a big dog. The dog was happy. They played with a ball until it was dark, and then they went home."))
	closing := tok.Encode("\n</think>\n\n")
	f.constraints = append(f.constraints, func() sample.Constraint { return &limited{free: 9, demanded: closing} })
	return f
}

// said is the exact result of a request.
type said struct {
	ids      []int32
	logProbs []float32
	tops     []sample.LogProb
	hash     uint64
	finish   engine.Finish
}

func (s *said) equal(o *said) bool {
	return slices.Equal(s.ids, o.ids) && slices.Equal(s.logProbs, o.logProbs) && slices.Equal(s.tops, o.tops) && s.hash == o.hash && s.finish == o.finish
}

// requests are all constraints with all samplings; odd ones want no hash and no
// log-probabilities, so that whole rows are not read.
func (f *forcing) requests(samplings []sample.Options) (list []engine.Request) {
	for _, c := range f.constraints {
		for i, o := range samplings {
			o.Constraint = c
			r := engine.Request{Prompt: f.prompt, MaxTokens: 70, Sampling: o}
			if (len(list)+i)%2 == 0 {
				r.Hash, r.LogProbs, r.TopLogProbs = true, true, 2
			}
			list = append(list, r)
		}
	}
	return list
}

// run generates one request.
func (f *forcing) run(e *engine.Engine, r engine.Request) (o said) {
	s, err := e.Generate(context.Background(), r)
	if err != nil {
		f.Error(err)
		return o
	}
	forced := 0
	for token, err := range s.Tokens() {
		if err != nil {
			f.Error(err)
			return o
		}
		if token.Forced {
			forced++
		}
		o.ids, o.logProbs, o.tops = append(o.ids, token.ID), append(o.logProbs, token.LogProb), append(o.tops, token.Top...)
	}
	x := s.Result()
	o.hash, o.finish = x.LogitsHash, x.Finish
	stats := &x.Speculation
	gave := stats.Rounds + stats.Accepted + stats.Forced
	if stats.Forced != forced || gave < len(o.ids) || gave > len(o.ids)+1 { // nothing follows a draft that ends the text
		f.Errorf("%d tokens, %d of them forced, in %+v", len(o.ids), forced, stats)
	}
	f.mu.Lock()
	f.forced += forced
	f.mu.Unlock()
	return o
}

// all runs requests on an engine, at once or one after the other.
func (f *forcing) all(o engine.Options, requests []engine.Request, atOnce bool) []said {
	e, err := engine.New(f.model, f.pool, o)
	if err != nil {
		f.Fatal(err)
	}
	defer e.Close()
	f.forced = 0
	got := make([]said, len(requests))
	var wg sync.WaitGroup
	for i, r := range requests {
		wg.Go(func() { got[i] = f.run(e, r) })
		if !atOnce {
			wg.Wait()
		}
	}
	wg.Wait()
	return got
}

// TestForcedDraftsChangeNothing checks exactness: tokens, log-probabilities and bits of the
// logits are the same whether forced tokens are fed as drafts or one by one, whatever drafts
// beside them, at every depth, in a batch and in rounds that are too short for them. Usually each
// engine has every constraint with one of the samplings; in the long version with both, and there are
// more engines.
func TestForcedDraftsChangeNothing(t *testing.T) {
	f := openForcing(t)
	requests := f.requests([]sample.Options{
		{},
		{Temperature: 1.1, TopK: 50, TopP: 0.95, Seed: 7, RepetitionPenalty: 1.1},
	})
	plain := slices.Clone(requests)
	for i := range plain {
		plain[i].NoForced, plain[i].Depth = true, spec.DepthOff
	}
	want := f.all(engine.Options{}, plain, false)
	if f.forced != 0 {
		t.Fatalf("%d tokens forced though none were to be", f.forced)
	}
	lookup, err := ngram.New(ngram.Options{})
	if err != nil {
		t.Fatal(err)
	}
	head := mtp.New(f.model.Head(), mtp.Options{Vocab: f.model.Info().Vocab})
	for k, c := range []struct {
		name    string
		drafter spec.Drafter
		depth   spec.Depth
		round   int
		atOnce  bool
		long    bool // only in the long version
	}{
		{name: "no drafter", long: true},
		{name: "no drafter, at once", atOnce: true},
		{name: "off", drafter: head, depth: spec.DepthOff},
		{name: "head, auto", drafter: head, atOnce: true},
		{name: "head, depth 1", drafter: head, depth: 1, long: true},
		{name: "head, depth 3", drafter: head, depth: 3, atOnce: true, long: true},
		{name: "head, depth 8, short rounds", drafter: head, depth: 8, round: 17, atOnce: true},
		{name: "lookup", drafter: lookup, depth: 3},
		{name: "both", drafter: spec.Auto(head, lookup), atOnce: true, round: 40},
	} {
		if c.long && !engine.Long {
			continue
		}
		var some []engine.Request
		var expect []said
		total := 0
		for i, r := range requests { // two for each constraint
			if r.Depth = c.depth; engine.Long || (i+i/2+k)%2 == 0 {
				some, expect = append(some, r), append(expect, want[i])
				total += len(want[i].ids)
			}
		}
		got := f.all(engine.Options{Drafter: c.drafter, RoundTokens: c.round}, some, c.atOnce)
		for i := range got {
			if !got[i].equal(&expect[i]) {
				t.Errorf("%s, request %d: %v, want %v", c.name, i, got[i], expect[i])
			}
		}
		t.Logf("%s: %d of %d tokens forced", c.name, f.forced, total)
		if f.forced*4 < total {
			t.Errorf("%s: only %d of %d tokens were forced", c.name, f.forced, total)
		}
	}
}

// TestForcedDraftsUnderTheRatioRule checks that its text does not depend on the batch, and that
// there is nothing to reject where nothing else is drafted.
func TestForcedDraftsUnderTheRatioRule(t *testing.T) {
	f := openForcing(t)
	requests := f.requests([]sample.Options{{Temperature: 0.9, Seed: 3}})
	for i := range requests {
		requests[i].Rule, requests[i].Depth = spec.Ratio, 2
	}
	head := mtp.New(f.model.Head(), mtp.Options{Vocab: f.model.Info().Vocab})
	want := f.all(engine.Options{Drafter: head}, requests, false)
	for i, got := range f.all(engine.Options{Drafter: head, RoundTokens: 64}, requests, true) {
		if !got.equal(&want[i]) {
			t.Errorf("request %d: %v, alone %v", i, got, want[i])
		}
	}
	for i := range requests {
		requests[i].Depth = spec.DepthOff
	}
	forced := f.all(engine.Options{}, requests, true)
	for i := range requests {
		requests[i].NoForced = true
	}
	for i, got := range f.all(engine.Options{}, requests, true) {
		if !got.equal(&forced[i]) {
			t.Errorf("request %d: %v, with forced drafts %v", i, got, forced[i])
		}
	}
}

// TestForcedRunsFillRounds checks that a run of forced tokens longer than any draft is fed at
// once, to a model that cannot roll anything back, too.
func TestForcedRunsFillRounds(t *testing.T) {
	f := openForcing(t)
	literal := engine.Request{Prompt: f.prompt, Sampling: sample.Options{Constraint: f.constraints[len(structured)]}, Depth: spec.DepthOff}
	e, err := engine.New(f.model, f.pool, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s, err := e.Generate(t.Context(), literal)
	if err != nil {
		t.Fatal(err)
	}
	r := s.Result()
	if most := 1 + (r.Tokens+spec.MaxForced-1)/spec.MaxForced; r.Tokens < 2*spec.MaxForced/2 || r.Speculation.Rounds > most {
		t.Errorf("%d tokens in %d rounds, want at most %d", r.Tokens, r.Speculation.Rounds, most)
	}
}

// BenchmarkStructured generates the structured answers with the embedded model, several at a time,
// alternating with and without forced drafts: tokens per second, and how many are forced.
func BenchmarkStructured(b *testing.B) {
	f := openForcing(b)
	head := mtp.New(f.model.Head(), mtp.Options{Vocab: f.model.Info().Vocab})
	for _, drafter := range []spec.Drafter{nil, head} {
		name := "none"
		if drafter != nil {
			name = drafter.Name()
		}
		for _, batch := range []int{1, 4, 8} {
			for i, s := range structured {
				b.Run(fmt.Sprintf("drafter=%s/batch=%d/answer=%s", name, batch, s.name), func(b *testing.B) {
					e, err := engine.New(f.model, f.pool, engine.Options{Drafter: drafter})
					if err != nil {
						b.Fatal(err)
					}
					defer e.Close()
					var rates [2][]float64
					tokens, forced := 0, 0
					for b.Loop() {
						for k := range rates {
							start, all := time.Now(), 0
							for _, r := range f.answers(e, i, batch, k == 0) {
								all += r.Tokens
								tokens, forced = tokens+r.Tokens, forced+r.Speculation.Forced
							}
							rates[k] = append(rates[k], float64(all)/time.Since(start).Seconds())
						}
					}
					middle := func(list []float64) float64 { return slices.Sorted(slices.Values(list))[len(list)/2] }
					b.ReportMetric(middle(rates[0]), "plain-tok/s")
					b.ReportMetric(middle(rates[1]), "tok/s")
					b.ReportMetric(middle(rates[1])/middle(rates[0]), "ratio")
					b.ReportMetric(2*float64(forced)/float64(tokens), "forced/token")
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}

// answers generates n answers under one constraint at once, the first greedily.
func (f *forcing) answers(e *engine.Engine, constraint, n int, noForced bool) []engine.Result {
	streams := make([]*engine.Stream, n)
	for i := range streams {
		o := sample.Options{Constraint: f.constraints[constraint]}
		if i > 0 {
			o.Temperature, o.Seed = 0.7, uint64(i)
		}
		var err error
		if streams[i], err = e.Generate(context.Background(), engine.Request{Prompt: f.prompt, MaxTokens: 200, NoForced: noForced, Sampling: o}); err != nil {
			f.Fatal(err)
		}
	}
	results := make([]engine.Result, n)
	for i, s := range streams {
		results[i] = s.Result()
	}
	return results
}
