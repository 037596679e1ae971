package terminal

import (
	"context"
	"fmt"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
)

// Reasons for the end of an answer that the model does not know.
const (
	finishCanceled = "canceled" // Ctrl-C
	finishError    = "error"
)

// session is an open model that answers questions.
type session struct{ *load.Model }

// question is the request for an answer to p. likeliest is the number of alternatives with
// log-probabilities per token, -1 for none at all.
func (s *session) question(p *foretoken.Prompt, sampling *samplingFlags, limits *limitFlags, likeliest int) (foretoken.Request, error) {
	options, err := sampling.options(s.Sampling())
	if err != nil {
		return foretoken.Request{}, err
	}
	for id := range options.LogitBias {
		if int(id) >= s.Vocab() {
			return foretoken.Request{}, flags.Usagef("--logit-bias: %d is not a token of the model; its ids are 0 to %d", id, s.Vocab()-1)
		}
	}
	return foretoken.Request{
		Prompt: p, MaxTokens: limits.maxTokens.Or(limits.otherwise), Sampling: &options,
		Stop: limits.stop, IgnoreEnd: limits.ignoreEOS, LogProbs: likeliest >= 0, TopLogProbs: max(likeliest, 0),
	}, nil
}

// answer is the result of a question.
type answer struct {
	*foretoken.Answer
	finish string
}

// summary is a line on the answer for people.
func (a *answer) summary(seed uint64) string {
	r := &a.Result
	line := fmt.Sprintf("%s (%s)", console.Counted(len(a.Tokens), "token"), a.finish)
	if v := rate(r.Tokens-1, r.Decode); v != nil {
		line += fmt.Sprintf(", %.1f tok/s", *v)
	}
	line += "; prompt " + console.Counted(r.Prompt, "token")
	if v := rate(r.Prompt, r.Prefill); v != nil {
		line += fmt.Sprintf(", %.1f tok/s", *v)
	}
	return fmt.Sprintf("%s; seed %d", line, seed)
}

// ask runs a question and passes its pieces to emit as they come. The answer is the text so far
// also when an error is returned: console.ErrInterrupted when ctx was canceled, or the error of
// the engine or of emit.
func (s *session) ask(ctx context.Context, q foretoken.Request, emit func(foretoken.Piece) error) (*answer, error) {
	running, err := s.Generate(ctx, q)
	if err != nil {
		return nil, err
	}
	a := &answer{Answer: running}
	for p, streamErr := range running.Pieces() {
		if err = streamErr; err == nil {
			err = emit(p)
		}
		if err != nil {
			break
		}
	}
	switch a.finish = string(a.Finish); {
	case err == nil:
		return a, nil
	case ctx.Err() != nil && !console.IsOutputError(err):
		a.finish = finishCanceled
		return a, console.ErrInterrupted
	default:
		a.finish = finishError
		return a, err
	}
}
