package openai

import (
	"errors"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/media"
)

// messages reads a conversation as chat completions have it.
func (q *request) conversation(v *body.Value) []chat.Message {
	if v.Required().IsList() && v.Len() == 0 {
		v.Fault("the list is empty, want at least one message")
	}
	v = v.AtMost(generate.MaxMessages)
	list := make([]chat.Message, 0, v.Len())
	for _, item := range v.List() {
		list = append(list, q.message(item))
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
	content, called := v.Field("content"), v.Field("tool_calls")
	reasoning := v.Field("reasoning").Text()
	if f := v.Field("function_call"); !f.Absent() {
		f.Unsupported("function_call is not supported: use tool_calls, and tools instead of functions")
	}
	rest := v.Without("content", "tool_calls")
	if !v.Admit(rest) {
		return m
	}
	if err := m.UnmarshalJSON(rest); err != nil {
		v.Fault("%v", cause(err))
		return m
	}
	switch {
	case content.IsText():
		m.Content = chat.Text(content.Text())
	case content.IsList():
		m.Content = q.content(content, role)
	case !content.Absent():
		content.Fault("want a string, an array of parts or null")
	}
	for _, c := range called.List() {
		m.ToolCalls = append(m.ToolCalls, calledIn(c))
	}
	if m.ReasoningContent == nil && reasoning != "" { // other servers' name for it
		m.ReasoningContent = &reasoning
	}
	v.IgnoreRest()
	return m
}

// calledIn reads a call of a tool. One of a tool whose input is a text becomes one of a function, as
// the model wrote it.
func calledIn(v *body.Value) chat.ToolCall {
	call := chat.ToolCall{ID: v.Field("id").Text()}
	if v.Field("type").Text() == "custom" {
		custom := v.Field("custom").Required()
		call.Name = custom.Field("name").Required().Text()
		call.Arguments = chat.TextArgument(generate.InputName, custom.Field("input").Text())
		return call
	}
	function := v.Field("function")
	if function.Absent() { // some clients leave out this level
		function = v
	}
	name := function.Field("name").Required()
	if call.Name = name.Text(); call.Name == "" {
		name.Fault("the name is empty")
	}
	call.Arguments = arguments(function.Field("arguments"))
	v.IgnoreRest()
	function.IgnoreRest()
	return call
}

// content reads the parts of a message of some role: texts, images and videos. Texts alone are one.
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
			kind.Unsupported("parts of type %.40q are not supported: send text or images", kind.Text())
		} else if list.Media(m); role == "system" || role == "developer" {
			kind.Fault("images and videos are not allowed in %s messages: put them into a user message", role)
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

// seenIn is the image or video of a part, or nil.
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

// picture reads a part with an image: its URL is under image_url, in chat completions within
// an object, or under the names of other programs.
func (q *request) picture(part *body.Value) *chat.Media {
	if f := part.Field("file_id"); !f.Absent() {
		f.Unsupported("stored files are not supported for images: send the image as a data: URL, in image_url")
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
