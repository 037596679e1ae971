package foretoken

import (
	"time"

	"github.com/foretoken/foretoken/internal/bridge"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/sample"
)

// Token is one generated token.
type Token struct {
	ID       int32
	LogProb  float32          // of this token, as the model gave it; 0 unless Request.LogProbs
	Top      []sample.LogProb // the most likely tokens in its place, as many as Request.TopLogProbs
	Hash     uint64           // of the logits up to this token; 0 unless Request.Hash
	Draft    int              // its number among the accepted drafts of its round, from 1; 0: it was not drafted
	Rejected []int32          // the drafts of its round that were rejected, with the last token of the round, if Request.Trace
}

// Result is what is known about an answer when it has ended.
type Result struct {
	Prompt int // tokens of the prompt
	Cached int // of those, found in the prefix cache
	Tokens int // generated

	Queue   time.Duration // until it was started
	Prefill time.Duration // from there to the first token
	Decode  time.Duration // from the first token to the last

	Preempted int     // times that it was preempted
	Batch     float64 // sequences in its rounds, on average, itself included

	Speculation SpeculationStats
}

// SpeculationStats is what speculative decoding did for an answer. It gave Rounds + Accepted
// tokens in Rounds rounds.
type SpeculationStats struct {
	Drafter    string // what drafted; "": nothing
	Rule       Rule
	Rounds     int           // passes of the model that gave tokens
	Drafted    int           // draft tokens
	Accepted   int           // of those
	DraftedAt  [MaxDepth]int // Drafted, by position in the draft
	AcceptedAt [MaxDepth]int // Accepted, by position in the draft
	Draft      time.Duration // spent on drafting: in a batch, its share
	Verify     time.Duration // spent in passes of the model, likewise
	Speedup    float64       // estimated tokens per second as a multiple of plain decoding; 0: not measured
}

// TokensPerRound is how many tokens a pass of the model gave on average.
func (s *SpeculationStats) TokensPerRound() float64 {
	return float64(s.Rounds+s.Accepted) / float64(max(s.Rounds, 1))
}

// Acceptance is the share of drafts that were accepted.
func (s *SpeculationStats) Acceptance() float64 {
	return float64(s.Accepted) / float64(max(s.Drafted, 1))
}

// MeanDepth is how many tokens were drafted per round on average.
func (s *SpeculationStats) MeanDepth() float64 {
	return float64(s.Drafted) / float64(max(s.Rounds, 1))
}

// newResult is an engine's result.
func newResult(r *engine.Result) Result {
	s := &r.Speculation
	return Result{
		Prompt: r.Prompt, Cached: r.Cached, Tokens: r.Tokens, Queue: r.Queue, Prefill: r.Prefill, Decode: r.Decode,
		Preempted: r.Preempted, Batch: r.Batch,
		Speculation: SpeculationStats{
			Drafter: s.Drafter, Rule: Rule(s.Rule), Rounds: s.Rounds, Drafted: s.Drafted, Accepted: s.Accepted,
			DraftedAt: s.DraftedAt, AcceptedAt: s.AcceptedAt, Draft: s.Draft, Verify: s.Verify, Speedup: float64(s.Summary().SpeedupEstimate),
		},
	}
}

// Round is what happened in one round: a pass of the model over all running sequences.
type Round struct {
	Took      time.Duration
	Sequences int // that took part
	Rows      int // tokens and drafts of all of them
	Prompt    int // of Rows, those of prompts
	Tokens    int // generated
	Drafted   int
	Accepted  int // drafts
}

// Stats is what a model has done since it was opened, and what it is doing.
type Stats struct {
	Running, Waiting  int   // requests
	Rounds            int64 // computed
	PromptTokens      int64 // of requests that ended
	CachedTokens      int64 // of those, found in the prefix cache
	Tokens            int64 // generated
	Drafted, Accepted int64 // drafts up to the first rejected one of each round, and those accepted
	Preemptions       int64
	KVUsed, KVBudget  int64 // bytes of sequences and prefix cache, and their maximum
}

// Stats returns the figures of this moment.
func (m *Model) Stats() Stats {
	s := m.engine.Stats()
	x := Stats{
		Running: s.Running, Waiting: s.Waiting, Rounds: s.Rounds, PromptTokens: s.PromptTokens, CachedTokens: s.CachedTokens,
		Tokens: s.Tokens, Preemptions: s.Preemptions, KVUsed: s.Memory.Used, KVBudget: s.Memory.Budget,
	}
	for j := range s.Drafted {
		x.Drafted += s.Drafted[j]
		x.Accepted += s.Accepted[j]
	}
	return x
}

func init() {
	bridge.Engine = func(model any) *engine.Engine { return model.(*Model).engine }
	bridge.Speculation = func(answer any) *spec.Stats { return &answer.(*Answer).speculation }
}
