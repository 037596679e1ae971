package openai

import (
	"bytes"
	"slices"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// input reads the input of a response: a text of the user's, or items, which become messages
// after the existing ones. An assistant's thinking, text and calls are one message. Tools
// in the items are added to the others.
func (q *responseRequest) input(v *body.Value, list []chat.Message) []chat.Message {
	if v.IsText() {
		return append(list, chat.Message{Role: "user", Content: chat.Text(v.Text())})
	}
	if v.IsList() && v.Len() == 0 {
		v.Fault("the list is empty, want at least one item")
	}
	first := len(list) // messages before are complete
	v = v.AtMost(generate.MaxMessages)
	list = slices.Grow(list, v.Len())
	for _, item := range v.List() {
		if !item.IsObject() {
			item.Fault("want an object with a type, or with a role and content")
			return list
		}
		if item.Field("type").Text() == "additional_tools" {
			item.Ignore("id", "role")
			for _, tool := range item.Field("tools").Required().List() {
				if !q.tool(tool, "", true) {
					return list
				}
			}
			continue
		}
		list = q.appendItem(list, first, item)
		item.Ignore("id", "status", "phase", "encrypted_content", "namespace", "created_by") // from our responses, or others
	}
	return list
}

// appendItem makes an item part of the messages from first on.
func (q *responseRequest) appendItem(list []chat.Message, first int, v *body.Value) []chat.Message {
	// assistant is the assistant's message being continued.
	assistant := func() *chat.Message {
		if n := len(list); n == first || list[n-1].Role != "assistant" {
			list = append(list, chat.Message{Role: "assistant", Content: chat.Text("")})
		}
		return &list[len(list)-1]
	}
	switch kind := v.Field("type"); kind.Text() {
	case "", "message":
		role := v.Field("role").Required().OneOf("system", "developer", "user", "assistant")
		content := v.Field("content").Required()
		if role != "assistant" {
			return append(list, chat.Message{Role: role, Content: q.shown(content, role)})
		}
		m := assistant()
		before, _ := m.Content.Text()
		m.Content = chat.Text(before + said(content))
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
		call.ID, call.Name = v.Field("call_id").Required().Text(), calledName(v)
		call.Arguments = arguments(v.Field("arguments"))
		m := assistant()
		m.ToolCalls = append(m.ToolCalls, call)
	case "custom_tool_call":
		call := chat.ToolCall{ID: v.Field("call_id").Required().Text(), Name: calledName(v)}
		call.Arguments = chat.TextArgument(generate.InputName, v.Field("input").Required().Text())
		m := assistant()
		m.ToolCalls = append(m.ToolCalls, call)
	case "function_call_output", "custom_tool_call_output":
		v.Ignore("name")
		return append(list, chat.Message{
			Role: "tool", ToolCallID: v.Field("call_id").Required().Text(), Content: q.shown(v.Field("output").Required(), "tool"),
		})
	case "item_reference": // to an item of an answer, which was stored
		id := v.Field("id").Required()
		raw := q.stored.item(q.owner, id.Text())
		if raw == nil {
			id.Fail(notStored(id.Path(), "item", id.Text()))
			return list
		}
		return q.appendItem(list, first, body.Parse(raw))
	case "web_search_call", "file_search_call", "code_interpreter_call", "computer_call", "computer_call_output", "image_generation_call",
		"local_shell_call", "local_shell_call_output", "mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response",
		"tool_search_call", "tool_search_output":
		v.IgnoreRest()
		kind.Drop("items of type %.40q are not supported: their tools are run by the provider", kind.Text())
	default:
		kind.Unsupported("items of type %.40q are not supported: want message, reasoning, function_call or function_call_output", kind.Text())
	}
	return list
}

// calledName is the model's name of the tool of a call.
func calledName(v *body.Value) string {
	return qualified(v.Field("namespace").Text(), v.Field("name").Required().Text())
}

// said is a text, or parts that are all texts.
func said(v *body.Value) string {
	if v.IsList() {
		return parts(v)
	}
	return v.Text()
}

// shown is the content of a message of some role: a text, or parts.
func (q *request) shown(v *body.Value, role string) chat.Content {
	if v.IsList() {
		return q.content(v, role)
	}
	return chat.Text(v.Text())
}

// arguments reads the arguments of a call: an object, or the text of one.
func arguments(v *body.Value) (none chat.Arguments) {
	raw := v.Raw()
	if v.IsText() {
		raw = []byte(v.Text())
	}
	if len(bytes.TrimSpace(raw)) == 0 || !v.Admit(raw) {
		return none
	}
	object, err := chat.ParseArguments(raw)
	if err != nil {
		v.Fault("want a JSON object, or a string with a JSON object")
	}
	return object
}
