package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
)

// Templates are the chat templates of a checkpoint: nearly always one, in some files a
// second for conversations with tools.
type Templates struct {
	Plain, Tools string // Jinja sources; empty: none
	BOS, EOS     string // texts of the tokens that a template may use
	AddBOS       bool   // a text that is not a conversation begins with BOS
}

// tokenizerConfig is the part of tokenizer_config.json for templates.
type tokenizerConfig struct {
	Template json.RawMessage `json:"chat_template"`
	BOS      tokenText       `json:"bos_token"`
	EOS      tokenText       `json:"eos_token"`
	AddBOS   bool            `json:"add_bos_token"`
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

// Templates finds the chat templates: chat_template.jinja, else the field of
// tokenizer_config.json, else that of chat_template.json.
func (c *Checkpoint) Templates() (Templates, error) {
	var t Templates
	var cfg tokenizerConfig
	if err := c.readOptional("tokenizer_config.json", &cfg); err != nil {
		return t, err
	}
	t.BOS, t.EOS, t.AddBOS = string(cfg.BOS), string(cfg.EOS), cfg.AddBOS
	text, err := c.ReadFile("chat_template.jinja")
	if err == nil {
		t.Plain = string(text)
		return t, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return t, err
	}
	if len(cfg.Template) == 0 {
		var other struct {
			Template json.RawMessage `json:"chat_template"`
		}
		if err := c.readOptional("chat_template.json", &other); err != nil {
			return t, err
		}
		cfg.Template = other.Template
	}
	return t, t.decode(cfg.Template)
}

// decode reads the field chat_template: a source, or a list of named ones.
func (t *Templates) decode(field json.RawMessage) error {
	if len(field) == 0 || json.Unmarshal(field, &t.Plain) == nil {
		return nil
	}
	var named []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if err := json.Unmarshal(field, &named); err != nil {
		return fmt.Errorf("tokenizer_config.json: chat_template: want a string, or a list of objects with name and template: %w", err)
	}
	for _, n := range named {
		switch n.Name {
		case "default":
			t.Plain = n.Template
		case "tool_use":
			t.Tools = n.Template
		}
	}
	return nil
}

// readOptional decodes a JSON file that may be absent.
func (c *Checkpoint) readOptional(name string, v any) error {
	data, err := c.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return DecodeJSON(name, data, v)
}
