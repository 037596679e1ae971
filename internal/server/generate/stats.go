package generate

import (
	"time"

	"github.com/foretoken/foretoken"
)

// Stats are the speculation stats and the timings of an answer.
type Stats struct {
	MTP     *foretoken.SpeculationStats `json:"mtp"` // null: nothing was drafted or forced
	Timings Timings                     `json:"timings"`
}

// Timings are the timings of one answer.
type Timings struct {
	QueueMS         float64 `json:"queue_ms"`
	PrefillMS       float64 `json:"prefill_ms"`
	DecodeMS        float64 `json:"decode_ms"`
	PromptTokens    int     `json:"prompt_tokens"`
	CachedTokens    int     `json:"cached_tokens"` // of the prompt, from the prefix cache
	GeneratedTokens int     `json:"generated_tokens"`
	DecodeTokS      float64 `json:"decode_tok_s"` // without the first token, which prefill yields
	Batch           float64 `json:"batch"`        // mean number of sequences in the batch
	Preempted       int     `json:"preempted,omitempty"`
}

// NewStats returns the stats of an answer that has ended.
func NewStats(a *foretoken.Answer) Stats {
	r := &a.Result
	t := Timings{
		QueueMS: ms(r.Queue), PrefillMS: ms(r.Prefill), DecodeMS: ms(r.Decode),
		PromptTokens: r.Prompt, CachedTokens: r.Cached, GeneratedTokens: len(a.Tokens), Batch: r.Batch, Preempted: r.Preempted,
	}
	if r.Tokens > 1 && r.Decode > 0 {
		t.DecodeTokS = float64(r.Tokens-1) / r.Decode.Seconds()
	}
	stats := Stats{Timings: t}
	if r.Speculation.Any() {
		stats.MTP = &r.Speculation
	}
	return stats
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// Usage counts the tokens of a run.
type Usage struct {
	Prompt, Cached     int
	Completion         int // of all answers
	Reasoning          int // tokens of thinking among them
	Accepted, Rejected int // draft tokens, without those that a grammar forced
}

// Usage counts the tokens of all answers, which must have ended.
func (r *Run) Usage() Usage {
	u := Usage{Prompt: len(r.Prompt.IDs)}
	for i, a := range r.Answers {
		if i == 0 {
			u.Cached = a.Result.Cached
		}
		u.Completion += len(a.Tokens)
		u.Reasoning += a.ReasoningTokens()
		for _, token := range a.Tokens { // the engine may have generated more, after a stop text
			if token.Draft > 0 && !token.Forced {
				u.Accepted++
			}
		}
		u.Rejected += a.Result.Speculation.Drafted - a.Result.Speculation.Accepted
	}
	return u
}
