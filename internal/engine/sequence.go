package engine

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// Request is what to generate.
type Request struct {
	Prompt    []int32        // with model.NoToken where Inputs has rows
	MaxTokens int            // 0: until the context is full
	Sampling  sample.Options // Seed included
	Stop      []int32        // ids that end the text, in place of the model's
	IgnoreEnd bool           // no id ends the text
	LogProbs  bool           // report the log-probability of each token
	Hash      bool           // compute Result.LogitsHash
	Depth     spec.Depth     // draft tokens per round
	Rule      spec.Rule      // which drafts are accepted
	NoForced  bool           // feed tokens that a constraint forces one by one, to compare
	Trace     bool           // report rejected drafts, in Token.Rejected
	// Inputs are the parts of the prompt that are no text: ascending, apart from each other.
	Inputs []Input
	// TopLogProbs is how many of the most likely tokens to report in place of each; LogProbs
	// must be set.
	TopLogProbs int
	// Boundaries are lengths of the prompt that other prompts may have in common with it: the
	// ends of its parts. The prefix cache stores the state at each of them.
	Boundaries []int
	// Salt separates prefix caches: requests with different salts do not find each other's
	// prefixes, in memory or on disk. The bits are the same either way.
	Salt prefix.Salt
	// Conversation is what the request is a turn of, "" if that is not known. A background
	// prefill of the same conversation is dropped.
	Conversation string
	Priority     int // the higher is served first, and may preempt a lower one
	// Flow names the client. Within a priority, waiting requests are admitted round-robin between
	// flows, and in order of arrival within a flow. It does not change the answer.
	Flow string
	// Offline is true if nobody waits for the tokens: beside requests that are not offline it gets
	// a share of the time, whatever its priority.
	Offline bool
}

// Finish says why a text ended.
type Finish string

// The reasons for a text to end.
const (
	FinishStop   Finish = "stop"   // an end token
	FinishLength Finish = "length" // the limit of tokens, or of the context
)

// finishPrefill ends a background prefill.
const finishPrefill Finish = "prefill"

// sequence is a running request: its text, its memory and its account.
type sequence struct {
	req      Request
	ctx      context.Context
	unwatch  func() bool // ends the watch of ctx
	admitted uint64      // order of the first admission, from 1; 0: it was not admitted yet
	stream   Stream
	text
	memory
	account

	background *job // it is a background prefill and no request; nil: it is a request
	isolated   bool // a round has failed: it is fed alone until it has caught up
	finish     Finish
	fault      error
	ended      bool
}

// text is the tokens of a sequence and how they are continued.
type text struct {
	tokens  []int32 // prompt and answer
	limit   int     // maximum number of tokens
	stop    []int32 // ids that end the text
	sampler *sample.Sampler
	draft   spec.Draft // of the next round
	span    model.Span // of the running round
	fed     []int32    // its tokens, drafts included
	inputs  inputs     // of the prompt

	accepted  int   // drafts that the pass has accepted
	following int32 // the token that it gives after them
}

// memory is what a sequence has in the pool, and what the prefix cache is to know of it.
type memory struct {
	target     *state.State
	draftState *state.State   // of the drafter; nil: nothing is drafted for this sequence
	hostState  any            // of the drafter
	backlog    *state.Rows    // hidden rows that the drafter has not caught up with
	hidden     backend.Tensor // hidden row of the last token kept, valid until the next pass
	joint      *state.Block   // hidden row before the place where the cache's prefix ends, if a row of a picture follows it
	blind      bool           // it waits for the tower
	boundaries []int          // lengths of the prompt to store in the cache
	looked     bool           // for its prefix on disk
	fetching   atomic.Bool    // the prefix is being read from there
}

// account is what is known of a sequence's rounds and time.
type account struct {
	record         spec.Record
	outcome        spec.Outcome // of the running round
	hash           uint64       // of the logits
	cached         int          // tokens of the prompt that were not computed
	preempted      int          // times
	rounds         int
	batchSum       int // sequences in those rounds, added up
	queued         time.Time
	started, first time.Time // memory opened, first token drawn
	last           time.Time // last token drawn
	announced      time.Time // when the reader was last woken
	unsaid         bool      // there are tokens since
}

// ratioDepth is the depth where the ratio rule is to find one by itself. Its text depends on
// the drafts, so that a depth chosen by measured times would give another text for the same
// seed from one run to the next.
const ratioDepth = 2

// newSequence checks a request against the model.
func newSequence(r Request, info model.Info, limit int) (*sequence, error) {
	n := len(r.Prompt)
	switch {
	case n == 0:
		return nil, fmt.Errorf("engine: the prompt has no tokens")
	case n >= limit:
		return nil, fmt.Errorf("engine: the prompt has %d tokens, which does not fit into a context of %d", n, limit)
	case r.MaxTokens < 0:
		return nil, fmt.Errorf("engine: %d tokens to generate, want 0 or above", r.MaxTokens)
	case !r.Depth.Valid():
		return nil, fmt.Errorf("engine: depth %v, want off, auto or up to %d tokens", r.Depth, spec.MaxDepth)
	}
	inputs, err := newInputs(r.Prompt, r.Inputs, info)
	if err != nil {
		return nil, err
	}
	if v := r.Sampling.Vocab; v == 0 || v > info.Vocab {
		r.Sampling.Vocab = info.Vocab
	}
	sampler, err := sample.New(r.Sampling, r.Prompt)
	if err != nil {
		return nil, err
	}
	s := &sequence{
		ctx: context.Background(), req: r,
		text:    text{tokens: slices.Clone(r.Prompt), limit: limit, sampler: sampler, inputs: inputs},
		account: account{queued: time.Now(), hash: hashSeed},
	}
	if r.MaxTokens > 0 {
		s.limit = n + min(r.MaxTokens, limit-n)
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

// prefilling reports whether more than the last token is still to be fed.
func (s *sequence) prefilling() bool { return len(s.tokens)-s.target.Len() > 1 }

// next is the span of what is to be fed, cut to the budget; where it is not cut, drafts
// follow, and the logits after each are wanted. round is the budget of a round without
// other sequences.
//
// The text of the ratio rule depends on its drafts, so that no batch may cut them: where they
// do not fit, though they would in a round of their own, the last token waits with them.
func (s *sequence) next(budget, round int) model.Span {
	gap := s.tokens[s.target.Len():]
	if n := s.toBoundary(min(len(gap), budget)); n < len(gap) || s.background != nil {
		return model.Span{State: s.target, Tokens: gap[:n]}
	}
	n := min(len(s.draft.Tokens), budget-len(gap), s.draft.Certain(s.stop)+s.target.Drafts())
	if s.req.Rule == spec.Ratio && n < min(len(s.draft.Tokens), round-1) && budget < round {
		return model.Span{State: s.target, Tokens: gap[:len(gap)-1]}
	}
	s.draft.Cut(n)
	s.fed = append(append(s.fed[:0], gap...), s.draft.Tokens...)
	return model.Span{
		State: s.target, Tokens: s.fed,
		Drafts: n - s.draft.Certain(s.stop), Want: n + 1, // what is certain is not rolled back
	}
}

// current reports whether the next round is to draft: the text goes on, it has its first token,
// and all before the last one was fed.
func (s *sequence) current() bool {
	return s.finish == "" && s.background == nil && s.target.Len()+1 == len(s.tokens) && len(s.tokens) > len(s.req.Prompt)
}

// force completes the draft of the next round, of which so many tokens were drafted, with the tokens
// that the request's constraint forces. A panic of the constraint is the sequence's fault.
func (s *sequence) force(drafted int) {
	if s.req.NoForced {
		return
	}
	s.fault = try(func() {
		s.draft.Force(s.sampler, s.stop, s.limit-len(s.tokens)-1)
		s.draft.Cut(s.draft.Certain(s.stop) + max(drafted, s.target.Layout().MaxDrafts))
	})
}

// feed makes span the sequence's part of the round.
func (s *sequence) feed(span model.Span) {
	rows, drafted := len(span.Tokens), max(span.Want-1, 0)
	s.span, s.outcome = span, spec.Outcome{
		Rows: rows, Drafted: drafted, Forced: s.draft.Forced, Prefill: span.Want == 0 || rows > drafted+1,
	}
}

// append makes t, drawn from logits, part of the text and sends it. logits are known where
// describe reads them. It reports whether the text goes on.
func (s *sequence) append(t Token, logits []float32) bool {
	s.describe(&t, logits)
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

// describe adds to a token what the request asks for, and notes its time.
func (s *sequence) describe(t *Token, logits []float32) {
	s.last = time.Now()
	if s.first.IsZero() {
		s.first = s.last
	}
	if s.req.Hash {
		s.hash = hashRow(s.hash, logits)
		t.Hash = s.hash
	}
	if s.req.LogProbs {
		t.LogProb, t.Top = sample.LogProbs(logits[:s.req.Sampling.Vocab], t.ID, s.req.TopLogProbs)
	}
}

// announceEvery is the minimum time between two wakes of a reader. Where rounds are shorter,
// as those of small models are, the tokens of several go together: nobody reads that fast,
// and every reader that wakes takes time from the rounds to come.
const announceEvery = 10 * time.Millisecond

// announce wakes the reader, unless it was woken less than announceEvery ago: the end of the
// text will wake it, and so will whatever keeps the sequence out of rounds.
func (s *sequence) announce() {
	if s.unsaid = s.last.Sub(s.announced) < announceEvery; !s.unsaid {
		s.announced = s.last
		s.stream.wake()
	}
}

// pass is for a sequence that is left out of a round: its reader gets the tokens that it has not
// been told of.
func (s *sequence) pass() {
	if s.unsaid {
		s.unsaid = false
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
