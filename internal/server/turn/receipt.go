package turn

import (
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/bridge"
	"github.com/foretoken/foretoken/internal/spec"
)

// Receipt is what a response can carry about how it came about.
type Stats struct {
	MTP     *spec.Summary `json:"mtp"` // null: nothing was to be guessed
	Timings Timings       `json:"timings"`
}

// Timings are of one answer.
type Timings struct {
	QueueMS         float64 `json:"queue_ms"`
	PrefillMS       float64 `json:"prefill_ms"`
	DecodeMS        float64 `json:"decode_ms"`
	PromptTokens    int     `json:"prompt_tokens"`
	CachedTokens    int     `json:"cached_tokens"` // of the prompt, that were known from before
	GeneratedTokens int     `json:"generated_tokens"`
	DecodeTokS      float64 `json:"decode_tok_s"` // the first token, which comes out of the prompt, does not count
	Batch           float64 `json:"batch"`        // sequences in its rounds, on average
	Preempted       int     `json:"preempted,omitempty"`
}

// NewReceipt describes an answer that has ended.
func NewStats(a *foretoken.Answer) Stats {
	r := &a.Result
	t := Timings{
		QueueMS: ms(r.Queue), PrefillMS: ms(r.Prefill), DecodeMS: ms(r.Decode),
		PromptTokens: r.Prompt, CachedTokens: r.Cached, GeneratedTokens: len(a.Tokens), Batch: r.Batch, Preempted: r.Preempted,
	}
	if r.Tokens > 1 && r.Decode > 0 {
		t.DecodeTokS = float64(r.Tokens-1) / r.Decode.Seconds()
	}
	receipt := Stats{Timings: t}
	if r.Speculation.Drafter != "" {
		s := bridge.Speculation(a).Summary()
		receipt.MTP = &s
	}
	return receipt
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// Usage is the tokens of a turn.
type Usage struct {
	Prompt, Cached     int
	Completion         int // of all answers
	Reasoning          int // among them, those of thinking
	Accepted, Rejected int // guesses
}

// Usage counts the tokens of all answers, which must have ended.
func (t *Turn) Usage() Usage {
	u := Usage{Prompt: len(t.Prompt.IDs)}
	for i, a := range t.Answers {
		if i == 0 {
			u.Cached = a.Result.Cached
		}
		u.Completion += len(a.Tokens)
		u.Reasoning += a.ReasoningTokens()
		for _, token := range a.Tokens { // the engine may have been ahead of a stop text
			if token.Draft > 0 {
				u.Accepted++
			}
		}
		u.Rejected += a.Result.Speculation.Drafted - a.Result.Speculation.Accepted
	}
	return u
}
