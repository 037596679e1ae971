package foretoken

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/sample"
)

// Token is one generated token.
type Token struct {
	ID       int32
	LogProb  float32          // of this token; 0 unless Request.LogProbs
	Top      []sample.LogProb // the most likely tokens at its position, Request.TopLogProbs of them
	Hash     uint64           // of the logits up to this token; 0 unless Request.Hash
	Draft    int              // its number among the accepted drafts of its round, from 1; 0: it was not drafted
	Forced   bool             // it was drafted because the grammar allows no other: it could not be rejected
	Rejected []int32          // the drafts of its round that were rejected, with the last token of the round, if Request.Trace
}

// Result is the result of an ended answer.
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

// SpeculationStats are the results of speculative decoding for an answer. It gave Rounds + Accepted +
// Forced tokens in Rounds rounds. As JSON it has the rates, too, and null for values that were not measured.
type SpeculationStats struct {
	Drafter        string // names the drafter; "": none
	Rule           Rule
	Rounds         int           // passes of the model that gave tokens
	Drafted        int           // draft tokens that could be rejected
	Accepted       int           // of those
	Forced         int           // tokens fed with drafts, or in their place, because the grammar allows no other; they need no drafter
	DraftedAt      [MaxDepth]int // Drafted, by position in the draft
	AcceptedAt     [MaxDepth]int // Accepted, by position in the draft
	Copied         int           // draft tokens that were copied from the text
	CopiedAccepted int           // of those
	Beside         int           // draft tokens of the drafter that competes with the head
	BesideAccepted int           // of those
	DraftVocab     int           // size of the draft vocabulary; 0: none was used
	Draft          time.Duration // spent on drafting: in a batch, its share
	Verify         time.Duration // spent in passes of the model, likewise

	// Estimates; 0: not measured.
	PassCost  float64 // of a pass with the mean number of drafts, in plain passes
	DraftCost float64 // of a draft token, in plain passes
	Speedup   float64 // tokens per second, as a multiple of plain decoding
}

// TokensPerRound is how many tokens a pass of the model gave on average.
func (s *SpeculationStats) TokensPerRound() float64 {
	return float64(s.Rounds+s.Accepted+s.Forced) / float64(max(s.Rounds, 1))
}

// Any reports whether there is anything to show: drafts or forced tokens.
func (s *SpeculationStats) Any() bool { return s.Drafter != "" || s.Forced > 0 }

// Acceptance is the share of drafts that were accepted.
func (s *SpeculationStats) Acceptance() float64 {
	return float64(s.Accepted) / float64(max(s.Drafted, 1))
}

// MeanDepth is how many tokens were drafted per round on average.
func (s *SpeculationStats) MeanDepth() float64 {
	return float64(s.Drafted) / float64(max(s.Rounds, 1))
}

// AcceptedByPosition is AcceptedAt as far as there were drafts.
func (s *SpeculationStats) AcceptedByPosition() []int {
	deepest := 0
	for deepest < MaxDepth && s.DraftedAt[deepest] > 0 {
		deepest++
	}
	return s.AcceptedAt[:deepest]
}

// MarshalJSON writes the stats in the form of the server's answers.
func (s SpeculationStats) MarshalJSON() ([]byte, error) {
	measured := func(x float64) any {
		if x == 0 {
			return nil
		}
		return json.RawMessage(strconv.AppendFloat(nil, x, 'g', 6, 64))
	}
	return json.Marshal(struct {
		Rounds             int     `json:"rounds"`
		Drafted            int     `json:"drafted"`
		Accepted           int     `json:"accepted"`
		Forced             int     `json:"forced,omitempty"`
		AcceptedByPosition []int   `json:"accepted_by_position"`
		TokensPerRound     float64 `json:"tokens_per_round"`
		MeanDepth          float64 `json:"mean_depth"`
		Rule               string  `json:"rule"`
		Drafter            string  `json:"drafter"`
		DraftVocab         int     `json:"draft_vocab,omitempty"`
		DraftMS            float64 `json:"draft_ms"`
		VerifyMS           float64 `json:"verify_ms"`
		Beta               any     `json:"beta"`
		Delta              any     `json:"delta"`
		SpeedupEstimate    any     `json:"speedup_estimate"`
		Copied             int     `json:"copied,omitempty"`
		CopiedAccepted     int     `json:"copied_accepted,omitempty"`
		Beside             int     `json:"beside,omitempty"`
		BesideAccepted     int     `json:"beside_accepted,omitempty"`
	}{
		s.Rounds, s.Drafted, s.Accepted, s.Forced, s.AcceptedByPosition(), s.TokensPerRound(), s.MeanDepth(), string(s.Rule), s.Drafter, s.DraftVocab,
		float64(s.Draft.Microseconds()) / 1e3, float64(s.Verify.Microseconds()) / 1e3,
		measured(s.PassCost), measured(s.DraftCost), measured(s.Speedup), s.Copied, s.CopiedAccepted, s.Beside, s.BesideAccepted,
	})
}

// newResult is an engine's result.
func newResult(r *engine.Result) Result {
	s := &r.Speculation
	return Result{
		Prompt: r.Prompt, Cached: r.Cached, Tokens: r.Tokens, Queue: r.Queue, Prefill: r.Prefill, Decode: r.Decode,
		Preempted: r.Preempted, Batch: r.Batch,
		Speculation: SpeculationStats{
			Drafter: s.Drafter, Rule: Rule(s.Rule.String()), Rounds: s.Rounds, Drafted: s.Drafted, Accepted: s.Accepted, Forced: s.Forced,
			DraftedAt: s.DraftedAt, AcceptedAt: s.AcceptedAt, Copied: s.Copied, CopiedAccepted: s.CopiedAccepted, Beside: s.Beside, BesideAccepted: s.BesideAccepted, DraftVocab: s.DraftVocab,
			Draft: s.Draft, Verify: s.Verify, PassCost: s.Beta, DraftCost: s.Delta, Speedup: s.Speedup(),
		},
	}
}

// Round is the result of one round: a pass of the model over all running sequences.
type Round struct {
	Took      time.Duration
	Sequences int // that took part
	Rows      int // tokens and drafts of all of them
	Prompt    int // rows of prompts among them
	Offline   int // rows of offline requests among them
	Tokens    int // generated
	Drafted   int // drafts that could be rejected
	Accepted  int // of those
	Forced    int // tokens beside them that the grammar forced
}

// PageTokens is how many tokens a page of the KV cache has.
const PageTokens = 64

// Stats are the counters of a model since it was opened, and its current state.
type Stats struct {
	Running, Waiting int // requests

	Rounds       int64            // computed
	Finished     map[Finish]int64 // requests that ended by themselves, by the engine's reason
	Canceled     int64            // requests whose context ended
	Faults       int64            // requests that ended with another error
	PromptTokens int64            // of requests that ended
	CachedTokens int64            // of those, found in the prefix cache
	Tokens       int64            // generated
	Forced       int64            // of those, fed like drafts because a grammar allowed no other
	Preemptions  int64
	DraftedAt    [MaxDepth]int64 // drafts up to the first rejected one of each round, by position in the draft
	AcceptedAt   [MaxDepth]int64 // of those

	KVUsed, KVBudget int64 // bytes of sequences and prefix cache, and their maximum
	KVPages          int   // of keys and values, without those of sliding windows
	KVMaxPages       int   // maximum pages of one sequence in KVBudget, PageTokens tokens each
	PrefixCache      PrefixCacheStats
	Background       BackgroundStats
	Vision           VisionStats
	Phases           PhaseStats
	Devices          []DeviceStats // that compute
}

// PhaseStats is where the time of rounds went. Queued work counts in the phase that waits for it.
// The vision tower has its own account.
type PhaseStats struct {
	Forward time.Duration // the model's passes, until their logits are there
	Sample  time.Duration // choosing tokens: samplers, grammars, verification
	Draft   time.Duration // the drafter
	Other   time.Duration // scheduling, memory, the prefix cache
}

// DeviceStats is how much of a device is in use.
type DeviceStats struct {
	Device string // its name, as Placement has it
	Memory int64  // bytes there are; 0: not known
	Free   int64  // bytes of Memory that can still be taken; other processes are considered
	Used   int64  // bytes that the model has taken: weights, state, activations

	// A GPU records the passes of a shape as a graph and replays it.
	Recordings int   // passes that can be replayed
	Recorded   int64 // how often one was recorded
	Replayed   int64 // passes that were replayed
}

// VisionStats are the counters of a vision tower.
type VisionStats struct {
	Pictures int64         // computed; a video is one
	Cached   int64         // found in the cache
	Took     time.Duration // for Pictures
	Bytes    int64         // of memory for cached rows
}

// PrefixCacheStats are the state and the counters of a prefix cache.
type PrefixCacheStats struct {
	Entries   int   // prefixes that can be found
	Bytes     int64 // of Stats.KVUsed
	Hits      int64 // prompts with a prefix in the cache
	Misses    int64
	Evictions int64 // entries evicted to free memory
	Shared    SharedCacheStats
}

// SharedCacheStats are the state and the counters of the store that a prefix cache shares with other
// processes. It is zero without one.
type SharedCacheStats struct {
	Used           bool          // there is one
	Down           bool          // it fails, and is not used until it answers again
	Latency        time.Duration // of a small request; 0: not known
	BytesPerSecond float64       // of reads; 0: not known
	TokenTime      time.Duration // of computing a token of a prompt, for comparison; 0: not known
	Lookups        int64         // requests for lists
	Fetched        int64         // prefixes
	FetchedBytes   int64
	Refused        int64 // prefixes that were expected to be computed faster than fetched
	Late           int64 // prefixes that were abandoned because they took longer than computing them
	Written        int64 // objects
	WrittenBytes   int64
	Dropped        int64 // objects that were not written, for the queue was full or the store failed
	Ignored        int64 // damaged or foreign objects
	Failures       int64 // of requests
}

// BackgroundStats are the counters of prompts of next turns, which are prefilled while the engine
// is idle.
type BackgroundStats struct {
	Waiting   int   // conversations, the one that is being prefilled included
	Tokens    int64 // computed
	Completed int64 // prompts, to their end
	Dropped   int64 // prompts, superseded or for want of memory
}

// Finish is the reason for the end of an answer.
type Finish string

// The reasons for an answer to end. An answer that ended with an error has none.
const (
	FinishStop      Finish = "stop"       // an end token, or a stop text
	FinishLength    Finish = "length"     // the limit of tokens, or of the context
	FinishToolCalls Finish = "tool_calls" // an end token after calls of tools
)
