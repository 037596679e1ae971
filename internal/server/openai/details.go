package openai

import (
	"strings"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/sample"
)

// usage is the tokens of a response.
type usage struct {
	Prompt            int               `json:"prompt_tokens"`
	Completion        int               `json:"completion_tokens"`
	Total             int               `json:"total_tokens"`
	PromptDetails     promptDetails     `json:"prompt_tokens_details"`
	CompletionDetails completionDetails `json:"completion_tokens_details"`
}

type promptDetails struct {
	Cached *int `json:"cached_tokens,omitempty"` // nil: the response is deterministic
}

type completionDetails struct {
	Reasoning int  `json:"reasoning_tokens"`
	Accepted  *int `json:"accepted_prediction_tokens,omitempty"` // draft tokens; nil as Cached
	Rejected  *int `json:"rejected_prediction_tokens,omitempty"`
}

// newUsage adds up the tokens of runs that have ended. There is at least one.
func newUsage(runs ...*generate.Run) *usage {
	u, cached, accepted, rejected := &usage{}, 0, 0, 0
	for _, run := range runs {
		n := run.Usage()
		u.Prompt += n.Prompt
		u.Completion += n.Completion
		u.CompletionDetails.Reasoning += n.Reasoning
		cached, accepted, rejected = cached+n.Cached, accepted+n.Accepted, rejected+n.Rejected
	}
	if runs[0].Request.Caller.Deterministic == nil {
		u.PromptDetails.Cached, u.CompletionDetails.Accepted, u.CompletionDetails.Rejected = &cached, &accepted, &rejected
	}
	u.Total = u.Prompt + u.Completion
	return u
}

// details are the extensions of a response, or of the last chunk of a stream. Chunks
// have the traced tokens on request.
type details struct {
	Seed *uint64 `json:"seed,omitempty"` // of the first answer, which reproduces all of them
	generate.Extra
}

func (q *request) details(run *generate.Run, tokens []generate.Traced) *details {
	d := &details{Seed: &run.Seed, Extra: generate.Extra{Tokens: tokens}}
	if q.stats {
		r := generate.NewStats(run.Answers[0])
		d.Stats = &r
	}
	return d
}

// tokenLogProb is the log-probability of a token of the answer.
type tokenLogProb struct {
	logProb
	Top []logProb `json:"top_logprobs"`
}

type logProb struct {
	Token   string  `json:"token"`
	LogProb float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// token appends the requested data of an event's token. Log-probabilities leave out thinking
// and the tokens that end a text.
func (q *request) token(run *generate.Run, e generate.Event, tokens []generate.Traced, probs []tokenLogProb) ([]generate.Traced, []tokenLogProb) {
	if q.Trace {
		tokens = run.Trace(tokens, e)
	}
	if q.LogProbs && spoken(run.Model, e) {
		probs = append(probs, newTokenLogProb(run.Model, e.Token))
	}
	return tokens, probs
}

// spoken reports whether an event has a token that is text of the answer.
func spoken(m *foretoken.Model, e generate.Event) bool {
	_, control := m.Token(e.Token.ID)
	return !e.Ended && e.Token.ID >= 0 && !e.Thought && !control
}

func newTokenLogProb(m *foretoken.Model, t foretoken.Token) tokenLogProb {
	l := tokenLogProb{newLogProb(m, sample.LogProb{ID: t.ID, LogProb: t.LogProb}), make([]logProb, len(t.Top))}
	for i, alternative := range t.Top {
		l.Top[i] = newLogProb(m, alternative)
	}
	return l
}

func newLogProb(m *foretoken.Model, p sample.LogProb) logProb {
	text, _ := m.Token(p.ID)
	l := logProb{Token: strings.ToValidUTF8(text, "\ufffd"), LogProb: finite(p.LogProb), Bytes: make([]int, len(text))}
	for i := range len(text) {
		l.Bytes[i] = int(text[i])
	}
	return l
}

// finite is a log-probability that JSON can hold.
func finite(x float32) float64 { return max(float64(x), -9999) }

// logProbs are the log-probabilities of an answer or a chunk, nil if not requested.
func (q *request) logProbs(list []tokenLogProb) any {
	if !q.LogProbs {
		return nil
	}
	if list == nil {
		list = []tokenLogProb{}
	}
	return struct {
		Content []tokenLogProb `json:"content"`
		Refusal []tokenLogProb `json:"refusal"` // always null
	}{Content: list}
}
