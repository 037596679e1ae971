package checkpoint

import (
	"encoding/json"
	"testing"
)

func TestTemplatesAreFoundInEveryPlace(t *testing.T) {
	const list = `[{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}, {"name": "other", "template": "O"}]`
	for name, c := range map[string]struct {
		files map[string]string
		want  Templates
	}{
		"file": {
			map[string]string{"chat_template.jinja": "F", "tokenizer_config.json": `{"chat_template": "C", "eos_token": "E"}`},
			Templates{Plain: "F", EOS: "E"},
		},
		"field": {
			map[string]string{"tokenizer_config.json": `{"chat_template": "C", "bos_token": {"content": "B"}, "eos_token": null}`},
			Templates{Plain: "C", BOS: "B"},
		},
		"list":       {map[string]string{"tokenizer_config.json": `{"chat_template": ` + list + `}`}, Templates{Plain: "D", Tools: "T"}},
		"other file": {map[string]string{"tokenizer_config.json": `{}`, "chat_template.json": `{"chat_template": "J"}`}, Templates{Plain: "J"}},
		"null":       {map[string]string{"tokenizer_config.json": `{"chat_template": null}`}, Templates{}},
		"none":       {map[string]string{}, Templates{}},
	} {
		c.files["config.json"] = "{}"
		c.files["model.safetensors"] = "\x02\x00\x00\x00\x00\x00\x00\x00{}"
		point, err := OpenFiles(name, c.files)
		if err != nil {
			t.Fatal(err)
		}
		got, err := point.Templates()
		if err != nil || got != c.want {
			t.Errorf("%s: got %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	for _, field := range []string{`5`, `[5]`, `{"default": "D"}`} {
		if err := new(Templates).decode(json.RawMessage(field)); err == nil {
			t.Errorf("chat_template %s: no error", field)
		}
	}
}
