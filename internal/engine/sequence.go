package engine

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// Request is what to generate.
type Request struct {
	Prompt    []int32
	MaxTokens int            // 0: until the context is full
	Sampling  sample.Options // Seed included
	Stop      []int32        // ids that end the text, in place of the model's
	IgnoreEnd bool           // no id ends the text
	LogProbs  bool           // report the log-probability of each token
	Hash      bool           // compute Result.LogitsHash
	Depth     spec.Depth     // tokens to draft per round
	Rule      spec.Rule      // which guesses are accepted
	// TopLogProbs is how many of the most likely tokens to report in place of each; LogProbs
	// must be set.
	TopLogProbs int
	Trace       bool // report refused guesses, in Token.Refused
	// Boundaries are lengths of the prompt that other prompts may have in common with it: the
	// ends of its parts. What was read up to there is kept for them.
	Boundaries []int
	// Salt keeps what is read of this request from requests with another one: neither finds
	// what the other has read, in memory or on disk. The bits are the same either way.
	Salt prefix.Salt
	// Conversation is what the request is a turn of, "" if that is not known: what was to be
	// read in advance for it, as Prefill does, is dropped.
	Conversation string
	Priority     int // the higher is served first, and may take the memory of a lower one
}

// Finish says why a text ended.
type Finish string

// The reasons for a text to end.
const (
	FinishStop   Finish = "stop"   // an end token
	FinishLength Finish = "length" // the limit of tokens, or of the context
)

// finishRead ends a prompt that was only to be read.
const finishRead Finish = "read"

// sequence is a running request.
type sequence struct {
	ctx        context.Context
	unwatch    func() bool // ends the watch of ctx
	req        Request
	arrival    uint64  // order of coming
	tokens     []int32 // prompt and answer
	sampler    *sample.Sampler
	target     *state.State
	draftState *state.State // of the drafter; nil: nothing is guessed for this sequence
	backlog    *state.Rows  // hidden rows that it has not learned
	hostState  any          // of the drafter
	draft      spec.Draft   // guesses for the next round
	span       model.Span   // of the running round
	feed       []int32      // its tokens, guesses included
	accepted   int          // of its guesses
	row        int          // of the round's result that belongs to the last token kept
	alone      bool         // a round has failed: it is fed alone until it has caught up
	ahead      *ahead       // it is read in advance, and no request; nil: it is one
	record     spec.Record
	limit      int // of tokens

	boundaries []int       // lengths of the prompt to keep in the cache
	asked      bool        // whether its beginning is on the disk
	fetching   atomic.Bool // it is on its way from there
	stop       []int32
	stream     Stream

	finish         Finish
	fault          error
	ended          bool
	hash           uint64
	cached         int // tokens of the prompt that were not computed
	preempted      int // times
	rounds         int
	batchSum       int // sequences of all its rounds together
	queued         time.Time
	started, first time.Time // memory opened, first token drawn
	last           time.Time
	announced      time.Time // when the reader was last woken
}

// ratioDepth is the depth where the ratio rule is to find one by itself. Its text depends on
// what was guessed, so that a depth chosen by measured times would give another text for the
// same seed from one run to the next.
const ratioDepth = 2

// newSequence checks a request against the model.
func newSequence(r Request, info model.Info, limit int) (*sequence, error) {
	n := len(r.Prompt)
	switch {
	case n == 0:
		return nil, fmt.Errorf("engine: the prompt has no tokens")
	case n >= limit:
		return nil, fmt.Errorf("engine: the prompt has %d tokens, which leaves no room in a context of %d", n, limit)
	case r.MaxTokens < 0:
		return nil, fmt.Errorf("engine: %d tokens to generate", r.MaxTokens)
	case !r.Depth.Valid():
		return nil, fmt.Errorf("engine: depth %v, want off, auto or up to %d tokens", r.Depth, spec.MaxDepth)
	}
	for _, id := range r.Prompt {
		if id < 0 || int(id) >= info.Vocab {
			return nil, fmt.Errorf("engine: prompt id %d is outside of the vocabulary of %d", id, info.Vocab)
		}
	}
	if v := r.Sampling.Vocab; v == 0 || v > info.Vocab {
		r.Sampling.Vocab = info.Vocab
	}
	sampler, err := sample.New(r.Sampling, r.Prompt)
	if err != nil {
		return nil, err
	}
	s := &sequence{
		ctx: context.Background(), req: r, sampler: sampler, queued: time.Now(),
		tokens: slices.Clone(r.Prompt), limit: limit, hash: hashSeed,
	}
	if r.MaxTokens > 0 {
		s.limit = min(limit, n+r.MaxTokens)
	}
	switch {
	case r.IgnoreEnd:
	case r.Stop != nil:
		s.stop = r.Stop
	default:
		s.stop = info.Stop
	}
	s.record.Fixed = r.Depth
	if r.Depth == spec.DepthAuto && r.Rule == spec.Ratio {
		s.record.Fixed = ratioDepth
	}
	s.stream.init()
	return s, nil
}

// reading reports whether more than the last token is still to be fed.
func (s *sequence) reading() bool { return len(s.tokens)-s.target.Len() > 1 }

// next is the sequence's gap, cut to the budget; where it is not cut, guesses follow it and
// the logits after each are wanted.
//
// The ratio rule's text depends on its guesses, so that no company may cut them: where they
// do not fit, though they would in a round of their own, the sequence is left out.
func (s *sequence) next(budget, round int) model.Span {
	gap := s.tokens[s.target.Len():]
	if n := s.toBoundary(min(len(gap), budget)); n < len(gap) || s.ahead != nil {
		return model.Span{State: s.target, Tokens: gap[:n]}
	}
	drafts := s.draft.Tokens[:min(len(s.draft.Tokens), budget-len(gap))]
	if s.req.Rule == spec.Ratio && len(drafts) < min(len(s.draft.Tokens), round-1) && budget < round {
		return model.Span{}
	}
	s.draft.Tokens = drafts
	s.feed = append(append(s.feed[:0], gap...), drafts...)
	return model.Span{
		State: s.target, Tokens: s.feed,
		Drafts: len(drafts), Want: len(drafts) + 1,
	}
}

// append makes t part of the text and sends it. It reports whether the text goes on.
func (s *sequence) append(t Token, logits []float32) bool {
	now := time.Now()
	if s.first.IsZero() {
		s.first = now
	}
	s.last = now
	if s.req.Hash {
		s.hash = hashRow(s.hash, logits)
		t.Hash = s.hash
	}
	if s.req.LogProbs {
		t.LogProb, t.Top = sample.LogProbs(logits[:s.req.Sampling.Vocab], t.ID, s.req.TopLogProbs)
	}
	s.sampler.Accept(t.ID)
	s.tokens = append(s.tokens, t.ID)
	s.stream.add(t)
	switch {
	case slices.Contains(s.stop, t.ID):
		s.finish = FinishStop
	case len(s.tokens) >= s.limit:
		s.finish = FinishLength
	}
	return s.finish == ""
}

// announceEvery is how often the reader of a text is woken at most. Where rounds are shorter,
// as those of small models are, the tokens of a few go together: nobody reads that fast, and
// every reader takes its time from the rounds to come.
const announceEvery = 10 * time.Millisecond

// announce wakes the reader if it was not woken a moment ago. Its end will wake it, and
// whatever keeps it out of rounds.
func (s *sequence) announce() {
	if s.last.Sub(s.announced) >= announceEvery {
		s.announced = s.last
		s.stream.wake()
	}
}

// result describes the sequence so far.
func (s *sequence) result() Result {
	r := Result{
		Finish: s.finish, Prompt: len(s.req.Prompt), Tokens: len(s.tokens) - len(s.req.Prompt),
		Seed: s.req.Sampling.Seed, LogitsHash: s.hash, Speculation: s.record.Stats,
		Cached: s.cached, Preempted: s.preempted,
	}
	if s.rounds > 0 {
		r.Batch = float64(s.batchSum) / float64(s.rounds)
	}
	if !s.started.IsZero() {
		r.Queue = s.started.Sub(s.queued)
	}
	if !s.first.IsZero() {
		r.Prefill = s.first.Sub(s.started)
		r.Decode = s.last.Sub(s.first)
	}
	return r
}

// The hash of logits: xor and multiply, 64 bits of a row at a time.
const (
	hashSeed  = 0xcbf29ce484222325
	hashPrime = 0x9e3779b97f4a7c15
)

// hashRow continues a hash with the bits of a row of logits.
func hashRow(h uint64, row []float32) uint64 {
	for len(row) >= 2 {
		w := uint64(math.Float32bits(row[0])) | uint64(math.Float32bits(row[1]))<<32
		h = (h ^ w) * hashPrime
		h ^= h >> 32
		row = row[2:]
	}
	for _, x := range row {
		h = (h ^ uint64(math.Float32bits(x))) * hashPrime
		h ^= h >> 32
	}
	return h
}
