package doctor

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dialogue"
	"github.com/foretoken/foretoken/internal/tokenizer"
)

// otherTokenizer is what to do about tokens that the model does not have.
const otherTokenizer = "the tokenizer belongs to another model: copy tokenizer.json from where this model was published"

// Tokenizer describes tokenizer.json.
type Tokenizer struct {
	Size int    `json:"size"` // one more than the highest id; the model may have more rows
	Stop []Stop `json:"stop"` // ids that end a text
}

// Stop is a token that ends a text.
type Stop struct {
	ID    int32  `json:"id"`
	Token string `json:"token"` // empty if the tokenizer has no such id
}

// Template describes the chat template, by rendering it.
type Template struct {
	Thinking bool `json:"thinking"` // answers begin with reasoning by default
	Switch   bool `json:"switch"`   // enable_thinking changes the prompt
	Tools    bool `json:"tools"`    // tools become part of the prompt
	Pictures bool `json:"pictures"` // images have a place in the prompt
}

// text examines the tokenizer and the templates.
func (f *Facts) text(c *checkpoint.Checkpoint, o InspectOptions) {
	data, err := c.ReadFile("tokenizer.json")
	if err == nil {
		f.tok, err = tokenizer.New(data)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.problem(true, "copy tokenizer.json from where the model was published", "there is no tokenizer.json")
	case err != nil:
		f.problem(true, "copy tokenizer.json again from where the model was published", "tokenizer.json: %v", err)
	default:
		f.Tokenizer = &Tokenizer{Size: f.tok.Size(), Stop: []Stop{}}
		f.stops()
	}
	if o.Template == nil {
		return
	}
	source, tools, err := o.Template(c)
	if err == nil && source != "" {
		mark := ""
		if f.family != nil {
			mark = f.family.Dialogue.Pictures.Image
		}
		if f.Template, err = newTemplate(source, tools, mark); err == nil {
			f.template, err = dialogue.NewTemplate(source)
		}
	}
	const remedy = "copy chat_template.jinja from where the model was published, or use --no-chat-template"
	switch {
	case err != nil:
		f.problem(false, remedy, "chat template: %v", err)
	case source == "":
		f.problem(false, remedy, "there is no chat template")
	case f.Pictures != nil && !f.Template.Pictures:
		f.problem(false, "copy chat_template.jinja from where the model was published", "images are refused: the chat template has no placeholder for them")
	}
}

// stops finds the texts of the ids that end a text: those of the files, and those of the family.
func (f *Facts) stops() {
	if f.Model == nil {
		return
	}
	ids := slices.Clone(f.Model.Stop)
	for _, token := range f.family.Dialogue.Ends {
		if id, ok := f.tok.ID(token); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		token, _ := f.tok.Token(id)
		f.Tokenizer.Stop = append(f.Tokenizer.Stop, Stop{id, token})
	}
	if len(f.Model.Stop) == 0 {
		f.problem(false, `add "eos_token_id" to generation_config.json`, "no token ends a text: neither config.json nor generation_config.json has an eos_token_id")
	}
	if f.tok.Size() > f.Model.Vocab {
		f.problem(false, otherTokenizer,
			"the tokenizer has %d tokens, but the model has only %d", f.tok.Size(), f.Model.Vocab)
	}
}

// newTemplate tests a template: its rendered prompts show its abilities.
// tools is the source of one for conversations with tools, if there is a second; mark
// stands for an image.
func newTemplate(source, tools, mark string) (*Template, error) {
	t, err := dialogue.NewTemplate(source)
	if err != nil {
		return nil, err
	}
	in := dialogue.Input{Messages: []chat.Message{{Role: "user", Content: chat.Text("Hello.")}}, AddGenerationPrompt: true}
	plain, err := t.Render(in)
	if err != nil {
		return nil, err
	}
	found := &Template{Thinking: plain.StartsThinking()}
	found.pictures(t, mark)
	prompts := map[bool]string{}
	for _, think := range []bool{false, true} {
		in.Variables = map[string]any{"enable_thinking": think}
		prompt, err := t.Render(in)
		if err != nil {
			return nil, err
		}
		prompts[think] = prompt.Text
	}
	found.Switch = prompts[false] != prompts[true]
	in.Variables = nil
	in.Tools, err = chat.DecodeTools([]byte(`[{"type":"function","function":{"name":"look_up","parameters":{"type":"object","properties":{}}}}]`))
	if err != nil {
		return nil, err
	}
	if tools != "" {
		if t, err = dialogue.NewTemplate(tools); err != nil {
			return nil, err
		}
	}
	if prompt, err := t.Render(in); err == nil { // a template that refuses tools has none
		found.Tools = strings.Contains(prompt.Text, "look_up")
	}
	return found, nil
}
