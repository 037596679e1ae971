package foretoken

import (
	"errors"
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/chat/jinja"
)

// ErrNoTemplate is wrapped by the error for a conversation with a checkpoint that was not
// made for them.
var ErrNoTemplate = errors.New("the checkpoint has no chat template")

// Conversation is what an assistant is to answer.
type Conversation struct {
	Messages []chat.Message
	Tools    []chat.Tool // that it may call
	// Variables are those of the template beside messages and tools, such as
	// enable_thinking; nil: none.
	Variables *jinja.Map
	// Prefill is text that the answer begins with: what the model says is a continuation.
	Prefill string
}

// Prompt is a conversation or a text as the model gets it.
type Prompt struct {
	IDs      []int32
	Chat     bool // it came out of the chat template
	Thinking bool // the answer begins inside of a think block

	talk *Conversation // it came out of
}

// Template is the source of the checkpoint's chat template for a conversation with tools or
// without them; "": it has none.
func (m *Model) Template(tools bool) string {
	if tools && m.templates.Tools != "" {
		return m.templates.Tools
	}
	return m.templates.Plain
}

// ToolFormat is the format of tool calls that the template teaches.
func (m *Model) ToolFormat() chat.ToolFormat { return chat.Teaches(m.Template(true)) }

// Ask is the prompt for an answer to a conversation.
func (m *Model) Ask(c Conversation) (*Prompt, error) {
	text, err := m.render(&c, true)
	if err != nil {
		return nil, err
	}
	text += c.Prefill
	return &Prompt{IDs: m.tok.Encode(text), Chat: true, Thinking: chat.StartsThinking(text), talk: &c}, nil
}

// Continue is the prompt for a text to be continued as it is.
func (m *Model) Continue(text string) *Prompt { return &Prompt{IDs: m.tok.Encode(text)} }

// render is the text that the template makes of a conversation. A broken template is an error
// only for whom needs it.
func (m *Model) render(c *Conversation, open bool) (string, error) {
	source := m.Template(len(c.Tools) > 0)
	if source == "" {
		return "", fmt.Errorf("model %s: %w", m.name, ErrNoTemplate)
	}
	template, err := chat.NewTemplate(source)
	if err != nil {
		return "", fmt.Errorf("model %s: %w", m.name, err)
	}
	return template.Render(chat.Input{
		Messages: c.Messages, Tools: c.Tools, AddGenerationPrompt: open, Kwargs: c.Variables,
		BOSToken: m.templates.BOS, EOSToken: m.templates.EOS,
	})
}

// Of a long conversation the first turns, which hold instructions and tools, and the last
// ones are worth keeping for other requests.
const (
	firstTurns = 2
	lastTurns  = 3
)

// boundaries are the ends of turns in a prompt, those worth keeping.
func (m *Model) boundaries(p *Prompt) []int {
	turn, ok := m.tok.ID("<|im_start|>")
	if !ok || !p.Chat {
		return nil
	}
	var list []int
	for i, id := range p.IDs {
		if id == turn && i > 0 {
			list = append(list, i)
		}
	}
	if len(list) > firstTurns+lastTurns {
		list = slices.Delete(list, firstTurns, len(list)-lastTurns)
	}
	return list
}

// next is how the prompt of the next turn will begin once the assistant has said answer: up
// to the end of its turn. Templates leave out what was thought before a user's last message,
// so this need not be what the model has read and said. It is nil where it cannot be known.
func (m *Model) next(c *Conversation, answer chat.Message) []int32 {
	turn, ok := m.tok.ID("<|im_start|>")
	if !ok {
		return nil
	}
	then := *c
	then.Messages = slices.Concat(c.Messages, []chat.Message{answer, {Role: "user", Content: chat.Text("?")}})
	text, err := m.render(&then, false)
	if err != nil {
		return nil
	}
	ids := m.tok.Encode(text)
	for i, id := range slices.Backward(ids) {
		if id == turn {
			return ids[:i]
		}
	}
	return nil
}
