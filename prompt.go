package foretoken

import (
	"context"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/prompt"
)

// ErrNoTemplate is wrapped by the error for a conversation with a checkpoint that was not
// made for them.
var ErrNoTemplate = prompt.ErrNoTemplate

// Conversation is a conversation that an assistant is to answer. Unless it is Trusted, no text in it, of any
// role, becomes a control token by its spelling, be it the end of a turn, <think> or
// <tool_call>. Only text of the checkpoint's template does.
type Conversation struct {
	Messages []chat.Message
	Tools    []chat.Tool // that it may call
	// Variables are those of the template besides messages and tools, such as
	// enable_thinking, with values that encoding/json can encode.
	Variables map[string]any
	// Prefill is text that the answer starts with; the model continues it. It cannot open a
	// block of thinking: that is for the template, as a rule by the variable enable_thinking.
	Prefill string
	// Trusted: the operator of the program wrote all of it. Spellings of control tokens become
	// control tokens, as in a text prompt.
	Trusted bool
	// CacheSalt is as that of a Request: decoded images are kept for conversations with
	// the same one.
	CacheSalt string
}

// Prompt is a conversation or a text as the model gets it.
type Prompt struct {
	// IDs are the tokens. Rows of an image or video have placeholder tokens, as many as there
	// are rows: IDs alone do not distinguish
	// images.
	IDs      []int32
	Chat     bool // it came out of the chat template
	Thinking bool // the answer begins inside of a think block
	// Over is set instead of IDs if there are more than Over tokens, too many for the context:
	// the text was not encoded to its end. Model.CountTokens does that.
	Over int

	built *prompt.Prompt // further data of a conversation or text; nil: the caller made the prompt
}

// newPrompt wraps a built prompt.
func newPrompt(p *prompt.Prompt) *Prompt {
	return &Prompt{IDs: p.IDs, Chat: p.Chat, Thinking: p.Thinking, Over: p.Over, built: p}
}

// inner is the prompt with the parts of it that are not public.
func (p *Prompt) inner() *prompt.Prompt {
	var x prompt.Prompt
	if p.built != nil {
		x = *p.built
	}
	x.IDs, x.Chat, x.Thinking, x.Over = p.IDs, p.Chat, p.Thinking, p.Over
	return &x
}

// ChatPrompt is the prompt for an answer to a conversation. Its images and videos are decoded
// here; the vision tower runs when the answer is requested. An unusable one is a
// MediaError, and any with a model without vision an ErrNoVision.
func (m *Model) ChatPrompt(ctx context.Context, c Conversation) (*Prompt, error) {
	p, err := m.text.Chat(ctx, (*prompt.Conversation)(&c), m.text.Most())
	if err != nil {
		return nil, err
	}
	p.Chat, p.Talk = true, (*prompt.Conversation)(&c)
	return newPrompt(p), nil
}

// TextPrompt is the prompt for a text that is to be continued: the spellings of control tokens in
// it stand for them. Tokens that the checkpoint's tokenizer puts before every text, such as GLM's
// [gMASK]<sop>, come before it, unless it begins with them or is empty.
func (m *Model) TextPrompt(text string) *Prompt { return newPrompt(m.text.Text(text)) }

// CountTokens is the number of tokens of the prompt for an answer to a conversation, also of one
// that is too long. Images are decoded, but the vision tower does not run.
func (m *Model) CountTokens(ctx context.Context, c Conversation) (int, error) {
	p, err := m.text.Chat(ctx, (*prompt.Conversation)(&c), 0)
	if err != nil {
		return 0, err
	}
	return len(p.IDs), nil
}
