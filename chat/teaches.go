package chat

import (
	"strings"

	"github.com/foretoken/foretoken/internal/jinja"
)

// What the call of a probe has in it, which nothing else does.
const (
	probeName  = "probe_of_calls"
	probeValue = "value of the probe"
)

// Teaches is the format of tool calls that the source of a template shows to the model: [ToolXML]
// or [ToolJSON]. It is found by rendering a conversation with a call, and looking at what comes
// out of it.
func Teaches(source string) ToolFormat {
	t, err := NewTemplate(source)
	if err != nil {
		return ToolJSON
	}
	for _, in := range probes() {
		r, err := t.Render(in)
		if err != nil {
			continue // it refuses such conversations
		}
		switch {
		case strings.Contains(r.Text, functionOpen+probeName):
			return ToolXML
		case strings.Contains(r.Text, probeValue): // it is a call, in another format
			return ToolJSON
		case strings.Contains(r.Text, functionOpen): // what was said of calls
			return ToolXML
		}
	}
	return ToolJSON
}

// probes are conversations with a call, those first that most templates take.
func probes() []Input {
	fields, arguments := &jinja.Map{}, &jinja.Map{}
	arguments.Set("key", jinja.String(probeValue))
	function := &jinja.Map{}
	function.Set("name", jinja.String(probeName))
	fields.Set("type", jinja.String("function"))
	fields.Set("function", jinja.Dict(function))
	messages := []Message{
		{Role: "user", Content: Text("?")},
		{Role: "assistant", Content: Text(""), ToolCalls: []ToolCall{{ID: "probe", Name: probeName, Arguments: Arguments{arguments}}}},
		{Role: "tool", Content: Text("!"), ToolCallID: "probe", Name: probeName},
	}
	tools := []Tool{{fields}}
	return []Input{{Messages: messages, Tools: tools}, {Messages: messages[:2], Tools: tools}, {Messages: messages[:2]}, {Messages: messages[:1], Tools: tools}}
}
