package prompt

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/dialogue"
	"github.com/foretoken/foretoken/internal/prefix"
)

// Conversation is a foretoken.Conversation.
type Conversation struct {
	Messages  []chat.Message
	Tools     []chat.Tool
	Variables map[string]any
	Prefill   string
	Trusted   bool
	CacheSalt string
}

// Prompt is a foretoken.Prompt, with the parts of it that are not public.
type Prompt struct {
	IDs      []int32
	Chat     bool
	Thinking bool
	Over     int

	Talk   *Conversation     // it came out of
	Opens  string            // text that opens a think block, where the model writes it itself, as GLM-4.5 and 4.6 do
	Media  []Media           // its images and videos
	Places []Place           // of those in IDs, ascending
	closed *string           // it ends with a think block, and with this white space
	thinks dialogue.Thinking // how the template writes think blocks
}

// Template is the source of the checkpoint's chat template for a conversation with tools or
// without them; "": it has none.
func (b *Builder) Template(tools bool) string {
	if tools && b.templates.Tools != "" {
		return b.templates.Tools
	}
	return b.templates.Plain
}

// Chat is the prompt for an answer to a conversation, of at most limit tokens, 0 for no limit.
func (b *Builder) Chat(ctx context.Context, c *Conversation, limit int) (*Prompt, error) {
	media, err := b.prepareMedia(ctx, c)
	if err != nil {
		return nil, err
	}
	r, own, err := b.Render(c, true)
	if err != nil {
		if len(media) > 0 && !strings.Contains(b.Template(len(c.Tools) > 0), b.marks.image.text) {
			err = fmt.Errorf("%w (the conversation has images or videos, but the template has no placeholder for them)", err)
		}
		return nil, err
	}
	p, err := b.expand(r, own, media, limit)
	if err == nil {
		p.Media = media
		b.findThinking(p, r, c)
	}
	return p, err
}

// findThinking finds out where in thinking the answer to a prompt begins.
func (b *Builder) findThinking(p *Prompt, r dialogue.Rendered, c *Conversation) {
	p.Thinking = r.StartsThinking()
	if r.EndsThinking() {
		text := strings.TrimRight(r.Text, " \t\r\n")
		space := r.Text[len(text):]
		p.closed = &space
	}
	template, err := b.parsedFor(c)
	if err != nil {
		return // it was rendered: this cannot be
	}
	p.thinks = template.Thinking()
	think, said := dialogue.Asks(c.Variables)
	if !said {
		think = !p.thinks.Asked
	}
	if think && !p.Thinking && p.closed == nil && c.Prefill == "" {
		p.Opens = p.thinks.Open
	}
}

// Tags are the tags of think blocks in the answer.
func (p *Prompt) Tags() dialogue.ThinkTags { return p.thinks.Tags }

// Apart is the part of lead that is still to be written. The template writes lead between a think block
// and the text that follows. It is "" if there is no block.
func (p *Prompt) Apart(lead string) string {
	switch {
	case p.Thinking || p.Opens != "":
		return lead
	case p.closed != nil:
		if rest, ok := strings.CutPrefix(lead, *p.closed); ok {
			return rest
		}
	}
	return ""
}

// Thought reports whether the answer to p comes after a think block that the template closed, and has to
// set itself apart from it.
func (p *Prompt) Thought() bool { return p.closed != nil && p.Apart(p.thinks.Apart) != "" }

// Text is the prompt for a text that is to be continued: the spellings of control tokens in
// it stand for them. Tokens that the checkpoint's tokenizer puts before every text, such as GLM's
// [gMASK]<sop>, come before it, unless it begins with them or is empty.
func (b *Builder) Text(text string) *Prompt {
	r := dialogue.Rendered{Text: text, Trusted: [][2]int{{0, len(text)}}}
	p, _ := b.expand(r, nil, nil, b.Most()) // nothing in it is an image
	if first := b.prefix(); len(p.IDs) > 0 && !slices.Equal(p.IDs[:min(len(first), len(p.IDs))], first) {
		p.IDs = slices.Concat(first, p.IDs)
	}
	return p
}

// prefix are the tokens that a text begins with.
func (b *Builder) prefix() []int32 {
	if first := b.tok.Prefix(); len(first) > 0 || !b.templates.AddBOS {
		return first
	}
	if id, ok := b.tok.ID(b.templates.BOS); ok {
		return []int32{id}
	}
	return nil
}

// Most is how many tokens of a prompt are encoded: up to twice the context, so that an error can say
// how much to leave out.
func (b *Builder) Most() int { return 2 * b.context }

// Render renders a conversation with the template, with Prefill if open asks for an answer,
// and returns the ranges that the template wrote itself. A broken template is an error only when it is
// used.
func (b *Builder) Render(c *Conversation, open bool) (r dialogue.Rendered, own [][2]int, err error) {
	tools := len(c.Tools) > 0
	if b.Template(tools) == "" {
		return r, nil, fmt.Errorf("model %s: %w", b.name, ErrNoTemplate)
	}
	template, err := b.parsedFor(c)
	if err != nil {
		return r, nil, fmt.Errorf("model %s: %w", b.name, err)
	}
	vars := c.Variables
	if on, ok := vars["enable_thinking"]; ok {
		if _, ok := vars["thinking"]; !ok { // DeepSeek's templates have it under this name
			vars = maps.Clone(vars)
			vars["thinking"] = on
		}
	}
	r, err = template.Render(dialogue.Input{
		Messages: c.Messages, Tools: c.Tools, AddGenerationPrompt: open, Variables: vars,
		BOSToken: b.templates.BOS, EOSToken: b.templates.EOS,
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
func (b *Builder) parsedFor(c *Conversation) (*dialogue.Template, error) {
	if len(c.Tools) > 0 {
		return b.parsed[1]()
	}
	return b.parsed[0]()
}

// The first turns of a long conversation, with instructions and tools, and the last ones are
// worth caching for other requests.
const (
	firstTurns = 2
	lastTurns  = 3
)

// turns are the tokens that open a turn.
func (b *Builder) turns() []int32 {
	var ids []int32
	for _, token := range b.dialogue.Turns {
		if id, ok := b.tok.ID(token); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// Boundaries are the ends of turns in a prompt that are worth caching, and that of its last image,
// which other questions may follow.
func (b *Builder) Boundaries(p *Prompt) []int {
	turns := b.turns()
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
	if n := len(p.Places); n > 0 {
		list = append(list, p.Places[n-1].At+p.Places[n-1].N)
	}
	return list
}

// lastQuestion is more tokens than a template makes of a user's message of one character.
const lastQuestion = 64

// Next is the prefix that the prompt of the next turn will have after the assistant's
// answer: up to the end of its turn. Templates leave out reasoning before a user's last
// message, so this need not be prompt and answer of this turn. It is nil if it is
// unknown or too long.
func (b *Builder) Next(c *Conversation, media []Media, answer chat.Message) *Prompt {
	turns := b.turns()
	if len(turns) == 0 {
		return nil
	}
	then := *c
	then.Messages = slices.Concat(c.Messages, []chat.Message{answer, {Role: "user", Content: chat.Text("?")}})
	r, own, err := b.Render(&then, false)
	if err != nil {
		return nil
	}
	p, err := b.expand(r, own, media, b.context+lastQuestion)
	if err != nil || p.Over > 0 { // too long for a request
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

// Key identifies the conversation of a prompt, by its prefix up to the assistant's first
// turn: instructions, tools and the first question, which all of its turns share. It is
// "" for texts that are not conversations. Two with the same prefix share a key; then the more
// recent one is prefilled. Other salts have other keys.
func (b *Builder) Key(p *Prompt, salt prefix.Salt) string {
	if len(b.turns()) == 0 || p.Talk == nil {
		return ""
	}
	var answers [][]int32
	for _, text := range b.dialogue.Answers {
		answers = append(answers, b.tok.Encode(text))
	}
	h := fnv.New128a()
	h.Write(salt[:])
	var word [4]byte
	places := p.Places
	for i, id := range p.IDs {
		rest := p.IDs[i:]
		if slices.ContainsFunc(answers, func(a []int32) bool { return len(rest) >= len(a) && slices.Equal(rest[:len(a)], a) }) {
			break
		}
		if len(places) > 0 && places[0].At == i {
			sum := places[0].Hash()
			h.Write(sum[:])
			places = places[1:]
		}
		binary.LittleEndian.PutUint32(word[:], uint32(id))
		h.Write(word[:])
	}
	return string(h.Sum(nil))
}
