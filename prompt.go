package foretoken

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	// CacheSalt is as that of a Request: what was decoded of pictures is kept for conversations with
	// the same one.
	CacheSalt string
}

// Prompt is a conversation or a text as the model gets it.
type Prompt struct {
	// IDs are the tokens. Where the model is fed rows of a picture or video in place of tokens,
	// they are the tokens that hold the place, as many as there are rows: IDs alone do not tell
	// one picture from another.
	IDs      []int32
	Chat     bool // it came out of the chat template
	Thinking bool // the answer begins inside of a think block
	// Over is set instead of IDs if there are more than Over tokens, too many for the context:
	// the text was not encoded to its end. Model.CountTokens does that.
	Over int

	talk   *Conversation   // it came out of
	opens  string          // text that opens a think block, where the model writes it itself, as GLM-4.5 and 4.6 do
	closed *string         // it ends with a think block, and with this white space
	thinks chat.Thinking   // how the template writes think blocks
	media  []preparedMedia // of its images and videos
	places []place         // of those in IDs, ascending
}

// template is the source of the checkpoint's chat template for a conversation with tools or
// without them; "": it has none.
func (m *Model) template(tools bool) string {
	if tools && m.templates.Tools != "" {
		return m.templates.Tools
	}
	return m.templates.Plain
}

// ChatPrompt is the prompt for an answer to a conversation. Its images and videos are decoded
// here; the model looks at them when it is asked for the answer. One that cannot be used is a
// MediaError, and any with a model that cannot see an ErrNoVision.
func (m *Model) ChatPrompt(ctx context.Context, c Conversation) (*Prompt, error) {
	p, err := m.chatPrompt(ctx, &c, m.most())
	if err == nil {
		p.Chat, p.talk = true, &c
	}
	return p, err
}

// chatPrompt is the prompt for an answer to a conversation, of at most limit tokens, 0 for no limit.
func (m *Model) chatPrompt(ctx context.Context, c *Conversation, limit int) (*Prompt, error) {
	media, err := m.prepareMedia(ctx, c)
	if err != nil {
		return nil, err
	}
	r, own, err := m.render(c, true)
	if err != nil {
		if len(media) > 0 && !strings.Contains(m.template(len(c.Tools) > 0), m.marks.image.text) {
			err = fmt.Errorf("%w (the conversation has images or videos, but the template has no placeholder for them)", err)
		}
		return nil, err
	}
	p, err := m.expand(r, own, media, limit)
	if err == nil {
		p.media = media
		m.findThinking(p, r, c)
	}
	return p, err
}

// findThinking finds out where in thinking the answer to a prompt begins.
func (m *Model) findThinking(p *Prompt, r chat.Rendered, c *Conversation) {
	p.Thinking = r.StartsThinking()
	if r.EndsThinking() {
		text := strings.TrimRight(r.Text, " \t\r\n")
		space := r.Text[len(text):]
		p.closed = &space
	}
	template, err := m.parsedFor(c)
	if err != nil {
		return // it was rendered: this cannot be
	}
	p.thinks = template.Thinking()
	if !p.Thinking && p.closed == nil && c.Prefill == "" {
		p.opens = p.thinks.Open
	}
}

// apart is the rest of lead that is still to be written. The template writes lead between a think block
// and the text that follows. It is "" if there is no block.
func (p *Prompt) apart(lead string) string {
	switch {
	case p.Thinking || p.opens != "":
		return lead
	case p.closed != nil:
		if rest, ok := strings.CutPrefix(lead, *p.closed); ok {
			return rest
		}
	}
	return ""
}

// TextPrompt is the prompt for a text that is to be continued: the spellings of control tokens in
// it stand for them. Tokens that the checkpoint's tokenizer puts before every text, such as GLM's
// [gMASK]<sop>, come before it, unless it begins with them or is empty.
func (m *Model) TextPrompt(text string) *Prompt {
	r := chat.Rendered{Text: text, Trusted: [][2]int{{0, len(text)}}}
	p, _ := m.expand(r, nil, nil, m.most()) // nothing in it is a picture
	if first := m.prefix(); len(p.IDs) > 0 && !slices.Equal(p.IDs[:min(len(first), len(p.IDs))], first) {
		p.IDs = slices.Concat(first, p.IDs)
	}
	return p
}

// prefix are the tokens that a text begins with.
func (m *Model) prefix() []int32 {
	if first := m.tok.Prefix(); len(first) > 0 || !m.templates.AddBOS {
		return first
	}
	if id, ok := m.tok.ID(m.templates.BOS); ok {
		return []int32{id}
	}
	return nil
}

// most is how many tokens of a prompt are encoded: up to twice the context, so that an error can say
// how much to leave out.
func (m *Model) most() int { return 2 * m.context }

// CountTokens is the number of tokens of the prompt for an answer to a conversation, also of one
// that is too long. Pictures are decoded, but the model does not look at them.
func (m *Model) CountTokens(ctx context.Context, c Conversation) (int, error) {
	p, err := m.chatPrompt(ctx, &c, 0)
	if err != nil {
		return 0, err
	}
	return len(p.IDs), nil
}

// render is what the template makes of a conversation, with Prefill if open asks for an answer,
// and the ranges that the template wrote itself. A broken template is an error only for who needs
// it.
func (m *Model) render(c *Conversation, open bool) (r chat.Rendered, own [][2]int, err error) {
	tools := len(c.Tools) > 0
	if m.template(tools) == "" {
		return r, nil, fmt.Errorf("model %s: %w", m.name, ErrNoTemplate)
	}
	template, err := m.parsedFor(c)
	if err != nil {
		return r, nil, fmt.Errorf("model %s: %w", m.name, err)
	}
	vars := c.Variables
	if on, ok := vars["enable_thinking"]; ok {
		if _, ok := vars["thinking"]; !ok { // DeepSeek's templates have it under this name
			vars = maps.Clone(vars)
			vars["thinking"] = on
		}
	}
	r, err = template.Render(chat.Input{
		Messages: c.Messages, Tools: c.Tools, AddGenerationPrompt: open, Variables: vars,
		BOSToken: m.templates.BOS, EOSToken: m.templates.EOS,
	})
	if err == nil && open {
		r.Text += c.Prefill
	}
	if own = r.Trusted; c.Trusted {
		r.Trusted = [][2]int{{0, len(r.Text)}}
	}
	return r, own, err
}

// parsedFor is the template for a conversation.
func (m *Model) parsedFor(c *Conversation) (*chat.Template, error) {
	if len(c.Tools) > 0 {
		return m.parsed[1]()
	}
	return m.parsed[0]()
}

// Of a long conversation the first turns, with instructions and tools, and the last ones are
// worth caching for other requests.
const (
	firstTurns = 2
	lastTurns  = 3
)

// turns are the tokens that open a turn.
func (m *Model) turns() []int32 {
	var ids []int32
	for _, token := range m.family.Dialogue.Turns {
		if id, ok := m.tok.ID(token); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// boundaries are the ends of turns in a prompt, those worth caching, and that of its last picture,
// about which there may be other questions.
func (m *Model) boundaries(p *Prompt) []int {
	turns := m.turns()
	if len(turns) == 0 || !p.Chat {
		return nil
	}
	var list []int
	for i, id := range p.IDs {
		if i > 0 && slices.Contains(turns, id) {
			list = append(list, i)
		}
	}
	if len(list) > firstTurns+lastTurns {
		list = slices.Delete(list, firstTurns, len(list)-lastTurns)
	}
	if n := len(p.places); n > 0 {
		list = append(list, p.places[n-1].at+p.places[n-1].n)
	}
	return list
}

// lastQuestion is more tokens than a template makes of a user's message of one character.
const lastQuestion = 64

// next is the prefix that the prompt of the next turn will have once the assistant has said
// answer: up to the end of its turn. Templates leave out what was thought before a user's last
// message, so this need not be prompt and answer of this turn. It is nil where it cannot be
// known, or is too long.
func (m *Model) next(c *Conversation, media []preparedMedia, answer chat.Message) *Prompt {
	turns := m.turns()
	if len(turns) == 0 {
		return nil
	}
	then := *c
	then.Messages = slices.Concat(c.Messages, []chat.Message{answer, {Role: "user", Content: chat.Text("?")}})
	r, own, err := m.render(&then, false)
	if err != nil {
		return nil
	}
	p, err := m.expand(r, own, media, m.context+lastQuestion)
	if err != nil || p.Over > 0 { // too long to be asked
		return nil
	}
	for i, id := range slices.Backward(p.IDs) {
		if slices.Contains(turns, id) {
			p.IDs, p.Chat = p.IDs[:i], true
			return p
		}
	}
	return nil
}
