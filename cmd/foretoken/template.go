package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/checkpoint"
)

// templates are the chat templates of a checkpoint: nearly always one, in some files a
// second for conversations with tools. A broken one is an error only for whom needs it.
type templates struct {
	plain, tools string // sources; empty: none
	bos, eos     string // tokens a template may ask for
}

// tokenizerConfig is what of tokenizer_config.json matters for templates.
type tokenizerConfig struct {
	Template json.RawMessage `json:"chat_template"`
	BOS      tokenText       `json:"bos_token"`
	EOS      tokenText       `json:"eos_token"`
}

// tokenText decodes a token given as its text, as an object with a field content, or null.
type tokenText string

// UnmarshalJSON implements json.Unmarshaler.
func (t *tokenText) UnmarshalJSON(data []byte) error {
	var object struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(data, &object) == nil {
		*t = tokenText(object.Content)
		return nil
	}
	return json.Unmarshal(data, (*string)(t))
}

// readTemplates finds the templates of a checkpoint: chat_template.jinja, else the field of
// tokenizer_config.json, else that of chat_template.json.
func readTemplates(c *checkpoint.Checkpoint) (templates, error) {
	var t templates
	var cfg tokenizerConfig
	if err := readOptional(c, "tokenizer_config.json", &cfg); err != nil {
		return t, err
	}
	t.bos, t.eos = string(cfg.BOS), string(cfg.EOS)
	text, err := c.ReadFile("chat_template.jinja")
	if err == nil {
		t.plain = string(text)
		return t, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return t, err
	}
	if len(cfg.Template) == 0 {
		var other struct {
			Template json.RawMessage `json:"chat_template"`
		}
		if err := readOptional(c, "chat_template.json", &other); err != nil {
			return t, err
		}
		cfg.Template = other.Template
	}
	return t, t.decode(cfg.Template)
}

// decode takes the field chat_template: a source, or a list of named ones.
func (t *templates) decode(field json.RawMessage) error {
	if len(field) == 0 || json.Unmarshal(field, &t.plain) == nil {
		return nil
	}
	var named []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if err := json.Unmarshal(field, &named); err != nil {
		return fmt.Errorf("tokenizer_config.json: chat_template: want a text, or a list of objects with name and template: %w", err)
	}
	for _, n := range named {
		switch n.Name {
		case "default":
			t.plain = n.Template
		case "tool_use":
			t.tools = n.Template
		}
	}
	return nil
}

// readOptional decodes a JSON file that may be absent.
func readOptional(c *checkpoint.Checkpoint, name string, v any) error {
	data, err := c.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return checkpoint.DecodeJSON(name, data, v)
}

// open parses the template for conversations with or without tools.
func (t *templates) open(withTools bool) (*chat.Template, error) {
	source := t.plain
	if withTools && t.tools != "" {
		source = t.tools
	}
	if source == "" {
		return nil, errors.New("the checkpoint has no chat template: use --no-chat-template to continue a text as it is")
	}
	return chat.NewTemplate(source)
}
