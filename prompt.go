package foretoken

import (
	"errors"
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/chat"
)

// ErrNoTemplate is wrapped by the error for a conversation with a checkpoint that was not
// made for them.
var ErrNoTemplate = errors.New("the checkpoint has no chat template")

// Conversation is what an assistant is to answer. Unless it is Trusted, no text in it, whoever
// speaks, becomes a control token by what it spells, be it the end of a turn, <think> or
// <tool_call>. Only what the checkpoint's template writes does.
type Conversation struct {
	Messages []chat.Message
	Tools    []chat.Tool // that it may call
	// Variables are those of the template beside messages and tools, such as
	// enable_thinking, with values that encoding/json can write.
	Variables map[string]any
	// Prefill is text that the answer starts with; the model continues it. It cannot open a
	// block of thinking: that is for the template, as a rule by the variable enable_thinking.
	Prefill string
	// Trusted says that whoever runs the program wrote all of it: what it spells does become
	// control tokens, as in a text that is continued as it is.
	Trusted bool
}

// Prompt is a conversation or a text as the model gets it.
type Prompt struct {
	IDs      []int32
	Chat     bool // it came out of the chat template
	Thinking bool // the answer begins inside of a think block
	// Over is set instead of IDs if there are more than Over tokens, too many for the context:
	// the text was not encoded to its end. Model.CountTokens does that.
	Over int

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
func (m *Model) ToolFormat() chat.ToolFormat { return m.format() }

// ChatPrompt is the prompt for an answer to a conversation.
func (m *Model) ChatPrompt(c Conversation) (*Prompt, error) {
	r, err := m.render(&c, true)
	if err != nil {
		return nil, err
	}
	p := m.encode(r)
	p.Chat, p.Thinking, p.talk = true, r.StartsThinking(), &c
	return p, nil
}

// TextPrompt is the prompt for a text that is to be continued: the spellings of control tokens in
// it stand for them.
func (m *Model) TextPrompt(text string) *Prompt {
	return m.encode(chat.Rendered{Text: text, Trusted: [][2]int{{0, len(text)}}})
}

// CountTokens is the number of tokens of the prompt for an answer to a conversation, also of one
// that is too long.
func (m *Model) CountTokens(c Conversation) (int, error) {
	r, err := m.render(&c, true)
	if err != nil {
		return 0, err
	}
	ids, _ := m.tok.EncodeWithin(r.Text, r.Trusted, 0)
	return len(ids), nil
}

// encode is the prompt of a text. Up to twice the context is encoded to the end, so that an error
// can say how much to leave out; more is not.
func (m *Model) encode(r chat.Rendered) *Prompt {
	limit := 2 * m.context
	ids, ok := m.tok.EncodeWithin(r.Text, r.Trusted, limit)
	if !ok {
		return &Prompt{Over: limit}
	}
	return &Prompt{IDs: ids}
}

// render is what the template makes of a conversation, with Prefill if open asks for an answer. A
// broken template is an error only for who needs it.
func (m *Model) render(c *Conversation, open bool) (chat.Rendered, error) {
	tools := len(c.Tools) > 0
	if m.Template(tools) == "" {
		return chat.Rendered{}, fmt.Errorf("model %s: %w", m.name, ErrNoTemplate)
	}
	parse := m.parsed[0]
	if tools {
		parse = m.parsed[1]
	}
	template, err := parse()
	if err != nil {
		return chat.Rendered{}, fmt.Errorf("model %s: %w", m.name, err)
	}
	r, err := template.Render(chat.Input{
		Messages: c.Messages, Tools: c.Tools, AddGenerationPrompt: open, Variables: c.Variables,
		BOSToken: m.templates.BOS, EOSToken: m.templates.EOS,
	})
	if err == nil && open {
		r.Text += c.Prefill
	}
	if c.Trusted {
		r.Trusted = [][2]int{{0, len(r.Text)}}
	}
	return r, err
}

// Of a long conversation the first turns, with instructions and tools, and the last ones are
// worth caching for other requests.
const (
	firstTurns = 2
	lastTurns  = 3
)

// boundaries are the ends of turns in a prompt, those worth caching.
func (m *Model) boundaries(p *Prompt) []int {
	turn, ok := m.tok.ID(m.family.Dialogue.Turn)
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

// lastQuestion is more tokens than a template makes of a user's message of one character.
const lastQuestion = 64

// next is the prefix that the prompt of the next turn will have once the assistant has said
// answer: up to the end of its turn. Templates leave out what was thought before a user's last
// message, so this need not be prompt and answer of this turn. It is nil where it cannot be
// known, or is too long.
func (m *Model) next(c *Conversation, answer chat.Message) []int32 {
	turn, ok := m.tok.ID(m.family.Dialogue.Turn)
	if !ok {
		return nil
	}
	then := *c
	then.Messages = slices.Concat(c.Messages, []chat.Message{answer, {Role: "user", Content: chat.Text("?")}})
	r, err := m.render(&then, false)
	if err != nil {
		return nil
	}
	ids, _ := m.tok.EncodeWithin(r.Text, r.Trusted, m.context+lastQuestion) // nil: too long to be asked
	for i, id := range slices.Backward(ids) {
		if id == turn {
			return ids[:i]
		}
	}
	return nil
}
