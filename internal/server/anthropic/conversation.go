package anthropic

import (
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/media"
)

// between separates blocks that templates show as one text.
const between = "\n\n"

// conversation makes messages of a template out of messages with blocks.
type conversation struct {
	request *generate.Request
	list    []chat.Message
	parts   media.Parts // of the last message, if it continues
	prefill string
	calls   map[string]string // from the ids of tool_use blocks to the tools' names
	addTool func(*body.Value) // adds a tool
}

// system reads the instructions: a text or blocks of text, and of tools that come and go.
func (c *conversation) system(v *body.Value) {
	if text := texts(v, c.change); text != "" {
		c.end()
		c.list = append(c.list, chat.Message{Role: "system", Content: chat.Text(text)})
	}
}

// change reads a block that adds or removes a tool, and
// reports whether it is one. Templates list tools once, so all of them are available in the
// whole conversation.
func (c *conversation) change(kind, v *body.Value) bool {
	switch kind.Text() {
	case "tool_addition":
		tool := v.Field("tool").Required()
		if tool.Field("type").OneOf("tool_reference", "tool_definition") == "tool_definition" {
			c.addTool(tool.Field("definition").Required())
		}
		tool.Ignore("name", "tool_name")
	case "tool_removal":
		v.IgnoreRest()
		kind.Drop("removing a tool within a conversation is not supported: leave it out of tools")
	default:
		return false
	}
	return true
}

// messages reads the turns. A last one of the assistant is the prefill of the answer and not part
// of the list.
func (c *conversation) messages(v *body.Value) {
	n := v.Len()
	if n == 0 {
		v.Fault("there are no messages")
	}
	c.calls = map[string]string{}
	for i, m := range v.AtMost(generate.MaxMessages).List() {
		role := m.Field("role").Required().OneOf("user", "assistant", "system")
		content := m.Field("content").Required()
		switch {
		case role == "system":
			c.system(content)
		case role == "assistant" && i == n-1:
			if c.prefill = texts(content, nil); strings.TrimSpace(c.prefill) == "" {
				content.Fault("the prefilled text of the answer is empty")
			}
		case content.IsText():
			c.say(role, content.Text())
		default:
			if content.Len() == 0 {
				content.Fault("there are no blocks")
			}
			for _, b := range content.List() {
				c.block(role, b)
			}
		}
	}
	c.end()
	if len(c.list) == 0 && c.prefill == "" {
		v.Fault("the conversation has no message to answer")
	}
}

// last is the message of a role that more blocks belong to: turns of the same side that
// follow each other are one.
func (c *conversation) last(role string) *chat.Message {
	if n := len(c.list); n == 0 || c.list[n-1].Role != role {
		c.end()
		c.list = append(c.list, chat.Message{Role: role})
	}
	return &c.list[len(c.list)-1]
}

// end completes the last message, which continues while turns of its side follow it.
func (c *conversation) end() {
	if n := len(c.list); n > 0 && (c.list[n-1].Role == "user" || c.list[n-1].Role == "assistant") {
		c.list[n-1].Content = c.parts.Content()
	}
	c.parts = media.Parts{Between: between}
}

// say adds text to a turn.
func (c *conversation) say(role, text string) {
	c.last(role)
	c.parts.Text(text)
}

// block adds one block of a turn.
func (c *conversation) block(role string, v *body.Value) {
	kind := v.Field("type").Required()
	v.Ignore("cache_control")
	switch kind.Text() {
	case "text":
		v.Ignore("citations")
		c.say(role, v.Field("text").Required().Text())
	case "document":
		c.say(role, document(v))
	case "image":
		c.last(role)
		c.parts.Media(c.image(v))
	case "thinking":
		v.Ignore("signature")
		text := v.Field("thinking").Text()
		if role != "assistant" {
			kind.Fault("thinking blocks are allowed in assistant messages only; this is a message of the %s", role)
		}
		m := c.last(role)
		if m.ReasoningContent != nil {
			text = *m.ReasoningContent + between + text
		}
		m.ReasoningContent = &text
	case "redacted_thinking":
		v.IgnoreRest()
		kind.Drop("encrypted thinking of another provider is not supported: leave the block out")
	case "server_tool_use", "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result", "bash_code_execution_tool_result",
		"text_editor_code_execution_tool_result", "tool_search_tool_result", "mcp_tool_use", "mcp_tool_result", "container_upload":
		v.IgnoreRest()
		kind.Drop("blocks of type %.60q are not supported: the tool is run by the provider", kind.Text())
	case "tool_use":
		if role != "assistant" {
			kind.Fault("tool calls are allowed in assistant messages only; this is a message of the %s", role)
		}
		c.call(v)
	case "tool_result":
		if role != "user" {
			kind.Fault("tool results are allowed in user messages only; this is a message of the %s", role)
		}
		c.result(v)
	default:
		kind.Unsupported("blocks of type %.60q are not supported; supported: text, image, thinking, tool_use, tool_result and document", kind.Text())
	}
}

// call adds a call of a tool.
func (c *conversation) call(v *body.Value) {
	v.Ignore("caller")
	call := chat.ToolCall{ID: v.Field("id").Required().Text(), Name: v.Field("name").Required().Text()}
	if input := v.Field("input").Required(); input.IsObject() && input.Admit(input.Raw()) {
		var err error
		if call.Arguments, err = chat.ParseArguments(input.Raw()); err != nil {
			input.Fault("%v", err)
		}
	} else {
		input.Fault("want the arguments as an object")
	}
	c.calls[call.ID] = call.Name
	m := c.last("assistant")
	m.ToolCalls = append(m.ToolCalls, call)
}

// result adds the result of a tool, which is a separate turn.
func (c *conversation) result(v *body.Value) {
	id := v.Field("tool_use_id").Required()
	name, ok := c.calls[id.Text()]
	if !ok {
		id.Fault("%.60q: no tool_use block before it has this id", id.Text())
	}
	prefix := ""
	if v.Field("is_error").True() {
		prefix = "Error: " // templates have no other way to say it
	}
	parts := media.Parts{Between: between}
	say := func(text string) {
		if text != "" {
			parts.Text(prefix + text)
			prefix = ""
		}
	}
	say(texts(v.Field("content"), func(kind, b *body.Value) bool {
		switch kind.Text() {
		case "image":
			parts.Media(c.image(b))
		case "text":
			say(b.Field("text").Text())
		default:
			return false
		}
		return true
	}))
	parts.Text(prefix)
	c.end()
	c.list = append(c.list, chat.Message{Role: "tool", Name: name, ToolCallID: id.Text(), Content: parts.Content()})
}

// image reads a block with an image.
func (c *conversation) image(v *body.Value) *chat.Media {
	source := v.Field("source").Required()
	switch kind := source.Field("type").Required(); kind.Text() {
	case "base64":
		if t := source.Field("media_type"); !strings.HasPrefix(t.Required().Text(), "image/") {
			t.Fault("%.40q, want the type of an image, such as image/png", t.Text())
		}
		return media.Base64(c.request, source.Field("data").Required())
	case "url":
		return media.Picture(c.request, source.Field("url").Required())
	case "file":
		source.Ignore("file_id")
		kind.Unsupported("stored files are not supported for images: send the image, with type base64")
	default:
		kind.OneOf("base64", "url")
	}
	return &chat.Media{}
}

// texts is a content that must be text: a string, or blocks of it, apart from blocks that
// other accepts, if it is not nil.
func texts(v *body.Value, other func(kind, v *body.Value) bool) string {
	if v.Absent() || v.IsText() {
		return v.Text()
	}
	var parts []string
	for _, b := range v.List() {
		b.Ignore("cache_control", "citations")
		switch t := b.Field("type").Required(); {
		case other != nil && other(t, b):
			continue
		case t.Text() == "image":
			t.Fault("images are not allowed here: put the image into a user message")
		case t.Text() == "tool_reference": // to a tool that was found: all of them are in the prompt
			b.Ignore("tool_name")
			continue
		default:
			t.OneOf("text")
		}
		if text := b.Field("text").Text(); text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, between)
}

// document is the text of a document with its title and context.
func document(v *body.Value) string {
	v.Ignore("citations")
	source := v.Field("source").Required()
	var text string
	switch kind := source.Field("type").Required(); kind.Text() {
	case "text":
		source.Ignore("media_type")
		text = source.Field("data").Required().Text()
	case "content":
		text = texts(source.Field("content").Required(), nil)
	default:
		kind.Unsupported("documents of type %.60q are not supported: send the text, with type text", kind.Text())
	}
	parts := []string{}
	for _, part := range []string{v.Field("title").Text(), v.Field("context").Text(), text} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, between)
}
