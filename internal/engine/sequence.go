package engine

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/engine/schedule"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// Request is a request for one answer.
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
	// Conversation is the conversation of the request, "" if unknown. A background
	// prefill of the same conversation is dropped.
	Conversation string
	Priority     int // the higher is served first, and may preempt a lower one
	// Flow names the client. Within a priority, waiting requests are admitted round-robin between
	// flows, and in order of arrival within a flow. It does not change the answer.
	Flow string
	// Offline requests have no waiting reader: beside other requests they get
	// a share of the time, whatever their priority.
	Offline bool
}

// sequence is a running request: its text, its memory and its account.
type sequence struct {
	req     Request
	ctx     context.Context
	unwatch func() bool // ends the watch of ctx
	claim   schedule.Claim
	stream  Stream
	text
	memory
	account

	background *job // it is a background prefill and no request; nil: it is a request
	flying     int  // rounds in flight that feed it: one, or chunks of its prompt
	ahead      int  // tokens of those, without drafts
	isolated   bool // a round has failed: it is fed alone until it has caught up
	losses     int  // times since its last token that it ran when the device lost its memory
	finish     Finish
	fault      error
	ended      bool
}

// text is the tokens of a sequence and how they are continued.
type text struct {
	tokens  []int32 // prompt and answer
	limit   int     // maximum number of tokens
	stop    []int32 // ids that end the text
	sampler *sampling.Sampler
	draft   spec.Draft // of the next round
	span    model.Span // of the round that is planned, or that has landed
	fed     []int32    // its tokens, drafts included
	inputs  inputs     // of the prompt

	accepted  int   // drafts that the pass has accepted
	following int32 // the token that it gives after them
}

// memory is a sequence's memory in the pool, and its data for the prefix cache.
type memory struct {
	target           *state.State
	drafts           []draftMemory // of the drafter's parts; nil: nothing is drafted for this sequence
	waitingForVision bool          // the tower has not computed the rows that it is to be fed next
	boundaries       []int         // lengths of the prompt to store in the cache
	prefixAsked      bool          // its prefix was looked for on disk
	fetching         atomic.Bool   // the prefix is being read from there
}

// draftMemory is the memory of a sequence for a part of the drafter.
type draftMemory struct {
	state   *state.State   // nil: the part needs none, nor what follows but host
	backlog *state.Rows    // the last rows that it was not fed
	idle    int            // rounds since it has drafted
	hidden  backend.Tensor // row of the last token kept, valid until the next pass
	host    any
}

// skip is called for a part that is not fed the rows of a round.
func (m *draftMemory) skip() {
	m.idle++
	m.hidden = backend.Tensor{}
	if m.backlog != nil {
		m.backlog.Keep(0)
	}
}

// account is the statistics of a sequence's rounds and time.
type account struct {
	record         spec.Record
	outcome        spec.Outcome // of the round that has landed
	hash           uint64       // of the logits
	cached         int          // tokens of the prompt that were not computed
	rounds         int
	batchSum       int // sequences in those rounds, added up
	queued         time.Time
	started, first time.Time // memory opened, first token drawn
	last           time.Time // last token drawn
	announced      time.Time // when the reader was last woken
	unsaid         bool      // there are tokens since
}

// ratioDepth is the automatic depth of the ratio rule. Its text depends on
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
	sampler, err := sampling.New(r.Sampling, r.Prompt)
	if err != nil {
		return nil, err
	}
	s := &sequence{
		ctx: context.Background(), req: r, claim: schedule.Claim{Priority: r.Priority, Flow: r.Flow, Offline: r.Offline},
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

// Claims implements schedule.Claimant.
func (s *sequence) Claims() *schedule.Claim { return &s.claim }

// Demand implements schedule.Sequence. Drafts of the ratio rule must not be cut: its text depends on them.
func (s *sequence) Demand() schedule.Demand {
	if s.target == nil {
		return schedule.Demand{}
	}
	return schedule.Demand{
		Open: true, Prefilling: s.prefilling(), WaitingForVision: s.waitingForVision,
		Drafts: len(s.draft.Tokens), Whole: s.req.Rule == spec.Ratio,
	}
}

// prefilling reports whether more than the last token is still to be fed.
func (s *sequence) prefilling() bool { return len(s.tokens)-s.target.Len() > 1 }

// next is the span to feed, cut to the budget; if it is not cut, drafts
// follow, with logits after each. round is the budget of a round without
// other sequences.
//
// The text of the ratio rule depends on its drafts, so that no batch may cut them: if they do not fit, though they would in a
// round without others and without the tokens before the last one, that waits with them.
func (s *sequence) next(budget, round int) model.Span {
	gap := s.tokens[s.target.Len():]
	if n := s.toBoundary(min(len(gap), budget)); n < len(gap) || s.background != nil {
		return model.Span{State: s.target, Tokens: gap[:n]}
	}
	n := min(len(s.draft.Tokens), budget-len(gap), s.draft.Certain(s.stop)+s.target.Drafts())
	if s.req.Rule == spec.Ratio && n < min(len(s.draft.Tokens), round-1) && (budget < round || len(gap) > 1) {
		return model.Span{State: s.target, Tokens: gap[:len(gap)-1]}
	}
	s.draft.Cut(n)
	s.fed = append(append(s.fed[:0], gap...), s.draft.Tokens...)
	return model.Span{
		State: s.target, Tokens: s.fed,
		Drafts: n - s.draft.Certain(s.stop), Want: n + 1, // certain tokens are not rolled back
	}
}

// landed is the number of tokens that were fed by rounds which have landed.
func (s *sequence) landed() int { return s.target.Len() - s.ahead }

// follows reports whether a round can feed the next tokens while one in flight feeds those before: the pass of that leaves no
// state to store in the cache.
func (s *sequence) follows() bool {
	_, stored := slices.BinarySearch(s.boundaries, s.target.Len())
	return s.flying > 0 && !stored && s.fault == nil && s.target.Len() < len(s.tokens)
}

// current reports whether the next round is to draft: the text goes on, it has its first token,
// and all before the last one was fed. That one is not in flight, maybe with drafts of its own.
func (s *sequence) current() bool {
	return s.finish == "" && s.background == nil && s.flying == 0 && s.target.Len()+1 == len(s.tokens) && len(s.tokens) > len(s.req.Prompt)
}

// force extends the draft of the next round, whose first drafted tokens are the drafter's, with the tokens
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

// land makes span, of a round that has landed, the sequence's part of the running round.
func (s *sequence) land(span model.Span) {
	s.span, s.outcome = span, spec.Outcome{
		Rows: len(span.Tokens), Drafted: max(span.Want-1, 0), Forced: s.draft.Forced, Prefill: len(span.Tokens) > span.Want,
	}
}

// append makes t, drawn from logits, part of the text and sends it. logits are known if
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

// describe adds the requested data to a token, and records its time.
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
		t.LogProb, t.Top = sampling.LogProbs(logits[:s.req.Sampling.Vocab], t.ID, s.req.TopLogProbs)
	}
}

// announceEvery is the minimum time between two wakes of a reader. Shorter rounds, as those of small
// models, deliver several tokens together: no reader is that fast,
// and every wake takes time from the next rounds.
const announceEvery = 10 * time.Millisecond

// announce wakes the reader, unless it was woken less than announceEvery ago: the end of the
// text and skipRound will wake it.
func (s *sequence) announce() {
	if s.unsaid = s.last.Sub(s.announced) < announceEvery; !s.unsaid {
		s.announced = s.last
		s.stream.wake()
	}
}

// skipRound is called for a sequence that is left out of a round: its reader is woken for
// pending tokens.
func (s *sequence) skipRound() {
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
		Cached: s.cached, Preempted: s.claim.Preempted,
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

// job is the additional data of a background prefill.
type job struct {
	age     uint64 // when it came, by the cache's clock
	dropped bool   // the engine's mutex protects it
	done    chan struct{}
	once    sync.Once
}

// end closes done.
func (j *job) end() { j.once.Do(func() { close(j.done) }) }

// boundaries are the lengths at which a prompt is worth storing, ascending: those that the
// request names, all multiples of every, and the last whole page.
func boundaries(s *sequence, every int) []int {
	list := slices.Clone(s.req.Boundaries)
	n := len(s.req.Prompt)
	for at := every; at < n; at += every {
		list = append(list, at)
	}
	if s.background != nil {
		list = append(list, n)
	} else {
		list = append(list, (n-1)/backend.PageTokens*backend.PageTokens)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(at int) bool { return at <= 0 || at > n })
}

// toBoundary cuts n tokens to be fed at the next boundary.
func (s *sequence) toBoundary(n int) int {
	at, found := slices.BinarySearch(s.boundaries, s.target.Len())
	if found {
		at++
	}
	if at < len(s.boundaries) {
		n = min(n, s.boundaries[at]-s.target.Len())
	}
	return n
}

// atBoundary reports whether the fed text is worth storing: it is at a boundary or at the
// end of the text.
func (s *sequence) atBoundary() bool {
	_, at := slices.BinarySearch(s.boundaries, s.landed())
	return at || s.finish != ""
}

// fedText is the sequence's first n tokens for the prefix cache.
func (s *sequence) fedText(n int) prefix.Text {
	return prefix.Text{Tokens: s.tokens[:n], Inputs: s.inputs.known}
}

// drafted reports whether a part of the drafter has to be fed the sequence's rows.
func (s *sequence) drafted() bool {
	return slices.ContainsFunc(s.drafts, func(m draftMemory) bool { return m.state != nil })
}

// attach adds the rows of images to a span.
func (s *sequence) attach(span *model.Span) {
	if len(s.inputs.parts) > 0 {
		from := s.target.Len()
		to := from + len(span.Tokens)
		span.Inputs, span.Positions = s.inputs.rows(from, to), s.inputs.positions(from, to, s.target.Next())
	}
}

// pair adds the rows of images to a run: its tokens follow the rows of Hidden, whose
// positions count. The rows that it needs are available. The drafter may not have been fed all rows before
// these, so its state may continue elsewhere.
//
// For a token of an image the head is fed the tower's row, as the model is, and not the embedding
// of the placeholder token: after 36 prompts with images the head of the embedded model
// then has 0.55 of its first drafts accepted, and 0.50 otherwise.
func (s *sequence) pair(r *spec.Run) {
	to := len(r.Text)
	from := to - r.Hidden.Rows
	r.Inputs, r.Positions = s.inputs.rows(from, to), s.inputs.positions(from-1, to-1, r.State.Next())
}

// releaseInputs releases the parts that the model and the drafter have been fed. The drafter is fed rows of prompts
// with such parts in the same round.
func (s *sequence) releaseInputs() {
	for i := range s.inputs.parts {
		if p := &s.inputs.parts[i]; s.landed() >= p.end() {
			p.close()
		}
	}
}
