package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/jinja"
)

// input is the input of a model: ids, a text, or a conversation.
type input struct {
	ids      []int32
	text     string
	messages []chat.Message
	tools    []chat.Tool
	trusted  bool // spellings in the messages may become control tokens
}

// templateFlags say how messages become a prompt.
type templateFlags struct {
	system     flags.Setting[string]
	off        bool
	thinking   flags.Setting[bool]
	noThinking bool
	args       flags.Setting[map[string]any]
}

func newTemplateFlags() *templateFlags {
	return &templateFlags{
		system: flags.Setting[string]{
			Kind:  "TEXT",
			Parse: func(text string) (string, error) { return text, nil },
			Check: func(string) error { return nil },
		},
		thinking: flags.Setting[bool]{
			Kind: "bool",
			Parse: func(text string) (bool, error) {
				v, err := strconv.ParseBool(text)
				if err != nil {
					return false, errors.New("want true or false")
				}
				return v, nil
			},
			Check: func(bool) error { return nil },
		},
		args: flags.Setting[map[string]any]{
			Kind: "JSON",
			Parse: func(text string) (map[string]any, error) {
				v, err := jinja.DecodeJSON([]byte(text))
				if err != nil || v.Kind() != jinja.KindMap {
					return nil, errors.New(`want a JSON object, such as {"enable_thinking": false}`)
				}
				return v.Map().Any(), nil
			},
			Check: func(map[string]any) error { return nil },
		},
	}
}

// add defines the flags in a group.
func (f *templateFlags) add(g flags.Group) {
	fs := g.Flags()
	fs.Var(&f.system, "system", "system message")
	fs.Var(&f.thinking, "enable-thinking", "ask the template for thinking before the answer")
	fs.Lookup("enable-thinking").NoOptDefVal = "true"
	fs.BoolVar(&f.noThinking, "no-thinking", false, "ask the template for an answer without thinking")
	fs.Var(&f.args, "chat-template-args", "additional template variables")
	fs.BoolVar(&f.off, "no-chat-template", false, "continue the text without the chat template")
	// Names in other programs.
	fs.Var(&f.system, "system-prompt", "the same as --system")
	fs.Var(&f.args, "chat-template-config", "the same as --chat-template-args")
	fs.BoolVar(&f.off, "ignore-chat-template", false, "the same as --no-chat-template")
	for _, name := range []string{"system-prompt", "chat-template-config", "ignore-chat-template"} {
		flags.Must(fs.MarkHidden(name))
	}
}

// validate refuses flags that contradict each other.
func (f *templateFlags) validate() error {
	if f.thinking.Given && f.noThinking {
		return flags.Usagef("--enable-thinking and --no-thinking cannot be combined")
	}
	if !f.off {
		return nil
	}
	return f.unused("--no-chat-template")
}

// unused refuses flags that have no effect beside another, which turns the template off.
func (f *templateFlags) unused(beside string) error {
	for _, flag := range []struct {
		name  string
		given bool
	}{
		{"--system", f.system.Given},
		{"--enable-thinking", f.thinking.Given},
		{"--no-thinking", f.noThinking},
		{"--chat-template-args", f.args.Given},
	} {
		if flag.given {
			return flags.Usagef("%s and %s cannot be combined: the first needs the chat template", flag.name, beside)
		}
	}
	return nil
}

// variables are the variables for the template.
func (f *templateFlags) variables() map[string]any {
	vars := map[string]any{}
	maps.Copy(vars, f.args.Value)
	if f.thinking.Given || f.noThinking {
		vars["enable_thinking"] = f.thinking.Value
	}
	return vars
}

// textInput is the input for a text with attachments before it: the user's message, or the text
// itself if there is to be no template.
func (f *templateFlags) textInput(text string, attached ...attachment) *input {
	if f.off {
		return &input{text: text}
	}
	if len(attached) == 0 {
		return f.userInput(chat.Text(text))
	}
	var parts []chat.Part
	for _, a := range attached {
		parts = append(parts, chat.Part{Media: a.Media})
	}
	if text != "" {
		parts = append(parts, chat.Part{Text: text})
	}
	return f.userInput(chat.Parts(parts...))
}

// userInput is the input for a message of the user.
func (f *templateFlags) userInput(c chat.Content) *input {
	in := &input{messages: []chat.Message{{Role: "user", Content: c}}}
	if f.system.Given {
		in.messages = slices.Insert(in.messages, 0, systemMessage(f.system.Value))
	}
	return in
}

func systemMessage(text string) chat.Message {
	return chat.Message{Role: "system", Content: chat.Text(text)}
}

// messagesInput is the input for the JSON of a conversation: an array of messages, or an
// object with messages and perhaps tools. Other fields of the object are reported to n.
func (f *templateFlags) messagesInput(data []byte, n *console.Notes) (*input, error) {
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) != nil {
		object = map[string]json.RawMessage{"messages": data}
	}
	in := &input{}
	var err error
	for _, name := range sortedKeys(object) {
		switch name {
		case "messages":
			in.messages, err = chat.DecodeMessages(object[name], openPart)
		case "tools":
			if string(object[name]) != "null" {
				in.tools, err = chat.DecodeTools(object[name])
			}
		default:
			n.Warn("the field %q of the messages file is ignored; supported: messages and tools", name)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(in.messages) == 0 {
		return nil, errors.New("there are no messages: want an array of messages, or an object with a field messages")
	}
	if f.system.Given {
		if in.messages[0].Role == "system" {
			return nil, flags.Usagef("--system: the messages already begin with a system message")
		}
		in.messages = slices.Insert(in.messages, 0, systemMessage(f.system.Value))
	}
	return in, nil
}

func sortedKeys(m map[string]json.RawMessage) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// readMessages reads the messages in a file, or in standard input for "-".
func (f *templateFlags) readMessages(c *console.Console, name string, n *console.Notes) (*input, error) {
	var data []byte
	var err error
	if name == "-" {
		data, err = console.ReadAll(c.In, "standard input")
	} else {
		data, err = readFile(name)
	}
	if err != nil {
		return nil, fmt.Errorf("--messages: %w", err)
	}
	in, err := f.messagesInput(data, n)
	if err != nil {
		return nil, fmt.Errorf("--messages %s: %w", name, err)
	}
	return in, nil
}

// readFile reads a file up to maxInput.
func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // opened for reading: nothing to lose
	return console.ReadAll(file, name)
}

// hasMedia reports whether the messages have images or videos.
func (in *input) hasMedia() bool {
	return slices.ContainsFunc(in.messages, func(m chat.Message) bool { return len(m.Content.Media()) > 0 })
}

// parseIDs reads token ids, separated by commas or spaces.
func parseIDs(text string) ([]int32, error) {
	fields := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	ids := make([]int32, len(fields))
	for i, field := range fields {
		id, err := strconv.ParseUint(field, 10, 31)
		if err != nil {
			return nil, flags.Usagef("--prompt-ids: %q is not a token id; want whole numbers with commas between them", field)
		}
		ids[i] = int32(id)
	}
	if len(ids) == 0 {
		return nil, flags.Usagef("--prompt-ids: there are no ids")
	}
	return ids, nil
}

// prompt turns an input into a prompt.
func (s *session) prompt(ctx context.Context, in *input, f *templateFlags) (*foretoken.Prompt, error) {
	p := &foretoken.Prompt{IDs: in.ids}
	switch {
	case in.messages != nil:
		var err error
		if p, err = s.ChatPrompt(ctx, foretoken.Conversation{Messages: in.messages, Tools: in.tools, Variables: f.variables(), Trusted: in.trusted}); err != nil {
			return nil, load.Explain(err)
		}
	case in.ids == nil:
		p = s.TextPrompt(in.text)
	}
	return p, s.CheckPrompt(p)
}
