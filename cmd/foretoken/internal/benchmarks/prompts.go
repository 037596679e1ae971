package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/bench"
)

// encoded are the token ids of the prompts, by class and context.
func (f *decodeBench) encoded(ctx context.Context, s *load.Model, o *bench.DecodeOptions) (map[bench.Text][][]int32, error) {
	n := f.prompts.Or(quickPrompts)
	if f.full {
		n = f.prompts.Or(fullPrompts)
	}
	for _, tokens := range f.contexts {
		if most := s.Context() - o.MaxTokens; tokens < 0 || tokens > most {
			return nil, flags.Usagef("--contexts %d: want numbers from 0 to %d: a context of %d tokens has %d for the answer; --context and --max-tokens change them", tokens, most, s.Context(), o.MaxTokens)
		}
	}
	all := map[bench.Text][][]int32{}
	for _, class := range f.classes {
		texts := bench.Prompts(class)
		n := min(len(texts), max(n, slices.Max(f.batches)))
		if slices.Max(f.contexts) > 0 {
			o.Progress(fmt.Sprintf("%s: generating %d tokens of earlier turns", class, slices.Max(f.contexts)))
		}
		turns, err := earlierTurns(ctx, s, class, n, slices.Max(f.contexts))
		if err != nil {
			return nil, err
		}
		for _, text := range texts[:n] {
			for _, tokens := range f.contexts {
				p, err := benchPrompt(ctx, s, class, turns, text, tokens)
				if err != nil {
					return nil, err
				}
				if err := s.CheckPrompt(p); err != nil {
					return nil, err
				}
				at := bench.Text{Class: class, Context: tokens}
				all[at] = append(all[at], p.IDs)
			}
		}
	}
	return all, nil
}

// turn is a prompt with the model's answer.
type turn struct {
	text   string
	answer *foretoken.Answer
	tokens int // of both
}

// turnTokens is the maximum length of an answer among earlier turns.
const turnTokens = 256

// earlierTurns are turns of a class that fill a number of tokens. They begin with the prompts from
// first on and are the same in every run.
func earlierTurns(ctx context.Context, s *load.Model, class string, first, tokens int) ([]turn, error) {
	texts, sampling := bench.Prompts(class), s.Sampling()
	var list []turn
	for sum := 0; sum < tokens; {
		t := turn{text: texts[(first+len(list))%len(texts)]}
		p, err := benchPrompt(ctx, s, class, nil, t.text, 0)
		if err != nil {
			return nil, err
		}
		sampling.Seed = uint64(len(list))
		if t.answer, err = s.Generate(ctx, foretoken.Request{Prompt: p, MaxTokens: turnTokens, Sampling: &sampling}); err != nil {
			return nil, err
		}
		if err := t.answer.Wait(); err != nil {
			return nil, err
		}
		t.tokens = len(p.IDs) + len(t.answer.Tokens)
		sum += t.tokens
		list = append(list, t)
	}
	return list, nil
}

// benchPrompt is the prompt for an answer to a text after as many turns as fit into a number of
// tokens. A checkpoint without a chat template gets plain text.
func benchPrompt(ctx context.Context, s *load.Model, class string, turns []turn, text string, tokens int) (*foretoken.Prompt, error) {
	plain, messages := text, []chat.Message{{Role: "user", Content: chat.Text(text)}}
	left := tokens - len(s.Encode(text))
	for _, t := range slices.Backward(turns) {
		if left -= t.tokens; left < 0 {
			break
		}
		plain = t.text + t.answer.Text() + "\n\n" + plain
		messages = append([]chat.Message{{Role: "user", Content: chat.Text(t.text)}, t.answer.Message()}, messages...)
	}
	if !bench.Raw(class) {
		p, err := s.ChatPrompt(ctx, foretoken.Conversation{Messages: messages})
		if !errors.Is(err, foretoken.ErrNoTemplate) {
			return p, err
		}
	}
	return s.TextPrompt(plain), nil
}
