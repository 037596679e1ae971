package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// manifest reads a file of deploy into v, which has all tested fields.
func manifest(t *testing.T, name string, v any) {
	t.Helper()
	tree, err := readYAML(string(deployed(t, name)))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	text := filetest.Encode(t, tree)
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// readYAML reads the part of YAML that our manifests use, and refuses the rest: blocks of keys
// and of items, scalars on one line, lists of scalars in brackets. That they are YAML at all is
// tested in internal/server/clienttest, with a library that this module does without.
func readYAML(text string) (any, error) {
	r := &yamlReader{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if at := strings.Index(" "+line, " #"); at >= 0 {
			line = line[:at]
		}
		line = strings.TrimRight(line, " ")
		words := strings.TrimLeft(line, " ")
		if words == "---" || strings.ContainsAny(line, "\t") || strings.HasPrefix(words, "|") || strings.HasPrefix(words, "&") {
			return nil, fmt.Errorf("%q: no reader for this", line)
		}
		if words != "" {
			r.lines = append(r.lines, yamlLine{len(line) - len(words), words})
		}
	}
	v, err := r.block(0)
	if err == nil && len(r.lines) > 0 {
		err = fmt.Errorf("%q stands too far left or right", r.lines[0].words)
	}
	return v, err
}

type yamlLine struct {
	indent int
	words  string
}

type yamlReader struct{ lines []yamlLine }

// block reads the lines that begin at indent.
func (r *yamlReader) block(indent int) (any, error) {
	if len(r.lines) == 0 || r.lines[0].indent != indent {
		return nil, nil
	}
	if strings.HasPrefix(r.lines[0].words, "- ") {
		return r.items(indent)
	}
	keys := map[string]any{}
	for len(r.lines) > 0 && r.lines[0].indent == indent {
		key, rest, ok := strings.Cut(r.lines[0].words+" ", ": ")
		rest = strings.TrimSpace(rest)
		if _, twice := keys[key]; !ok || twice || strings.HasPrefix(key, "- ") {
			return nil, fmt.Errorf("%q: not a new key", r.lines[0].words)
		}
		r.lines = r.lines[1:]
		var err error
		if rest != "" {
			keys[key], err = yamlScalar(rest)
		} else if len(r.lines) > 0 && r.lines[0].indent > indent {
			keys[key], err = r.block(r.lines[0].indent)
		} else {
			keys[key] = nil
		}
		if err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func (r *yamlReader) items(indent int) (any, error) {
	var list []any
	for len(r.lines) > 0 && r.lines[0].indent == indent && strings.HasPrefix(r.lines[0].words, "- ") {
		words := r.lines[0].words[2:]
		var item any
		var err error
		if strings.Contains(words+" ", ": ") && words[0] != '"' {
			r.lines[0] = yamlLine{indent + 2, words}
			item, err = r.block(indent + 2)
		} else {
			r.lines = r.lines[1:]
			item, err = yamlScalar(words)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	return list, nil
}

func yamlScalar(text string) (any, error) {
	switch {
	case text == "{}":
		return map[string]any{}, nil
	case text[0] == '[' && strings.HasSuffix(text, "]"):
		var list []any
		for item := range strings.SplitSeq(text[1:len(text)-1], ",") {
			v, err := yamlScalar(strings.TrimSpace(item))
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case strings.ContainsRune("|>&*!{['%@`", rune(text[0])):
		return nil, fmt.Errorf("%q: no reader for this", text)
	}
	// Numbers, booleans and what is in double quotes are written as in JSON.
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		if text[0] == '"' {
			return nil, err
		}
		return text, nil
	}
	return v, nil
}

func TestReadYAML(t *testing.T) {
	text := "a: 1 # one\nb:\n  - x: \"y: z\"\n    c: [A, \"b\"]\n  - --port=8080\nd: {}\ne:\nf.g/h: ${A:?b}\n"
	want := `{"a":1,"b":[{"c":["A","b"],"x":"y: z"},"--port=8080"],"d":{},"e":null,"f.g/h":"${A:?b}"}`
	v, err := readYAML(text)
	if got, _ := json.Marshal(v); err != nil || string(got) != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
	for _, text := range []string{"a: |\n  b\n", "a: &x 1\n", "a: 1\na: 2\n", "a\n", "a: 1\n   b: 2\n", "a: 1\n---\nb: 2\n", "a: 'b'\n", "- a: 1\nb: 2\n"} {
		if v, err := readYAML(text); err == nil {
			t.Errorf("%q was read as %v", text, v)
		}
	}
}
