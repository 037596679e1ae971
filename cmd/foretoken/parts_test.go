package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

func uitoa(n uint64) string { return strconv.FormatUint(n, 10) }

// linkTiny makes a checkpoint folder out of the embedded model's, with some files replaced
// (or, with an empty text, left out).
func linkTiny(t *testing.T, replaced map[string]string) string {
	t.Helper()
	from, err := filepath.Abs("../../internal/models/tiny")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "my-model")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, ok := replaced[e.Name()]; ok {
			continue
		}
		if err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range replaced {
		if text == "" {
			continue
		}
		filetest.Write(t, filepath.Join(dir, name), text)
	}
	return dir
}

func TestCheckpointWithoutTemplateSaysWhatToDo(t *testing.T) {
	dir := linkTiny(t, map[string]string{"chat_template.jinja": ""})
	for _, command := range [][]string{{"generate", "--prompt"}, {"run", "--verbose"}} {
		o := runIn(t, nil, command[0], "--model", dir, command[1], "Hi.")
		if o.code != exitError || !strings.Contains(o.err, "model my-model: the checkpoint has no chat template: use --no-chat-template") || strings.Contains(o.err, "loaded in") {
			t.Errorf("without a template: %+v", o)
		}
	}
	r := generateJSON(t, "--model", dir, "--prompt", "Once upon a", "--no-chat-template", "--max-tokens", "1")
	if r.Model != "my-model" {
		t.Errorf("the model is called %q", r.Model)
	}
}

func TestCheckpointFaultsNameTheFile(t *testing.T) {
	for name, says := range map[string]string{
		"tokenizer.json":         "tokenizer.json",
		"tokenizer_config.json":  "tokenizer_config.json",
		"generation_config.json": "generation_config.json",
		"chat_template.jinja":    "template: jinja: line 1",
	} {
		dir := linkTiny(t, map[string]string{name: "{% {"})
		o := runIn(t, nil, "generate", "--model", dir, "--prompt", "Hi.")
		if o.code != exitError || !strings.Contains(o.err, says) {
			t.Errorf("broken %s: %+v", name, o)
		}
	}
	dir := linkTiny(t, map[string]string{"tokenizer.json": ""})
	if o := runIn(t, nil, "generate", "--model", dir, "--prompt", "Hi."); o.code != exitError || !strings.Contains(o.err, "tokenizer.json") {
		t.Errorf("missing tokenizer.json: %+v", o)
	}
}

// A template's error about a refused conversation is cleaned before it reaches a terminal.
func TestErrorsDoNotSteerTheTerminal(t *testing.T) {
	dir := linkTiny(t, map[string]string{"chat_template.jinja": "{{ raise_exception('\x1b]0;title\x07not so') }}"})
	if o := runIn(t, nil, "generate", "--model", dir, "--prompt", "Hi."); o.code != exitError || !strings.HasSuffix(o.err, "]0;titlenot so\n") {
		t.Errorf("%+v", o)
	}
}
