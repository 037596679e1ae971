package openai

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
)

// cat is the URL of "cat", dog of "dog".
const (
	cat = `"data:image/png;base64,Y2F0"`
	dog = `"data:,dog"`
)

// TestPicturesOfChats reads the forms in which clients of chat completions send images.
func TestPicturesOfChats(t *testing.T) {
	for content, want := range map[string]string{
		`[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]`:                                                          "user: ab",
		`[{"type": "image_url", "image_url": {"url": ` + cat + `}}, {"type": "text", "text": "a"}]`:                               "user: <image>a [cat]",
		`[{"type": "image_url", "image_url": {"url": ` + cat + `, "detail": "low"}}]`:                                             "user: <image> [cat] at most 262144",
		`[{"type": "image_url", "image_url": {"url": ` + cat + `, "detail": "high"}}]`:                                            "user: <image> [cat]",
		`[{"type": "text", "text": "a"}, {"type": "image_url", "image_url": ` + dog + `}, {"type": "text", "text": "b"}]`:         "user: a<image>b [dog]",
		`[{"type": "input_image", "image_url": ` + cat + `, "detail": "low"}, {"type": "input_image", "image_url": ` + dog + `}]`: "user: <image><image> [cat] at most 262144 [dog]",
		`[{"type": "image", "image": ` + cat + `}, {"type": "image", "url": ` + dog + `}]`:                                        "user: <image><image> [cat] [dog]",
		`[{"type": "video", "video": [` + cat + `, ` + dog + `], "fps": 2}, {"type": "text", "text": "a"}]`:                       "user: <video>a [cat dog] at 2",
		`[{"type": "video_url", "video_url": {"url": ` + cat + `}}]`:                                                              "user: <video> [cat]",
	} {
		for role, kept := range map[string]bool{"user": true, "assistant": true, "tool": true, "system": false, "developer": false} {
			q, err := readChat(generate.Caller{}, body.Parse([]byte(`{"messages": [{"role": "`+role+`", "content": `+content+`}]}`)))
			if text := !strings.Contains(want, "<"); !kept && !text {
				if err == nil || !strings.HasPrefix(err.Error(), "messages[0].content[") || !strings.Contains(err.Error(), "type: images and videos are not allowed in "+role) {
					t.Errorf("%s in a message of the %s: %v", content, role, err)
				}
				continue
			}
			want := strings.Replace(want, "user", role, 1)
			if got := generatetest.Shown(t, q.Messages); err != nil || !slices.Equal(got, []string{want}) {
				t.Errorf("%s in a message of the %s: %q, %v, want %q", content, role, got, err, want)
			}
		}
	}
}

func TestPicturesOfResponses(t *testing.T) {
	h := &API{stored: newStore()}
	read := func(input string) (*responseRequest, error) {
		return h.readResponse(generate.Caller{}, body.Parse([]byte(input)))
	}
	q, err := read(`{"input": [
		{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": ` + cat + `, "detail": "low"}]},
		{"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
		{"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "b"}, {"type": "input_image", "image_url": ` + dog + `}]}
	]}`)
	want := []string{"user: a<image> [cat] at most 262144", "assistant: ", "tool: b<image> [dog]"}
	if got := generatetest.Shown(t, q.Messages); err != nil || !slices.Equal(got, want) || !slices.Equal(q.Media, []string{"input[0].content[1].image_url", "input[2].output[1].image_url"}) {
		t.Errorf("%q of %q, %v, want %q", got, q.Media, err, want)
	}

	// A continued response has the images of the earlier ones.
	h.stored.put("", &stored{id: "before", messages: q.talk})
	q, err = read(`{"previous_response_id": "before", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": ` + cat + `}]}]}`)
	if got := generatetest.Shown(t, q.Messages); err != nil || !slices.Equal(got, append(want, "user: <image> [cat]")) ||
		!slices.Equal(q.Media, []string{"previous_response_id", "previous_response_id", "input[0].content[0].image_url"}) {
		t.Errorf("%q of %q, %v", got, q.Media, err)
	}
}

// TestStoredPicturesCountOnce stores a conversation after each of its turns.
func TestStoredPicturesCountOnce(t *testing.T) {
	s := newStore()
	m := chat.Message{Content: chat.Parts(chat.Part{Media: &chat.Media{Files: [][]byte{make([]byte, 1000), make([]byte, 500)}}})}
	turn := sizeOf(m)
	for i, messages := range [][]chat.Message{{m}, {m, m}, {m, m, m}} {
		s.put("", &stored{id: string(rune('a' + i)), messages: messages})
	}
	if _, _, size := s.Len(); size != 6*turn+1500 || len(s.media) != 1 {
		t.Errorf("%d bytes, want %d", size, 6*turn+1500)
	}
	s.remove("", "b")
	s.remove("", "a")
	if _, _, size := s.Len(); size != 3*turn+1500 {
		t.Errorf("%d bytes of the last, want %d", size, 3*turn+1500)
	}
	s.remove("", "c")
	if _, _, size := s.Len(); size != 0 || len(s.media) != 0 {
		t.Errorf("%d bytes, %d images of none", size, len(s.media))
	}
}

// everything is a request with much that is kept.
const everything = `"temperature": 0.5, "stop": ["x"], "user": "me", "metadata": {"a": "b"}, "seed": 5,
	"chat_template_kwargs": {"a": "b"}, "tools": [{"type": "function", "name": "f", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}]`

func TestBodiesAreReleased(t *testing.T) {
	generatetest.Released(t, `{"messages": [
			{"role": "user", "name": "me", "mood": "good", "content": [{"type": "image_url", "image_url": {"url": `+cat+`}}, {"type": "image", "image": `+dog+`}, {"type": "text", "text": "a"}]},
			{"role": "assistant", "reasoning": "r", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": \"b\"}"}}]},
			{"role": "tool", "tool_call_id": "1", "content": [{"type": "image_url", "image_url": "https://example.org/a.png"}]}],
		"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}, `+everything+`}`,
		func(w http.ResponseWriter, r *http.Request) any {
			q, err := readChat(generate.Caller{}, body.Read(w, r))
			if err != nil {
				t.Error(err)
			}
			return q
		})
	h := &API{stored: newStore()}
	generatetest.Released(t, `{"input": [{"role": "user", "content": [{"type": "input_image", "image_url": `+cat+`}, {"type": "input_text", "text": "a"}]}],
		"instructions": "i", "reasoning": {"effort": "low"}, "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}, `+everything+`}`,
		func(w http.ResponseWriter, r *http.Request) any {
			q, err := h.readResponse(generate.Caller{}, body.Read(w, r))
			if err != nil {
				t.Error(err)
			}
			return q
		})
}
