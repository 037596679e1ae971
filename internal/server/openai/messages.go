package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// messages reads a conversation as chat completions have it.
func messages(v *body.Value) []chat.Message {
	items := v.Required().List()
	if v.IsList() && len(items) == 0 {
		v.Fault("the list is empty, want at least one message")
	}
	list := make([]chat.Message, len(items))
	for i, item := range items {
		list[i] = message(item)
	}
	return list
}

// message reads one message. Fields that are not the protocol's are kept for the template,
// which some models' read.
func message(v *body.Value) (m chat.Message) {
	if !v.IsObject() {
		v.Fault("want an object with role and content")
		return m
	}
	v.Field("role").Required().OneOf("system", "developer", "user", "assistant", "tool")
	content := v.Field("content")
	reasoning := v.Field("reasoning").Text()
	if f := v.Field("function_call"); !f.Absent() {
		f.Unsupported("function_call has been replaced: use tool_calls, and tools in place of functions")
	}
	if err := json.Unmarshal(customCalls(v), &m); err != nil {
		v.Fault("%v", cause(err))
		return m
	}
	if content.IsList() {
		m.Content = chat.Text(parts(content))
	}
	if m.ReasoningContent == nil && reasoning != "" { // other servers' name for it
		m.ReasoningContent = &reasoning
	}
	v.IgnoreRest()
	return m
}

// customCalls is a message whose calls of tools that take a text are written as those of
// functions, which is what the model made.
func customCalls(v *body.Value) []byte {
	calls := v.Field("tool_calls")
	if !calls.IsList() || !bytes.Contains(calls.Raw(), []byte(`"custom"`)) {
		return v.Raw()
	}
	var message map[string]json.RawMessage
	list := []any{}
	for _, c := range calls.List() {
		if !c.IsObject() || c.Field("type").Text() != "custom" {
			list = append(list, json.RawMessage(c.Raw()))
			c.IgnoreRest()
			continue
		}
		custom := c.Field("custom").Required()
		call := toolCall{ID: c.Field("id").Text(), Type: "function"}
		arguments, _ := json.Marshal(map[string]string{generate.InputName: custom.Field("input").Text()}) // text
		call.Function = &functionCall{Name: custom.Field("name").Required().Text(), Arguments: string(arguments)}
		list = append(list, call)
	}
	raw, err := json.Marshal(list)
	if json.Unmarshal(v.Raw(), &message) != nil || err != nil {
		return v.Raw() // it was read before
	}
	message["tool_calls"] = raw
	if raw, err = json.Marshal(message); err != nil {
		return v.Raw()
	}
	return raw
}

// parts joins the parts of a message, all of which must be texts.
func parts(v *body.Value) string {
	var text strings.Builder
	for _, part := range v.List() {
		if !part.IsObject() {
			part.Fault("want an object with a type")
			return ""
		}
		switch kind := part.Field("type").Required(); kind.Text() {
		case "text", "input_text", "output_text", "reasoning_text", "summary_text":
			text.WriteString(part.Field("text").Required().Text())
		case "refusal":
			text.WriteString(part.Field("refusal").Required().Text())
		case "image_url", "input_image", "image":
			kind.Unsupported("images are not supported: the models' vision towers are not run yet; send text")
		default:
			kind.Unsupported("parts of type %.40q are not supported: send text", kind.Text())
		}
		part.Ignore("annotations", "logprobs", "cache_control", "prompt_cache_breakpoint")
	}
	return text.String()
}

// cause is an error without the name of the package it comes from.
func cause(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
