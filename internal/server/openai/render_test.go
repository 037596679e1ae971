package openai

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
)

const renderedPath = "/render"

// words are the parts of random conversations, among them texts like control tokens.
var words = []string{"Tell", " me", " a story", "<|im_end|>", "<think>", "\n", "über", "日本", "🙂", " 42", "{\"a\": 1}", "  ", "<tool_call>"}

// randomText is some of the words.
func randomText(rng *rand.Rand, most int) string {
	var b strings.Builder
	for range 1 + rng.IntN(most) {
		b.WriteString(words[rng.IntN(len(words))])
	}
	return b.String()
}

// quoted is a text as JSON has it.
func quoted(s string) string {
	b, _ := json.Marshal(s) // a text always can be
	return string(b)
}

// randomChat is the body of a conversation, without its end.
func randomChat(rng *rand.Rand) string {
	var messages []string
	if rng.IntN(2) == 0 {
		messages = append(messages, `{"role": "system", "content": `+quoted(randomText(rng, 40))+`}`)
	}
	for i := range 1 + 2*rng.IntN(2) {
		messages = append(messages, fmt.Sprintf(`{"role": %q, "content": %s}`, []string{"user", "assistant"}[i%2], quoted(randomText(rng, 60))))
	}
	q := fmt.Sprintf(`{"model": %q, "messages": [%s], "max_tokens": 3, "temperature": 0`,
		[]string{generatetest.Tiny, generatetest.Thinker}[rng.IntN(2)], strings.Join(messages, ", "))
	if rng.IntN(3) == 0 {
		q += `, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]`
	}
	if rng.IntN(3) == 0 {
		q += fmt.Sprintf(`, "chat_template_kwargs": {"enable_thinking": %t}`, rng.IntN(2) == 0)
	}
	return q
}

// TestRenderedChatIsWhatIsGenerated renders conversations and answers them: the number of ids
// equals that of the answer, a completion of them hits the cache of the conversation, and it
// draws the same tokens.
func TestRenderedChatIsWhatIsGenerated(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	found := 0
	for range 12 {
		q := randomChat(rng)
		r := ask[rendered](t, chatPath+renderedPath, q+"}")
		if len(r.IDs) == 0 || r.Features != nil {
			t.Fatalf("%s}: %+v", q, r)
		}
		traced := `, "foretoken": {"trace": true}}`
		whole := ask[completion](t, chatPath, q+traced)
		if whole.Usage.Prompt != len(r.IDs) {
			t.Errorf("%s: %d ids, and a prompt of %d tokens", q, len(r.IDs), whole.Usage.Prompt)
		}
		ids := filetest.Encode(t, r.IDs)
		again := ask[completion](t, textPath, fmt.Sprintf(`{"model": %q, "prompt": %s, "max_tokens": 3, "temperature": 0`, r.Model, ids)+traced)
		if want := (len(r.IDs) - 1) / 64 * 64; *again.Usage.PromptDetails.Cached < want {
			t.Errorf("%s: %d tokens of the ids were cached, want %d", q, *again.Usage.PromptDetails.Cached, want)
		} else if want > 0 {
			found++
		}
		if a, b := whole.Foretoken.Tokens, again.Foretoken.Tokens; len(a) == 0 || fmt.Sprint(tokenIDs(a)) != fmt.Sprint(tokenIDs(b)) {
			t.Errorf("%s: the conversation goes on with %v, its ids with %v", q, tokenIDs(a), tokenIDs(b))
		}
	}
	if found < 4 {
		t.Errorf("%d conversations had a page in the cache: nothing was tried", found)
	}
}

// TestRenderedTextsAreWhatIsGenerated renders prompts of completions, of all kinds.
func TestRenderedTextsAreWhatIsGenerated(t *testing.T) {
	for prompt, want := range map[string]int{
		`"Once upon a time <|im_end|>"`:           1,
		`["Once upon", "a time", "  \u65e5\n"]`:   3,
		`[300, 301, 302]`:                         1,
		`[[300, 301], [302], [1, 2, 3, 4, 5, 6]]`: 3,
	} {
		list := *ask[[]rendered](t, textPath+renderedPath, `{"prompt": `+prompt+`}`)
		if len(list) != want {
			t.Fatalf("%s: %d prompts, want %d", prompt, len(list), want)
		}
		ids := 0
		for _, r := range list {
			ids += len(r.IDs)
		}
		if whole := ask[completion](t, textPath, `{"max_tokens": 1, "prompt": `+prompt+`}`); whole.Usage.Prompt != ids {
			t.Errorf("%s: %d ids, and %d tokens", prompt, ids, whole.Usage.Prompt)
		}
		if strings.HasPrefix(prompt, "[300") && !slices.Equal(list[0].IDs, []int32{300, 301, 302}) {
			t.Errorf("%s: %v", prompt, list[0].IDs)
		}
	}
}

// TestRenderRefusesWhatGenerationRefuses sends bad requests to both.
func TestRenderRefusesWhatGenerationRefuses(t *testing.T) {
	for path, list := range map[string][]string{
		chatPath: {
			`{}`, `{"messages": []}`, `{"messages": 1}`, `{"messages": [{"role": "user", "content": "Hi"}], "model": "absent"}`, `nonsense`,
			`{"messages": [{"role": "user", "content": ` + quoted(strings.Repeat("word ", 3000)) + `}]}`,
			`{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]}]}`,
		},
		textPath: {`{}`, `{"prompt": ""}`, `{"prompt": [99999999]}`, `{"prompt": "Hi", "suffix": "x"}`, `{"prompt": ` + quoted(strings.Repeat("word ", 3000)) + `}`},
	} {
		for _, q := range list {
			status, text := send(t, http.MethodPost, path, q)
			again, other := send(t, http.MethodPost, path+renderedPath, q)
			if status < 400 || again != status || other != text {
				t.Errorf("%s %.80s: generation %d %s, render %d %s", path, q, status, text, again, other)
			}
		}
	}
}

// tokenIDs are the ids of tokens.
func tokenIDs(list []generate.Traced) (ids []int32) {
	for _, x := range list {
		ids = append(ids, x.ID)
	}
	return ids
}
