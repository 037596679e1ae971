package measure

import (
	"fmt"
	"math"
	"time"

	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// Tokens of a self-test. The first tokens go in chunks, which is cheap and measures how often a
// first draft token is accepted; the rest one by one, each with draft tokens after it, which
// measures the cost of rounds and how often later draft tokens are accepted.
const (
	TestTokens = 96 // maximum tokens of the text that are used
	testDepth  = 3  // maximum draft tokens at once

	testLead  = 32 // tokens fed in chunks
	testChunk = 8  // small: a chunk's logits are kept, and a vocabulary is large
	testSkip  = 4  // tokens at the start of the text that nothing could predict
)

// testDepths are the depths of the rounds, repeated. Every cost is measured once in the
// first four, for machines without time for more.
var testDepths = [...]int{3, 2, 1, 0, 3, 3, 3, 3}

// SelfTestResult is the result of a self-test of a drafter on this machine.
type SelfTestResult struct {
	// Drafted and Accepted count draft tokens by position. A token after a rejected one does
	// not count as drafted.
	Drafted, Accepted [testDepth]int

	StepTime   time.Duration // a pass over one token
	DraftTime  time.Duration // one draft token
	Depth      int           // the fastest depth, at most testDepth
	Speedup    float64       // tokens per second expected at that depth, as a multiple of plain decoding
	DraftVocab int           // frequent tokens in the fastest draft vocabulary; 0: it was fixed

	Controller *spec.Controller // has these measurements, for engine.Options
}

// Rate is how often draft token j is accepted if those before it are, 0 if none was drafted.
func (r *SelfTestResult) Rate(j int) float64 {
	return float64(r.Accepted[j]) / float64(max(r.Drafted[j], 1))
}

// Broken reports that acceptance is so low that the drafter's weights must be wrong.
// The weakest sound head we know, that of a model with 21 million parameters, has
// more than half of its first draft tokens accepted, while one whose norms are wrong may still
// have a quarter. sqrt(n) is two standard errors of n coin tosses: the fewer draft tokens there are,
// the lower their acceptance must be.
func (r *SelfTestResult) Broken() bool {
	n, sound := float64(r.Drafted[0]), 0.45
	return float64(r.Accepted[0])+math.Sqrt(n) < sound*n
}

// SelfTestOptions configure a SelfTest.
type SelfTestOptions struct {
	Vocab int           // draft tokens are compared with the model's own greedy choice among that many ids, not with the text
	Limit time.Duration // the test stops then, but not before every cost is known
	// Controller has the measurements of other drafters of the model, nil: none, and gets those of this one.
	Controller *spec.Controller
	Source     spec.Source // of the drafter's tokens
}

// SelfTest feeds a text to the model, drafts along it, and measures the acceptance of draft tokens and
// the costs of drafting and verifying. A drafter whose vocabulary can be limited
// is left with the fastest one. When it returns the model is free and all states are closed; the pool needs free
// space for TestTokens, or for the text if that is shorter.
func SelfTest(m model.Model, pool *state.Pool, d spec.Drafter, text []int32, o SelfTestOptions) (*SelfTestResult, error) {
	deadline := time.Now().Add(o.Limit)
	text = text[:min(len(text), TestTokens)]
	rounds := len(text) - testLead - testDepth // so that drafts take no more space than the text
	if rounds < len(testDepths) {
		return nil, fmt.Errorf("measure: a self-test needs a text of %d tokens, got %d", testLead+testDepth+len(testDepths), len(text))
	}
	seq, err := Open(m, d, pool, o.Vocab)
	if err != nil {
		return nil, err
	}
	defer seq.Close()
	t := &selfTest{Sequence: seq, text: text, controller: o.Controller, source: o.Source, record: spec.From(o.Source)}
	if t.controller == nil {
		t.controller = spec.NewController()
	}
	if b, ok := d.(spec.Blocker); ok {
		t.controller.Blocks[o.Source] = b.Drafts()
	}
	if err := t.lead(); err != nil {
		return nil, err
	}
	for i := range rounds {
		if i >= len(testDepths)/2 && time.Now().After(deadline) {
			break
		}
		if err := t.round(testLead+i, testDepths[(i+1)%len(testDepths)]); err != nil {
			return nil, err
		}
	}
	return t.finish(), nil
}

// selfTest is a running SelfTest.
type selfTest struct {
	*Sequence
	text   []int32
	drafts []int32       // after the text fed so far
	chunk  time.Duration // of the last pass of the lead

	result     SelfTestResult
	controller *spec.Controller
	source     spec.Source
	record     *spec.Record
	passes     [testDepth + 2][]float64 // seconds, by rows
	draftings  [testDepth + 1][]float64 // seconds, by depth
}

// lead feeds the first tokens in chunks and has one token drafted after each.
func (t *selfTest) lead() (err error) {
	var greedy [testChunk]int32
	for at := 0; at < testLead; at += testChunk {
		if t.chunk, err = t.Prefill(t.text[at:at+testChunk], testChunk); err != nil {
			return err
		}
		if err := t.greedy(greedy[:]); err != nil {
			return err
		}
		for i := range testChunk {
			// The draft of the previous row was for the token after this one. No draft, after NaN output
			// of the drafter, counts as a wrong one.
			if at+i >= testSkip {
				accepted := 0
				if len(t.drafts) > 0 && t.drafts[0] == greedy[i] {
					accepted = 1
				}
				t.count(1, accepted)
			}
			depth := 1
			if at+i == testLead-1 {
				if err := t.chooseVocab(i); err != nil {
					return err
				}
				depth = testDepths[0]
			}
			if t.drafts, _, err = t.Draft(t.text[:at+i+2], i, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// count adds a draft of which the first accepted tokens were accepted.
func (t *selfTest) count(drafted, accepted int) {
	t.controller.Report(t.record, spec.Outcome{Drafted: drafted, Accepted: accepted, Tokens: 1 + accepted})
	for j := range min(drafted, accepted+1) {
		t.result.Drafted[j]++
	}
	for j := range accepted {
		t.result.Accepted[j]++
	}
}

// round feeds the token at pos with the draft after it, and has depth tokens drafted after the
// next token of the text.
func (t *selfTest) round(pos, depth int) error {
	accepted, took, err := t.Pass(t.text[pos], t.drafts...)
	if err != nil {
		return err
	}
	rows := len(t.drafts) + 1
	t.passes[rows] = append(t.passes[rows], took.Seconds())
	t.count(len(t.drafts), accepted)
	if t.drafts, took, err = t.Draft(t.text[:pos+2], 0, depth); err == nil {
		t.draftings[depth] = append(t.draftings[depth], took.Seconds())
	}
	return err
}

// finish computes the result. Each kind of time is represented by its median:
// a single disturbed measurement does not decide.
func (t *selfTest) finish() *SelfTestResult {
	r, c := &t.result, t.controller
	// Without drafts there are no passes with drafts, but always plain ones.
	costs := rising(t.passes[:], 0.5, 1)
	// In turn, from the smallest: several passes of one size after each other would look like a change of the machine's speed.
	for range len(t.passes[1]) {
		for rows := 1; rows <= testDepth+1; rows++ {
			if len(t.passes[rows]) > 0 {
				c.ObservePass(rows, duration(costs[rows]))
			}
		}
	}
	r.StepTime = duration(costs[1])
	for depth, times := range t.draftings {
		for range times {
			c.ObserveDraft(t.source, []int{depth}, 0, duration(Median(times)))
		}
	}
	r.DraftTime = duration(Median(t.draftings[testDepth])) / testDepth
	unknown := spec.From(t.source) // any sequence
	for depth := range testDepth + 1 {
		if s := c.Rate(unknown, depth) / c.Rate(unknown, 0); s > r.Speedup {
			r.Depth, r.Speedup = depth, s
		}
	}
	r.Controller = c
	return r
}

// duration is a number of seconds.
func duration(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}
