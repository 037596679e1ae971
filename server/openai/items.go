package openai

import (
	"bytes"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/chat/jinja"
	"github.com/foretoken/foretoken/server/body"
)

// input reads the input of a response: a text of the user's, or items, which become messages
// after those that there are. What an assistant thought, said and called is one message.
func input(v *body.Value, list []chat.Message) []chat.Message {
	if v.IsText() {
		return append(list, chat.Message{Role: "user", Content: chat.Text(v.Text())})
	}
	items := v.List()
	if v.IsList() && len(items) == 0 {
		v.Fault("the list is empty, want at least one item")
	}
	first := len(list) // messages before are complete
	for _, item := range items {
		if !item.IsObject() {
			item.Fault("want an object with a type, or with a role and content")
			return list
		}
		list = appendItem(list, first, item)
		item.IgnoreRest() // ids and states, as we gave them out
	}
	return list
}

// appendItem makes an item part of the messages from first on.
func appendItem(list []chat.Message, first int, v *body.Value) []chat.Message {
	// assistant is the assistant's message that goes on.
	assistant := func() *chat.Message {
		if n := len(list); n == first || list[n-1].Role != "assistant" {
			list = append(list, chat.Message{Role: "assistant", Content: chat.Text("")})
		}
		return &list[len(list)-1]
	}
	switch kind := v.Field("type"); kind.Text() {
	case "", "message":
		role := v.Field("role").Required().OneOf("system", "developer", "user", "assistant")
		text := said(v.Field("content").Required())
		if role != "assistant" {
			return append(list, chat.Message{Role: role, Content: chat.Text(text)})
		}
		m := assistant()
		before, _ := m.Content.Text()
		m.Content = chat.Text(before + text)
	case "reasoning":
		text := said(v.Field("content"))
		if text == "" {
			text = said(v.Field("summary"))
		}
		if text == "" {
			return list
		}
		if n := len(list); n > first && list[n-1].Role == "assistant" { // it thinks again: another message
			list = append(list, chat.Message{Role: "assistant", Content: chat.Text("")})
		}
		assistant().ReasoningContent = &text
	case "function_call":
		var call chat.ToolCall
		call.ID, call.Name = v.Field("call_id").Required().Text(), v.Field("name").Required().Text()
		call.Arguments = arguments(v.Field("arguments"))
		m := assistant()
		m.ToolCalls = append(m.ToolCalls, call)
	case "function_call_output":
		return append(list, chat.Message{
			Role: "tool", ToolCallID: v.Field("call_id").Required().Text(), Content: chat.Text(said(v.Field("output").Required())),
		})
	default:
		kind.Unsupported("items of type %.40q are not supported: want message, reasoning, function_call or function_call_output", kind.Text())
	}
	return list
}

// said is a text, or parts that are all texts.
func said(v *body.Value) string {
	if v.IsList() {
		return parts(v)
	}
	return v.Text()
}

// arguments reads the arguments of a call: an object, or the text of one.
func arguments(v *body.Value) *jinja.Map {
	raw := v.Raw()
	if v.IsText() {
		raw = []byte(v.Text())
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	object, err := jinja.DecodeJSON(raw)
	if err != nil || object.Kind() != jinja.KindMap {
		v.Fault("want a JSON object, or a string that holds one")
	}
	return object.Map()
}
