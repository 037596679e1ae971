package anthropic

import (
	"net/http"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
)

func TestPicturesAreParts(t *testing.T) {
	const (
		cat = `{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Y2F0"}}`
		dog = `{"type": "image", "source": {"type": "url", "url": "data:,dog"}, "cache_control": {"type": "ephemeral"}}`
	)
	q, err := decode(body.Parse([]byte(`{"max_tokens": 9, "messages": [
		{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, `+cat+`, {"type": "text", "text": "c"}]},
		{"role": "user", "content": "d"},
		{"role": "assistant", "content": [{"type": "text", "text": "e"}, {"type": "tool_use", "id": "1", "name": "look", "input": {}}]},
		{"role": "user", "content": [
			{"type": "tool_result", "tool_use_id": "1", "content": [`+dog+`, {"type": "text", "text": "f"}, {"type": "text", "text": "g"}]},
			{"type": "tool_result", "tool_use_id": "1", "is_error": true, "content": [`+cat+`, {"type": "text", "text": "h"}, {"type": "text", "text": "i"}]},
			{"type": "tool_result", "tool_use_id": "1", "is_error": true, "content": [`+dog+`]},
			{"type": "tool_result", "tool_use_id": "1", "content": "j"},
			`+dog+`]}
	]}`)), false)
	want := []string{
		"user: a\n\nb<image>c\n\nd [cat]", "assistant: e", "tool: <image>f\n\ng [dog]", "tool: <image>Error: h\n\ni [cat]",
		"tool: <image>Error:  [dog]", "tool: j", "user: <image> [dog]",
	}
	if got := generatetest.Shown(t, q.Messages); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v:\n got %q\nwant %q", err, got, want)
	}
	if want := []string{
		"messages[0].content[2].source.data", "messages[3].content[0].content[0].source.url", "messages[3].content[1].content[0].source.data",
		"messages[3].content[2].content[0].source.url", "messages[3].content[4].source.url",
	}; !slices.Equal(q.Media, want) {
		t.Errorf("in %q, want %q", q.Media, want)
	}
}

func TestBodiesAreReleased(t *testing.T) {
	generatetest.Released(t, `{"max_tokens": 9, "system": "s", "stop_sequences": ["x"], "chat_template_kwargs": {"a": "b"}, "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
		"tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}], "messages": [
		{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Y2F0"}}, {"type": "text", "text": "a"}]},
		{"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "tool_use", "id": "1", "name": "f", "input": {"a": "b"}}]},
		{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "image", "source": {"type": "url", "url": "data:,dog"}}]}]}]}`,
		func(w http.ResponseWriter, r *http.Request) any {
			q, err := decode(body.Read(w, r), false)
			if err != nil {
				t.Error(err)
			}
			return q
		})
}
