package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"
	"unicode/utf8"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/sample"
)

// Report is the object that generate --json prints. Fields are only ever added.
type Report struct {
	Model        string                      `json:"model"`
	PromptIDs    []int32                     `json:"prompt_ids"`
	TokenIDs     []int32                     `json:"token_ids"` // the end token included
	Text         string                      `json:"text"`      // without special tokens and stop text
	FinishReason string                      `json:"finish_reason"`
	Seed         uint64                      `json:"seed"`
	LogProbs     []tokenLogProb              `json:"logprobs"`    // one for each of token_ids; null unless asked for
	LogitsHash   string                      `json:"logits_hash"` // over the bits of the logits the tokens were drawn from
	Timings      timings                     `json:"timings"`
	MTP          *foretoken.SpeculationStats `json:"mtp"` // null without speculative decoding
	Warnings     []string                    `json:"warnings,omitempty"`
	Error        string                      `json:"error,omitempty"`
}

// logProb is a token with the model's log-probability of it.
type logProb struct {
	ID      int32    `json:"id"`
	Token   string   `json:"token"`
	Bytes   []int    `json:"bytes,omitempty"` // of a token that is no whole text
	LogProb *float32 `json:"logprob"`         // null: impossible
}

// tokenLogProb is a generated token, and the likeliest ones in its place.
type tokenLogProb struct {
	logProb
	Top []logProb `json:"top"`
}

// timings are null without a measurement. A rate of decoding does not count
// the first token, which the prefill gives.
type timings struct {
	LoadMS          float64  `json:"load_ms"`
	QueueMS         float64  `json:"queue_ms"`
	PromptTokens    int      `json:"prompt_tokens"`
	PrefillMS       float64  `json:"prefill_ms"`
	PrefillTokS     *float64 `json:"prefill_tok_s"`
	GeneratedTokens int      `json:"generated_tokens"`
	DecodeMS        float64  `json:"decode_ms"`
	DecodeTokS      *float64 `json:"decode_tok_s"`
}

// newReport describes an answer, and why it ended if that was not by itself.
func newReport(s *session, q *foretoken.Request, a *answer, err error) *Report {
	r := &Report{
		Model: s.Name(), PromptIDs: q.Prompt.IDs, TokenIDs: make([]int32, len(a.Tokens)), Text: a.Text(),
		FinishReason: a.finish, Seed: a.Seed, LogitsHash: fmt.Sprintf("0x%016x", a.LogitsHash()),
		Timings: newTimings(s.LoadTime(), len(a.Tokens), &a.Result), Warnings: s.Notes.Warnings(),
	}
	for i, t := range a.Tokens {
		r.TokenIDs[i] = t.ID
	}
	if q.LogProbs {
		r.LogProbs = make([]tokenLogProb, len(a.Tokens))
		for i, t := range a.Tokens {
			r.LogProbs[i] = s.describe(t)
		}
	}
	if stats := &a.Result.Speculation; stats.Any() {
		r.MTP = stats
	}
	if a.finish == finishError {
		r.Error = err.Error()
	}
	return r
}

// write prints the report as one line.
func (r *Report) write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return &console.OutputError{Err: err}
	}
	return nil
}

func newTimings(load time.Duration, generated int, r *foretoken.Result) timings {
	return timings{
		LoadMS: milliseconds(load), QueueMS: milliseconds(r.Queue),
		PromptTokens: r.Prompt, PrefillMS: milliseconds(r.Prefill), PrefillTokS: rate(r.Prompt, r.Prefill),
		GeneratedTokens: generated, DecodeMS: milliseconds(r.Decode), DecodeTokS: rate(r.Tokens-1, r.Decode),
	}
}

// rate is n per second, nil if nothing was done or measured.
func rate(n int, d time.Duration) *float64 {
	if n <= 0 || d <= 0 {
		return nil
	}
	v := thousandths(float64(n) / d.Seconds())
	return &v
}

func milliseconds(d time.Duration) float64 { return thousandths(d.Seconds() * 1e3) }

// thousandths rounds to three decimals: more are not significant.
func thousandths(v float64) float64 { return math.Round(v*1e3) / 1e3 }

// describe is a token with its log-probabilities.
func (s *session) describe(t foretoken.Token) tokenLogProb {
	d := tokenLogProb{
		logProb: s.describeOne(sample.LogProb{ID: t.ID, LogProb: t.LogProb}),
		Top:     make([]logProb, len(t.Top)),
	}
	for i, l := range t.Top {
		d.Top[i] = s.describeOne(l)
	}
	return d
}

func (s *session) describeOne(l sample.LogProb) logProb {
	text, _ := s.Token(l.ID) // empty for an id that is only padding
	d := logProb{ID: l.ID, Token: text}
	if !utf8.ValidString(text) {
		for _, b := range []byte(text) {
			d.Bytes = append(d.Bytes, int(b))
		}
	}
	if v := float64(l.LogProb); !math.IsInf(v, 0) && !math.IsNaN(v) { // JSON has neither
		d.LogProb = &l.LogProb
	}
	return d
}
