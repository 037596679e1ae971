package foretoken

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/sample"
)

// gemmaTokens are the control tokens of a Gemma tokenizer.
var gemmaTokens = []string{
	"<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>", "<|tool>", "<tool|>",
	"<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", `<|"|>`, "<|image>", "<|image|>", "<image|>",
}

// openGemma opens the fixture with layer embeddings, with a vocabulary of letters, bytes and Gemma's own tokens, and a
// template of tests of package dialogue.
func openGemma(t *testing.T) *Model {
	t.Helper()
	type object = map[string]any
	vocab := object{}
	var added []object
	for i, token := range gemmaTokens {
		vocab[token] = i
		added = append(added, object{"id": i, "content": token, "special": true})
	}
	for b := range 256 {
		vocab[fmt.Sprintf("<0x%02X>", b)] = len(vocab)
	}
	for r := rune(' ' + 1); r < 0x7f; r++ {
		vocab[string(r)] = len(vocab)
	}
	vocab["\u2581"] = len(vocab)
	replace := func(from, to string) object {
		return object{"type": "Replace", "pattern": object{"String": from}, "content": to}
	}
	size := (len(vocab) + 15) / 16 * 16
	fixture, dir := golden.Dir(t, "gemma4_ple"), t.TempDir()
	var config object
	filetest.Decode(t, filetest.Read(t, filepath.Join(fixture, "config.json")), &config)
	text := config["text_config"].(object)
	text["vocab_size"], text["vocab_size_per_layer_input"] = size, size
	for name, data := range map[string][]byte{
		"config.json":           filetest.Encode(t, config),
		"model.safetensors":     widen(t, filetest.Read(t, filepath.Join(fixture, "model.safetensors")), size),
		"chat_template.jinja":   filetest.Read(t, "internal/dialogue/testdata/calls_marked.jinja"),
		"tokenizer_config.json": filetest.Encode(t, object{"bos_token": "<bos>", "add_bos_token": true}),
		"tokenizer.json": filetest.Encode(t, object{
			"added_tokens": added, "normalizer": replace(" ", "\u2581"),
			"decoder": object{"type": "Sequence", "decoders": []object{replace("\u2581", " "), {"type": "ByteFallback"}, {"type": "Fuse"}}},
			"model":   object{"type": "BPE", "byte_fallback": true, "unk_token": "<unk>", "fuse_unk": true, "vocab": vocab, "merges": []string{}},
		}),
	} {
		filetest.Write(t, filepath.Join(dir, name), data)
	}
	m, err := Open(t.Context(), dir, Options{Threads: 1, Log: silent, Speculation: Speculation{NoSelfTest: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// TestGemmaSpeaks has a model of the family with its own tokens: how prompts begin and end, what ends an answer, calls
// that are read, with and without drafts, and images that are refused.
func TestGemmaSpeaks(t *testing.T) {
	m := openGemma(t)
	var ends []string
	for _, id := range m.text.Stops() {
		ends = append(ends, m.tok.Decode([]int32{id}, false))
	}
	for _, want := range []string{"<eos>", "<turn|>", "<|tool_response>"} {
		if !slices.Contains(ends, want) {
			t.Errorf("an answer ends with %q, not with %s", ends, want)
		}
	}
	for think, want := range map[bool]string{
		true:  "<|turn>system\n<|think|>\n<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\n",
		false: "<|turn>user\nHi<turn|>\n<|turn>model\n<|channel>thought\n<channel|>",
	} {
		if got := m.tok.Decode(ask(t, m, say("Hi", think)).IDs, false); got != "<bos>"+want {
			t.Errorf("thinking %v: %q, want %q", think, got, want)
		}
	}
	if got := m.tok.Decode(m.TextPrompt("Hi <turn|>").IDs, false); !strings.HasPrefix(got, "<bos>Hi") {
		t.Errorf("a text is %q", got)
	}
	var tool chat.Tool
	if err := tool.UnmarshalJSON([]byte(`{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}`)); err != nil {
		t.Fatal(err)
	}
	talk := say("Hi", false)
	talk.Tools = []chat.Tool{tool}
	p := ask(t, m, talk)
	const answer = "so<|tool_call>call:f{a:<|\"|>x y<|\"|>}<tool_call|><|tool_call>call:f{}<tool_call|>"
	var texts []string
	for _, depth := range []Depth{DepthOff, DepthAuto} {
		a := collect(t, m, Request{Prompt: p, MaxTokens: 200, Grammar: grammar.Literal(p.inner().Apart(answer)), Depth: depth, Sampling: &sample.Options{Seed: 2, Temperature: 1}})
		texts = append(texts, a.Text())
		if len(a.ToolCalls) != 2 || a.ToolCalls[0].Arguments.JSON() != `{"a": "x y"}` || a.Content() != "so" {
			t.Errorf("%q is %v, content %q", a.Text(), a.ToolCalls, a.Content())
		}
	}
	if texts[0] != texts[1] {
		t.Errorf("%q without drafts, %q with", texts[0], texts[1])
	}
	if _, err := m.ChatPrompt(t.Context(), told(shown([]byte("x")))); !errors.Is(err, ErrNoVision) {
		t.Errorf("an image: %v", err)
	}
}
