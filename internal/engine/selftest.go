package engine

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// What a self-test reads. The first tokens are read in chunks, which is cheap and tells how
// often a first guess holds; the others one by one, each with guesses after it, which tells
// what rounds cost and how often later guesses hold.
const (
	TestTokens = 96 // most tokens of the text that are used
	TestDepth  = 3  // most tokens guessed at once

	testLead  = 32 // tokens read in chunks
	testChunk = 8  // small: a chunk's logits are kept, and a vocabulary is large
	testSkip  = 4  // tokens at the beginning that nobody could guess
)

// testDepths are the depths of the rounds, repeated. Every cost is measured once in the
// first four, for machines where there is no time for more.
var testDepths = [...]int{3, 2, 1, 0, 3, 3, 3, 3}

// Verdict is what a self-test has found out about a drafter on this machine.
type Verdict struct {
	Drafted, Accepted [TestDepth]int // guesses by position, made after right ones only, and how many were right

	StepTime   time.Duration // a pass over one token
	DraftTime  time.Duration // one guess
	Depth      int           // how many guesses pay best, at most TestDepth
	Speedup    float64       // tokens per second expected at that depth, as a multiple of plain decoding
	DraftVocab int           // frequent tokens that a Shortlister best guesses among; 0: not for us to choose

	Controller *spec.Controller // knows all this, for Options.Controller
}

// Rate is how often guess j is right if those before it are, 0 if it was never made.
func (v *Verdict) Rate(j int) float64 {
	return float64(v.Accepted[j]) / float64(max(v.Drafted[j], 1))
}

// Broken reports that guesses were right so seldom that the drafter's weights cannot be
// what they should be. The weakest sound head we know, that of a model with 21 million
// parameters, is right at the first position in more than half of all cases, while one
// whose norms are wrong may still be in a quarter. sqrt(n) is two standard errors of n
// coins: few guesses have to be very bad ones to count as evidence.
func (v *Verdict) Broken() bool {
	n, sound := float64(v.Drafted[0]), 0.45
	return float64(v.Accepted[0])+math.Sqrt(n) < sound*n
}

// SelfTest reads a text with the model and lets the drafter guess along: how often is it
// right, and what do guesses and checking them cost? A Shortlister is left at the size that
// does best. Guesses are compared with the model's
// own favorites among the first vocab ids, not with the text. It stops at limit, though
// not before every cost is known. The model is free, and the memory given back, when it
// returns; the pool needs room for TestTokens, or for the text if that is shorter.
func SelfTest(m model.Model, p *state.Pool, d spec.Drafter, text []int32, vocab int, limit time.Duration) (v *Verdict, err error) {
	deadline := time.Now().Add(limit)
	text = text[:min(len(text), TestTokens)]
	rounds := len(text) - testLead - TestDepth // so that guesses take no more room than the text
	if rounds < len(testDepths) {
		return nil, fmt.Errorf("engine: a self-test needs a text of %d tokens, and has %d", testLead+TestDepth+len(testDepths), len(text))
	}
	t := &trial{model: m, drafter: d, text: text, learned: spec.NewController()}
	if t.sampler, err = sample.New(sample.Options{Vocab: vocab}, nil); err != nil {
		return nil, err
	}
	if t.target, err = p.Open(m.Layout()); err != nil {
		return nil, err
	}
	defer t.target.Close()
	if t.draftState, err = p.Open(d.Layout()); err != nil {
		return nil, err
	}
	defer t.draftState.Close()
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
	return t.judge(), nil
}

// trial is a running self-test.
type trial struct {
	model              model.Model
	drafter            spec.Drafter
	sampler            *sample.Sampler // greedy
	target, draftState *state.State
	hostState          any
	text               []int32
	draft              spec.Draft    // guesses after the text read so far
	chunk              time.Duration // of the last pass of the lead

	verdict Verdict
	learned *spec.Controller
	record  spec.Record
	verify  [TestDepth + 2][]time.Duration // by rows
	guess   [TestDepth + 1][]time.Duration // by depth
}

// lead reads the first tokens in chunks and has one guess made after each.
func (t *trial) lead() error {
	var favorites [testChunk]int32
	for at := 0; at < testLead; at += testChunk {
		start := time.Now()
		out, err := t.model.Forward([]model.Span{{State: t.target, Tokens: t.text[at : at+testChunk], Want: testChunk}})
		if err != nil {
			return err
		}
		t.chunk = time.Since(start)
		for i, row := range out.Logits[0] {
			if favorites[i] = t.sampler.Draw(t.sampler.Dist(row, nil)); favorites[i] < 0 {
				return errNoNumber
			}
		}
		for i := range testChunk {
			// The guess of the row before was for the token after this one. None at all, where
			// the drafter's output was not a number, is as bad as a wrong one.
			if at+i >= testSkip {
				accepted := 0
				if guess := t.draft.Tokens; len(guess) > 0 && guess[0] == favorites[i] {
					accepted = 1
				}
				t.count(1, accepted)
			}
			depth := 1
			if at+i == testLead-1 {
				if err := t.shorten(out, i); err != nil {
					return err
				}
				depth = testDepths[0]
			}
			if err := t.learn(out, i, at+i, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// count takes in that of some guesses so many were right before one was wrong.
func (t *trial) count(drafts, accepted int) {
	t.learned.Report(&t.record, spec.Outcome{Drafted: drafts, Accepted: accepted, Tokens: 1 + accepted})
	for j := range min(drafts, accepted+1) {
		t.verdict.Drafted[j]++
	}
	for j := range accepted {
		t.verdict.Accepted[j]++
	}
}

// learn gives the drafter the hidden row of the token at pos, and the token after that. It
// then guesses on.
func (t *trial) learn(out model.Output, row, pos, depth int) error {
	start := time.Now()
	drafts, err := t.drafter.Draft([]spec.Run{{
		State: t.draftState, HostState: &t.hostState, Text: t.text[:pos+2], Hidden: out.Hidden.RowRange(row, row+1), Depth: depth, Sampler: t.sampler,
	}})
	if err != nil {
		return err
	}
	if pos >= testLead { // what came before was to warm up
		t.guess[depth] = append(t.guess[depth], time.Since(start))
	}
	t.draft = drafts[0]
	return nil
}

// round reads the token at pos with the guesses after it, takes all of these back, and has
// so many made after the next token.
func (t *trial) round(pos, depth int) error {
	drafts := t.draft.Tokens
	span := model.Span{
		State: t.target, Tokens: append([]int32{t.text[pos]}, drafts...), Drafts: len(drafts), Want: len(drafts) + 1,
	}
	start := time.Now()
	out, err := t.model.Forward([]model.Span{span})
	if err != nil {
		return err
	}
	accepted, next := spec.Exact.Verify(t.sampler, t.draft, out.Logits[0])
	if next < 0 {
		return errNoNumber
	}
	rows := len(drafts) + 1
	t.verify[rows] = append(t.verify[rows], time.Since(start))
	t.count(len(drafts), accepted)
	t.target.Commit(0)
	return t.learn(out, 0, pos, depth)
}

// judge is the end of it. Of the times of one kind the median is taken for all of them:
// one in which the machine did something else is not to decide.
func (t *trial) judge() *Verdict {
	v, c := &t.verdict, t.learned
	// No pass is cheaper than one with fewer rows: where it seems so, the other was disturbed.
	// Where the drafter was silent there are no passes with guesses, but always plain ones.
	for rows, cost := TestDepth+1, time.Duration(math.MaxInt64); rows > 0; rows-- {
		if len(t.verify[rows]) > 0 {
			cost = min(cost, median(t.verify[rows]))
		}
		for range t.verify[rows] {
			c.ObservePass(rows, rows-1, cost)
		}
		v.StepTime = cost
	}
	for depth, times := range t.guess {
		for range times {
			c.ObserveDraft([]int{depth}, median(times))
		}
	}
	v.DraftTime = median(t.guess[TestDepth]) / TestDepth
	unknown := &spec.Record{} // any sequence
	for depth := range TestDepth + 1 {
		if s := c.Rate(unknown, depth) / c.Rate(unknown, 0); s > v.Speedup {
			v.Depth, v.Speedup = depth, s
		}
	}
	v.Controller = c
	return v
}

// median is the middle of some times, of which there is at least one.
func median(times []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(times))[len(times)/2]
}
