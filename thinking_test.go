package foretoken

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/sample"
)

// The ends of prompts, and answers with thoughts, as other families have them.
const (
	openedByModel = `{%- for m in messages %}{{- '<|im_start|>' + m.role + ('\n<think>' + (m.reasoning_content or '') + '</think>' if m.role == 'assistant' else '') + '\n' + m.content }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant' + ('\n<think></think>' if enable_thinking is false else '') }}{%- endif %}`
	openedByPrompt = `{%- for m in messages %}{{- '<|im_start|>' + m.role + (('<think>' + m.reasoning_content if m.reasoning_content else '') + '</think>' if m.role == 'assistant' else '') + m.content }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant' + ('</think>' if enable_thinking is false else '<think>') }}{%- endif %}`
	openedOnRequest = `{%- for m in messages %}{{- '<|im_start|>' + m.role + m.content }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant' + ('<think>' if thinking else '</think>') }}{%- endif %}`
)

// TestThinkingOfOtherFamilies has a budget of thinking, and a schema of what follows it, where the
// model opens its think blocks itself and where the prompt opens them: the block is opened and
// closed as the template writes it, with drafts and without, and only then comes the answer.
func TestThinkingOfOtherFamilies(t *testing.T) {
	schema := grammar.Schema([]byte(`{"type": "object", "properties": {"legs": {"enum": [2, 4]}}, "required": ["legs"], "additionalProperties": false}`))
	for name, c := range map[string]struct {
		template   string
		open, shut string // before the thoughts and behind them
	}{
		"by the model":  {openedByModel, "\n<think>", "</think>\n"},
		"by the prompt": {openedByPrompt, "", "</think>"},
		"on request":    {openedOnRequest, "", "</think>"},
	} {
		t.Run(name, func(t *testing.T) {
			m := openTemplate(t, c.template, Options{})
			for seed := range uint64(2) {
				for _, g := range []grammar.Source{{}, schema} {
					want := regexp.MustCompile("(?s)^" + c.open + ".+" + c.shut)
					if !g.IsZero() {
						want = regexp.MustCompile("(?s)^" + c.open + ".+" + strings.TrimRight(c.shut, "\n") + "{")
					}
					var texts []string
					for _, depth := range []Depth{DepthOff, DepthAuto} {
						a := collect(t, m, Request{Prompt: ask(t, m, say("A cat.", true)), MaxTokens: 60, MaxThinking: 6, Grammar: g, Depth: depth, Sampling: &sample.Options{Seed: seed, Temperature: 1}})
						texts = append(texts, a.Text())
						early := g.IsZero() && !strings.Contains(a.Text(), "</think>") // nothing keeps it from ending
						if !strings.HasPrefix(a.Text(), c.open) || !early && !want.MatchString(a.Text()) {
							t.Errorf("seed %d: %q is not as %q", seed, a.Text(), want)
						}
						if !g.IsZero() && (!json.Valid([]byte(a.Content())) || a.Reasoning() == "" || a.Finish != FinishStop) {
							t.Errorf("seed %d: %q is the answer %q", seed, a.Text(), a.Content())
						}
					}
					if texts[0] != texts[1] {
						t.Errorf("seed %d: %q without drafts, %q with", seed, texts[0], texts[1])
					}
				}
			}
			a := collect(t, m, Request{Prompt: ask(t, m, say("A cat.", false)), MaxTokens: 60, MaxThinking: 6, Grammar: schema, Sampling: &sample.Options{Seed: 1}})
			if !json.Valid([]byte(a.Text())) || a.Reasoning() != "" {
				t.Errorf("without thinking: %q", a.Text())
			}
		})
	}
}

// TestPromptsEndInThinking has where in thinking answers begin.
func TestPromptsEndInThinking(t *testing.T) {
	for name, c := range map[string]struct {
		template string
		think    bool
		thinking bool
		opens    string
		apart    string // of two line breaks
		thought  bool   // newlines that the answer begins with are dropped
	}{
		"by the model":           {openedByModel, true, false, "\n<think>", "\n\n", false},
		"by the model, without":  {openedByModel, false, false, "", "\n\n", true},
		"by the prompt":          {openedByPrompt, true, true, "", "\n\n", false},
		"by the prompt, without": {openedByPrompt, false, false, "", "\n\n", false},
		"on request":             {openedOnRequest, true, true, "", "\n\n", false},
		"on request, without":    {openedOnRequest, false, false, "", "\n\n", false},
		"Qwen":                   {thinkingTemplate, true, true, "", "\n\n", false},
		"Qwen, without":          {thinkingTemplate, false, false, "", "", false},
	} {
		m := openTemplate(t, c.template, Options{Threads: 1})
		p := ask(t, m, say("Hi", c.think))
		if thought := p.inner().Thought(); p.Thinking != c.thinking || p.inner().Opens != c.opens || p.inner().Apart("\n\n") != c.apart || thought != c.thought {
			t.Errorf("%s: thinking %v, opens %q, apart %q, thought %v", name, p.Thinking, p.inner().Opens, p.inner().Apart("\n\n"), thought)
		}
		talk := say("Hi", c.think)
		talk.Prefill = "So"
		if p := ask(t, m, talk); p.Thinking || p.inner().Opens != "" || p.inner().Apart("\n\n") != "" {
			t.Errorf("%s with a prefill: thinking %v, opens %q", name, p.Thinking, p.inner().Opens)
		}
	}
}

// TestTextsBeginAsTheTokenizerSays has a tokenizer that puts tokens before every text. A raw text gets them
// once, and a conversation does not, because its template writes them.
func TestTextsBeginAsTheTokenizerSays(t *testing.T) {
	var file map[string]json.RawMessage
	filetest.Decode(t, filetest.Read(t, "internal/models/tiny/tokenizer.json"), &file)
	plain := openTiny(t, Options{Threads: 1})
	first, _ := plain.tok.ID("<|endoftext|>")
	second, _ := plain.tok.ID("<|im_start|>")
	file["post_processor"], _ = json.Marshal(map[string]any{
		"type":   "TemplateProcessing",
		"single": []any{map[string]any{"SpecialToken": map[string]any{"id": "[gMASK]"}}, map[string]any{"SpecialToken": map[string]any{"id": "<sop>"}}, map[string]any{"Sequence": map[string]any{"id": "A"}}},
		"special_tokens": map[string]any{
			"[gMASK]": map[string]any{"ids": []int32{first}}, "<sop>": map[string]any{"ids": []int32{second}},
		},
	})
	changed := filetest.Encode(t, file)
	for name, c := range map[string]struct {
		files map[string]string
		want  []int32
	}{
		"post-processor": {map[string]string{"tokenizer.json": string(changed)}, []int32{first, second}},
		"add_bos_token":  {map[string]string{"tokenizer_config.json": `{"bos_token": "<|endoftext|>", "add_bos_token": true}`}, []int32{first}},
		"no bos_token":   {map[string]string{"tokenizer_config.json": `{"add_bos_token": true}`}, nil},
	} {
		c.files["chat_template.jinja"] = "<|im_start|>{{ messages[0].content }}"
		m := openWith(t, Options{Threads: 1}, c.files)
		hello := plain.tok.Encode("Hello")
		spelled := plain.tok.Decode(c.want, false)
		for _, text := range []string{"Hello", spelled + "Hello"} {
			if got, want := m.TextPrompt(text).IDs, slices.Concat(c.want, hello); !slices.Equal(got, want) {
				t.Errorf("%s: %q is %v, want %v", name, text, got, want)
			}
		}
		if got := m.TextPrompt("").IDs; len(got) != 0 {
			t.Errorf("%s: nothing is %v", name, got)
		}
		p := ask(t, m, Conversation{Messages: []chat.Message{{Role: "user", Content: chat.Text("Hello")}}})
		if want := slices.Concat([]int32{second}, hello); !slices.Equal(p.IDs, want) {
			t.Errorf("%s: the conversation is %v, want %v", name, p.IDs, want)
		}
	}
}
