package foretoken

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/models"
	"github.com/foretoken/foretoken/internal/models/tiny"
	"github.com/foretoken/foretoken/internal/prompt"
	"github.com/foretoken/foretoken/sample"
)

var silent = slog.New(slog.DiscardHandler)

// openTiny opens the model inside the program until the end of the test.
func openTiny(t testing.TB, o Options) *Model {
	t.Helper()
	o.Log = silent
	m, err := Open(t.Context(), Tiny, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// thinkingTemplate opens a think block if requested, and leaves think blocks out of the history, like the
// templates of the family.
const thinkingTemplate = `{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- if enable_thinking %}{{- '<think>\n' }}{%- endif %}{%- endif %}`

// openThinking opens the model inside the program with that template.
func openThinking(t testing.TB, o Options) *Model {
	t.Helper()
	return openTemplate(t, thinkingTemplate, o)
}

// openTemplate opens the model inside the program with a chat template.
func openTemplate(t testing.TB, template string, o Options) *Model {
	t.Helper()
	return openWith(t, o, map[string]string{"chat_template.jinja": template})
}

// openWith opens the model inside the program with some of its files replaced, or left out where
// the text is empty.
func openWith(t testing.TB, o Options, replaced map[string]string) *Model {
	t.Helper()
	dir := t.TempDir()
	for name := range tiny.Files() {
		file, err := filepath.Abs(filepath.Join("internal/models/tiny", name))
		if text, ok := replaced[name]; err == nil && !ok {
			err = os.Symlink(file, filepath.Join(dir, name))
		} else if err == nil && text != "" {
			err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	o.Log, o.Speculation.NoSelfTest = silent, true
	m, err := Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// say is a conversation of a user's message.
func say(text string, think bool) Conversation {
	return Conversation{Messages: []chat.Message{{Role: "user", Content: chat.Text(text)}}, Variables: map[string]any{"enable_thinking": think}}
}

// collect reads an answer to its end.
func collect(t testing.TB, m *Model, r Request) *Answer {
	t.Helper()
	a, err := m.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range a.Pieces() {
		if err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func ask(t testing.TB, m *Model, c Conversation) *Prompt {
	t.Helper()
	p, err := m.ChatPrompt(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAnswerIsWhatItsPiecesSay(t *testing.T) {
	m := openTiny(t, Options{})
	p := ask(t, m, say("Tell me a story about a cat.", false))
	a, err := m.Generate(t.Context(), Request{Prompt: p, MaxTokens: 40, Sampling: &sample.Options{Seed: 3, Temperature: 0.8}})
	if err != nil {
		t.Fatal(err)
	}
	text, content := "", ""
	for piece, err := range a.Pieces() {
		if err != nil {
			t.Fatal(err)
		}
		text += piece.Text
		for _, e := range piece.Events {
			content += e.Text
		}
	}
	if text == "" || text != a.Text() || content != a.Content()+a.Reasoning() || a.Finish != FinishLength && a.Finish != FinishStop {
		t.Errorf("pieces %q, text %q, content %q, finish %q", text, a.Text(), a.Content(), a.Finish)
	}
	if a.Result.Tokens != len(a.Tokens) || a.Seed != 3 {
		t.Errorf("%d tokens of %d, seed %d", len(a.Tokens), a.Result.Tokens, a.Seed)
	}
	// A stop text ends it earlier, and is no part of it.
	word := strings.Fields(text)[3]
	b := collect(t, m, Request{Prompt: p, MaxTokens: 40, Stop: []string{word}, Sampling: &sample.Options{Seed: 3, Temperature: 0.8}})
	if want, _, _ := strings.Cut(text, word); b.Text() != want || b.Finish != FinishStop {
		t.Errorf("stopped at %q: %q, want %q; %s", word, b.Text(), want, b.Finish)
	}
}

func TestAnswerCanBeCanceled(t *testing.T) {
	m := openTiny(t, Options{ISA: "generic"}) // which takes minutes to fill the context
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a, err := m.Generate(ctx, Request{Prompt: m.TextPrompt("Once upon"), IgnoreEnd: true, Sampling: &sample.Options{}})
	if err != nil {
		t.Fatal(err)
	}
	var last error
	for _, err := range a.Pieces() {
		cancel()
		last = err
	}
	if !errors.Is(last, context.Canceled) || a.Finish != "" {
		t.Errorf("error %v, finish %q", last, a.Finish)
	}
	if s := m.engine.Stats(); s.Memory.Used != 0 {
		t.Errorf("%d bytes in use after it", s.Memory.Used)
	}
}

// TestThinkingIsClosed limits thinking to a budget, with drafts and without: the block is
// closed as the model's makers close it, and the text is the same.
func TestThinkingIsClosed(t *testing.T) {
	m := openThinking(t, Options{})
	p := ask(t, m, say("Tell me about the sea.", true))
	if !p.Thinking {
		t.Fatal("the prompt does not begin to think")
	}
	for _, budget := range []int{1, 5, 12} {
		var texts []string
		for _, depth := range []Depth{DepthOff, DepthAuto} {
			a := collect(t, m, Request{Prompt: p, MaxTokens: 60, MaxThinking: budget, Depth: depth, Sampling: &sample.Options{Seed: 7, Temperature: 1}})
			texts = append(texts, a.Text())
			if n := a.ReasoningTokens(); n > budget+len(m.tok.Encode("\n</think>\n\n")) {
				t.Errorf("%d tokens of thinking, of %d allowed", n, budget)
			}
			if thought, _, closed := strings.Cut(a.Text(), "</think>"); !closed || strings.TrimSpace(thought) == "" && budget > 1 {
				t.Errorf("budget %d: %q", budget, a.Text())
			}
		}
		if texts[0] != texts[1] {
			t.Errorf("budget %d: %q without drafts, %q with", budget, texts[0], texts[1])
		}
	}
}

// TestGrammarIsKept constrains answers by a schema, after thinking or without, with drafts and
// without.
func TestGrammarIsKept(t *testing.T) {
	m := openThinking(t, Options{})
	schema := `{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "legs": {"enum": [2, 4]}}, "required": ["name", "legs"], "additionalProperties": false}`
	f := grammar.Schema([]byte(schema))
	for _, think := range []bool{false, true} {
		p := ask(t, m, say("A cat.", think))
		for seed := range uint64(4) {
			var texts []string
			for _, depth := range []Depth{DepthOff, DepthAuto} {
				a := collect(t, m, Request{Prompt: p, MaxTokens: 200, MaxThinking: 8, Grammar: f, Depth: depth, Sampling: &sample.Options{Seed: seed, Temperature: 1}})
				var v struct {
					Name string
					Legs int
				}
				if err := json.Unmarshal([]byte(a.Content()), &v); err != nil || v.Legs != 2 && v.Legs != 4 || a.Finish != FinishStop {
					t.Errorf("thinking %v, seed %d: %q (%s): %v", think, seed, a.Text(), a.Finish, err)
				}
				texts = append(texts, a.Text())
				forced := 0
				for _, token := range a.Tokens {
					if token.Forced {
						forced++
					}
				}
				if s := &a.Result.Speculation; forced == 0 || s.Forced != forced {
					t.Errorf("seed %d, depth %v: %d tokens forced, stats say %d", seed, depth, forced, s.Forced)
				}
			}
			if texts[0] != texts[1] {
				t.Errorf("seed %d: %q without drafts, %q with", seed, texts[0], texts[1])
			}
		}
	}
	_, err := m.Generate(t.Context(), Request{Prompt: m.TextPrompt("a"), Grammar: grammar.Regexp("(")})
	if !errors.Is(err, ErrGrammar) {
		t.Errorf("a broken expression: %v", err)
	}
}

// TestStopTextInForcedTokens has stop strings at many places of a text that the grammar forces, with many
// tokens per round. The text and the tokens end there.
func TestStopTextInForcedTokens(t *testing.T) {
	m := openThinking(t, Options{})
	const text = "She went to the park and saw a big dog. They were happy."
	for from := 0; from < len(text)-3; from += 4 {
		stop := text[from : from+3]
		want, _, _ := strings.Cut(text, stop)
		for _, depth := range []Depth{DepthOff, 2} {
			a := collect(t, m, Request{Prompt: m.TextPrompt("One day"), Stop: []string{stop}, Grammar: grammar.Literal(text), Depth: depth, Sampling: &sample.Options{}})
			said := ""
			for _, token := range a.Tokens {
				piece, _ := m.Token(token.ID)
				said += piece
			}
			if a.Text() != want || a.Finish != FinishStop || !strings.HasPrefix(text, said) || len(said) < len(want)+len(stop) || len(said) > len(want)+20 {
				t.Errorf("stop text %q, depth %v: %q (%s) of %q, want %q", stop, depth, a.Text(), a.Finish, said, want)
			}
		}
	}
}

// TestConversationHitsTheCache has ten turns, with think blocks that the template leaves out of the
// history. Each turn computes only the new tokens of its prompt.
func TestConversationHitsTheCache(t *testing.T) {
	for _, think := range []bool{false, true} {
		m := openThinking(t, Options{KVMemory: 1 << 30})
		c := say("Tell me a story about a cat.", think)
		known := 0
		for turn := range 10 {
			p := ask(t, m, c)
			a := collect(t, m, Request{Prompt: p, MaxTokens: 30, MaxThinking: 10, Sampling: &sample.Options{Seed: uint64(turn), Temperature: 0.8}})
			m.warming.Wait()
			// What is new: the user's message, and the frame of two turns around it.
			fresh := len(p.IDs) - known
			if computed := len(p.IDs) - a.Result.Cached; turn > 0 && computed > fresh+64 {
				t.Errorf("thinking %v, turn %d: %d tokens of %d computed, where %d are new", think, turn, computed, len(p.IDs), fresh)
			}
			c.Messages = append(c.Messages, a.Message())
			known = len(m.text.Next(&prompt.Conversation{Messages: c.Messages[:len(c.Messages)-1], Variables: c.Variables}, nil, a.Message()).IDs)
			c.Messages = append(c.Messages, chat.Message{Role: "user", Content: chat.Text("And then? Say more.")})
		}
	}
}

func TestRecommendationsFollowTheFile(t *testing.T) {
	const none = "" // no such file
	for file, want := range map[string]sample.Options{
		none: {Temperature: models.DefaultTemperature, TopP: models.DefaultTopP, RepetitionPenalty: 1},
		`{"do_sample": true, "temperature": 0.25, "top_k": 7, "top_p": 0.5, "min_p": 0.1, "repetition_penalty": 1.25, "presence_penalty": 0.5, "frequency_penalty": 0.75}`: {
			Temperature: 0.25, TopK: 7, TopP: 0.5, MinP: 0.1, RepetitionPenalty: 1.25, PresencePenalty: 0.5, FrequencyPenalty: 0.75,
		},
		`{"do_sample": false, "temperature": 0.25}`: {TopP: 1, RepetitionPenalty: 1},
		`{"do_sample": true, "top_k": -1}`:          {Temperature: 1, TopP: 1, RepetitionPenalty: 1},
		tiny.Files()["generation_config.json"]:      {Temperature: 0.8, TopK: 20, TopP: 0.95, RepetitionPenalty: 1},
	} {
		m := openWith(t, Options{Threads: 1}, map[string]string{"generation_config.json": file})
		got := m.Sampling()
		if got.Seed == m.Sampling().Seed {
			t.Errorf("%s: the same seed twice", file)
		}
		want.Seed, want.XTCThreshold = got.Seed, models.DefaultXTCThreshold
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %+v\nwant %+v", file, got, want)
		}
	}
}

func TestPromptsAndEndsAreTheModels(t *testing.T) {
	m := openTiny(t, Options{})
	if _, err := m.Generate(t.Context(), Request{Prompt: &Prompt{IDs: make([]int32, m.Context())}}); err == nil {
		t.Error("a prompt that fills the context was taken")
	}
	if !slices.Contains(m.text.Stops(), m.info.Stop[0]) {
		t.Error("the model's end token ends nothing")
	}
	other := openWith(t, Options{Threads: 1}, map[string]string{"generation_config.json": `{"eos_token_id": 17}`})
	turn, _ := other.tok.ID("<|im_end|>")
	for _, id := range []int32{17, turn} {
		if !slices.Contains(other.text.Stops(), id) {
			t.Errorf("token %d, of the file or the family, is not among %v", id, other.text.Stops())
		}
	}
}

// TestRequestsAreNotWrittenTo gives a list with space behind it, where more would fit.
func TestRequestsAreNotWrittenTo(t *testing.T) {
	m := openTiny(t, Options{Threads: 1})
	exempt := []int32{5, 0, 0, 0}
	a, err := m.Generate(t.Context(), Request{
		Prompt: &Prompt{IDs: []int32{400, 401}}, MaxTokens: 1,
		Sampling: &sample.Options{Temperature: 1, XTCProbability: 0.5, XTCThreshold: 0.1, XTCExempt: exempt[:1]},
	})
	if err == nil {
		err = a.Wait()
	}
	if err != nil || !slices.Equal(exempt, []int32{5, 0, 0, 0}) {
		t.Errorf("%v, behind the list there is %v", err, exempt[1:])
	}
}
