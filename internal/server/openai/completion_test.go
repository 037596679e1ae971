package openai

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/server/generate"
)

const textPath = "/v1/completions"

// textObject is a response of completions as a client reads it.
type textObject struct {
	completion
	Choices []struct {
		Index    int               `json:"index"`
		Text     string            `json:"text"`
		LogProbs *textLogProbs     `json:"logprobs"`
		Finish   *foretoken.Finish `json:"finish_reason"`
	} `json:"choices"`
}

// assembleText puts a stream together as clients do.
func assembleText(t *testing.T, events []sent) *textObject {
	t.Helper()
	whole := &textObject{}
	var tokens []generate.Traced
	for n, e := range events {
		if e.data == "[DONE]" && n == len(events)-1 {
			break
		}
		var c textObject
		if err := json.Unmarshal([]byte(e.data), &c); err != nil || c.Object != "text_completion" {
			t.Fatalf("%v: %s", err, e.data)
		}
		if n == 0 {
			whole.completion = c.completion
		}
		if c.Usage != nil {
			whole.Usage = c.Usage
		}
		if c.Foretoken != nil {
			if len(c.Choices) > 0 && c.Choices[0].Index == 0 {
				tokens = append(tokens, c.Foretoken.Tokens...)
			}
			whole.Foretoken = c.Foretoken
		}
		for _, one := range c.Choices {
			for len(whole.Choices) <= one.Index {
				next := one
				next.Index, next.Text, next.LogProbs = len(whole.Choices), "", nil
				whole.Choices = append(whole.Choices, next)
			}
			to := &whole.Choices[one.Index]
			to.Text += one.Text
			to.Finish = one.Finish
			if l := one.LogProbs; l != nil {
				if to.LogProbs == nil {
					to.LogProbs = &textLogProbs{}
				}
				to.LogProbs.Tokens = append(to.LogProbs.Tokens, l.Tokens...)
				to.LogProbs.LogProbs = append(to.LogProbs.LogProbs, l.LogProbs...)
				to.LogProbs.Top = append(to.LogProbs.Top, l.Top...)
				to.LogProbs.Offsets = append(to.LogProbs.Offsets, l.Offsets...)
			}
		}
	}
	whole.Foretoken.Tokens = tokens
	return whole
}

func TestTextStreamEqualsWhole(t *testing.T) {
	for name, request := range map[string]string{
		"plain":    `"prompt": "Once upon a time", "max_tokens": 40`,
		"list":     `"prompt": ["Once upon a time", "The dog", "func main() {"], "n": 2, "max_tokens": 12`,
		"ids":      `"prompt": [300, 301, 302], "max_tokens": 12`,
		"lists":    `"prompt": [[300, 301], [302]], "max_tokens": 12, "echo": true`,
		"echo":     `"prompt": "Once upon a time", "echo": true, "foretoken": {"trace": true}`,
		"logprobs": `"prompt": "Once upon a time", "logprobs": 2, "max_tokens": 10`,
		"stop":     `"prompt": "Once upon a time", "stop": ".", "max_tokens": 100, "best_of": 1, "suffix": ""`,
		"regex":    `"prompt": "Once upon a time", "guided_regex": " (was|were) [a-z]{2}"`,
	} {
		t.Run("case="+name, func(t *testing.T) {
			request = `{"seed": 3, "mtp_depth": 2, ` + request + `}`
			whole := ask[textObject](t, textPath, request)
			stream := assembleText(t, listen(t, textPath, strings.Replace(request, "{", `{"stream_options": {"include_usage": true}, `, 1)))
			whole.Usage.PromptDetails, stream.Usage.PromptDetails = promptDetails{}, promptDetails{}
			// The engine may have generated more before it was stopped at a stop text.
			whole.Usage.CompletionDetails, stream.Usage.CompletionDetails = completionDetails{}, completionDetails{}
			if a, b := stable(t, whole), stable(t, stream); a != b {
				t.Errorf("whole and stream differ:\n%s\n%s", a, b)
			}
		})
	}
}

func TestTextPromptsAreTheirOwn(t *testing.T) {
	prompts := []string{"Once upon a time", "The dog", "A boy named"}
	list := filetest.Encode(t, prompts)
	together := ask[textObject](t, textPath, `{"seed": 3, "prompt": `+string(list)+`}`)
	if len(together.Choices) != 3 {
		t.Fatalf("%d choices", len(together.Choices))
	}
	tokens := 0
	for i, p := range prompts {
		alone := ask[textObject](t, textPath, fmt.Sprintf(`{"seed": 3, "prompt": %q}`, p))
		if one := together.Choices[i]; one.Text != alone.Choices[0].Text || one.Index != i || *one.Finish != foretoken.FinishLength {
			t.Errorf("prompt %d: %+v, alone %+v", i, one, alone.Choices[0])
		}
		if alone.Usage.Completion != defaultMaxTokens {
			t.Errorf("%d tokens where nothing is said", alone.Usage.Completion)
		}
		tokens += alone.Usage.Total
	}
	if together.Usage.Total != tokens {
		t.Errorf("%d tokens, one by one %d", together.Usage.Total, tokens)
	}
}

func TestTextEcho(t *testing.T) {
	plain := ask[textObject](t, textPath, `{"seed": 3, "prompt": "The dog"}`)
	echo := ask[textObject](t, textPath, `{"seed": 3, "prompt": "The dog", "echo": true}`)
	if echo.Choices[0].Text != "The dog"+plain.Choices[0].Text {
		t.Errorf("%q after %q", echo.Choices[0].Text, plain.Choices[0].Text)
	}
}

func TestTextLogProbsPointIntoTheText(t *testing.T) {
	c := ask[textObject](t, textPath, `{"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "logprobs": 2}`)
	l, text := c.Choices[0].LogProbs, []rune(c.Choices[0].Text)
	if len(l.Tokens) != 12 || len(l.LogProbs) != 12 || len(l.Top) != 12 || len(l.Offsets) != 12 {
		t.Fatalf("got %+v", l)
	}
	for i, token := range l.Tokens {
		if at := l.Offsets[i]; string(text[at:at+len([]rune(token))]) != token {
			t.Errorf("token %q is not at %d of %q", token, at, string(text))
		}
		if len(l.Top[i]) != 2 || l.Top[i][token] != l.LogProbs[i] {
			t.Errorf("token %q: %v beside %v", token, l.LogProbs[i], l.Top[i])
		}
	}
}
