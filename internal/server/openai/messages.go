package openai

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/media"
)

// messages reads a conversation as chat completions have it.
func (q *request) conversation(v *body.Value) []chat.Message {
	items := v.Required().List()
	if v.IsList() && len(items) == 0 {
		v.Fault("the list is empty, want at least one message")
	}
	list := make([]chat.Message, len(items))
	for i, item := range items {
		list[i] = q.message(item)
	}
	return list
}

// message reads one message. Fields that are not the protocol's are kept for the template,
// which some models' read.
func (q *request) message(v *body.Value) (m chat.Message) {
	if !v.IsObject() {
		v.Fault("want an object with role and content")
		return m
	}
	role := v.Field("role").Required().OneOf("system", "developer", "user", "assistant", "tool")
	content := v.Field("content")
	reasoning := v.Field("reasoning").Text()
	if f := v.Field("function_call"); !f.Absent() {
		f.Unsupported("function_call has been replaced: use tool_calls, and tools in place of functions")
	}
	raw := v.Raw()
	if content.IsList() { // which may hold pictures
		raw = v.Without("content")
	}
	if err := json.Unmarshal(customCalls(v, raw), &m); err != nil {
		v.Fault("%v", cause(err))
		return m
	}
	if content.IsList() {
		m.Content = q.content(content, role)
	}
	if m.ReasoningContent == nil && reasoning != "" { // other servers' name for it
		m.ReasoningContent = &reasoning
	}
	v.IgnoreRest()
	return m
}

// customCalls is a message, with some of its fields in raw, whose calls of tools that take a text are written as those of
// functions, which is what the model made.
func customCalls(v *body.Value, raw []byte) []byte {
	calls := v.Field("tool_calls")
	if !calls.IsList() || !bytes.Contains(calls.Raw(), []byte(`"custom"`)) {
		return raw
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
	called, err := json.Marshal(list)
	if json.Unmarshal(raw, &message) != nil || err != nil {
		return raw // it was read before
	}
	message["tool_calls"] = called
	if called, err = json.Marshal(message); err != nil {
		return raw
	}
	return called
}

// content reads the parts of a message of some role: texts, pictures and videos. Texts alone are one.
func (q *request) content(v *body.Value, role string) chat.Content {
	var list media.Parts
	for _, part := range v.List() {
		if !part.IsObject() {
			part.Fault("want an object with a type")
			break
		}
		kind := part.Field("type").Required()
		if text, ok := saidIn(kind, part); ok {
			list.Text(text)
		} else if m := q.seenIn(kind, part); m == nil {
			kind.Unsupported("parts of type %.40q are not supported: send text or pictures", kind.Text())
		} else if list.Media(m); role == "system" || role == "developer" {
			kind.Fault("pictures and videos are not for messages of the %s: put them into one of the user", role)
		}
		part.Ignore("annotations", "logprobs", "cache_control", "prompt_cache_breakpoint")
	}
	return list.Content()
}

// saidIn is the text of a part, if it is one of text.
func saidIn(kind, part *body.Value) (string, bool) {
	switch kind.Text() {
	case "text", "input_text", "output_text", "reasoning_text", "summary_text":
		return part.Field("text").Required().Text(), true
	case "refusal":
		return part.Field("refusal").Required().Text(), true
	}
	return "", kind.Absent()
}

// seenIn is the picture or video of a part, nil if it is none.
func (q *request) seenIn(kind, part *body.Value) *chat.Media {
	switch name := kind.Text(); name {
	case "image_url", "input_image", "image":
		return q.picture(part)
	case "video", "video_url":
		at := part.Field(name)
		if at.IsObject() {
			at = at.Field("url")
		}
		m := media.Video(&q.Request, at.Required())
		if rate := part.Field("fps").Number(); rate != nil {
			if m.Rate = *rate; !(m.Rate > 0 && m.Rate <= maxRate) {
				part.Field("fps").Fault("%v frames per second, want more than 0 and at most %d", m.Rate, maxRate)
			}
		}
		return m
	}
	return nil
}

// maxRate is the highest rate of a video's frames per second.
const maxRate = 1000

// picture reads a part with a picture: its URL stands under image_url, in chat completions within
// an object, or under the names that other programs have for it.
func (q *request) picture(part *body.Value) *chat.Media {
	if f := part.Field("file_id"); !f.Absent() {
		f.Unsupported("files are not stored here: send the picture as a data: URL, in image_url")
	}
	at, detail := part.Field("image_url"), part.Field("detail")
	for _, name := range []string{"image", "url"} {
		if f := part.Field(name); at.Absent() && !f.Absent() {
			at = f
		}
	}
	if at.IsObject() {
		if d := at.Field("detail"); !d.Absent() {
			detail = d
		}
		at = at.Field("url")
	}
	m := media.Picture(&q.Request, at.Required())
	if detail.OneOf("auto", "low", "high", "original") == "low" {
		m.MaxPixels = media.LowDetail
	}
	return m
}

// parts joins parts, all of which must be texts.
func parts(v *body.Value) string {
	var list media.Parts
	for _, part := range v.List() {
		if !part.IsObject() {
			part.Fault("want an object with a type")
			break
		}
		kind := part.Field("type").Required()
		text, ok := saidIn(kind, part)
		if list.Text(text); !ok {
			kind.Unsupported("parts of type %.40q are not supported here: send text", kind.Text())
		}
		part.Ignore("annotations", "logprobs", "cache_control", "prompt_cache_breakpoint")
	}
	text, _ := list.Content().Text() // there is nothing else
	return text
}

// cause is an error without the name of the package it comes from.
func cause(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
