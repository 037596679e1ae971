package dialogue

import (
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/dialogue/values"
	"github.com/foretoken/foretoken/internal/jinja"
)

// Unique texts in the calls of a probe.
const (
	probeName   = "probe_of_calls"
	probeKey    = "probe_key"
	probeMore   = "probe_more"
	probeValue  = "value of the probe"
	probeAnswer = "answer of the probe"
	probeReason = "reason of the probe"
)

// probeSteps bounds the work of rendering a probe. Templates in use take a hundredth of it; one that
// takes more is not recognized, and costs no more than a conversation with it.
const probeSteps = 100_000

// Teaches is the syntax of tool calls that the source of a template shows to the model: [JSONCalls]
// if it shows no known one. It is detected by rendering a conversation with calls and searching
// the result.
func Teaches(source string) CallSyntax {
	t, err := NewTemplate(source)
	if err != nil {
		return JSONCalls
	}
	for _, in := range probes() {
		r, err := t.Render(in)
		if err != nil {
			continue // it refuses such conversations
		}
		for _, s := range spelled {
			if at := s.calls.FindStringSubmatchIndex(r.Text); at != nil {
				before := strings.TrimRight(r.Text[:at[0]], "\n")
				lead := ""
				if strings.HasSuffix(before, t.tags.Close) {
					lead = r.Text[len(before):at[0]]
				}
				return s.make(lead, s.calls.FindStringSubmatch(r.Text[at[0]:]))
			}
		}
		if strings.Contains(r.Text, probeValue) { // it is a call, in another syntax
			return JSONCalls
		}
		for _, s := range said {
			if strings.Contains(r.Text, s.tag) {
				return s.syntax
			}
		}
	}
	return JSONCalls
}

// probes are conversations with calls, the most widely accepted first.
func probes() []Input {
	fields, first, second := &jinja.Map{}, &jinja.Map{}, &jinja.Map{}
	first.Set(probeKey, jinja.String(probeValue))
	second.Set(probeKey, jinja.String("-"))
	two := &jinja.Map{}
	two.Set(probeKey, jinja.String(probeValue))
	two.Set(probeMore, jinja.String("-"))
	function := &jinja.Map{}
	function.Set("name", jinja.String(probeName))
	fields.Set("type", jinja.String("function"))
	fields.Set("function", jinja.Dict(function))
	tools := make([]chat.Tool, 1)
	*values.Tool(&tools[0]) = fields
	call := func(arguments ...*jinja.Map) []chat.Message {
		m := chat.Message{Role: "assistant"}
		for _, a := range arguments {
			c := chat.ToolCall{ID: "probe", Name: probeName}
			*values.Arguments(&c.Arguments) = a
			m.ToolCalls = append(m.ToolCalls, c)
		}
		return []chat.Message{{Role: "user", Content: chat.Text("?")}, m, {Role: "tool", Content: chat.Text("!"), ToolCallID: "probe", Name: probeName}}
	}
	one := call(first)
	list := []Input{
		{Messages: call(two, second)[:2], Tools: tools},
		{Messages: one, Tools: tools},
		{Messages: one[:2], Tools: tools},
		{Messages: one[:2]},
		{Messages: one[:1], Tools: tools},
	}
	for i := range list {
		list[i].BOSToken, list[i].EOSToken, list[i].steps = "<s>", "</s>", probeSteps
	}
	return list
}

// shape is the form in which a template expects messages with tool calls.
type shape struct {
	text bool // arguments as the text of a JSON object, not as the object
	null bool // no content as null, not as an empty text
}

// findShape is a shape with which the template writes the calls: their arguments, and these neither
// as a Python dict nor as JSON within JSON. Of null and empty content it is the one that
// gives the shorter text.
func (t *Template) findShape() shape {
	for _, in := range probes() {
		var best shape
		found := -1
		for _, s := range []shape{{}, {null: true}, {text: true}, {text: true, null: true}} {
			r, err := t.render(in, s)
			if err != nil || !strings.Contains(r.Text, probeValue) || strings.Contains(r.Text, "'"+probeKey+"'") || strings.Contains(r.Text, `\"`+probeKey+`\"`) {
				continue
			}
			if found < 0 || s.text == best.text && len(r.Text) < found {
				best, found = s, len(r.Text)
			}
		}
		if found >= 0 {
			return best
		}
	}
	return shape{}
}

// Thinking is how a model's template writes think blocks.
type Thinking struct {
	Tags ThinkTags
	// Open is the first text of a model that opens its think blocks itself; "" if the template
	// opens them, or has none.
	Open string
	// Asked: the template lets the model think only if enable_thinking is true.
	Asked bool
	// Close ends a thought, up to the closing tag, and Apart separates it from the
	// answer.
	Close, Apart string
}

// Thinking is how the template writes think blocks: as Qwen's do, if it shows none. It is detected by
// rendering an answer with one.
func (t *Template) Thinking() Thinking { return t.thinking() }

func (t *Template) findThinking() Thinking {
	tags := t.tags
	found := Thinking{Tags: tags, Close: "\n" + tags.Close, Apart: "\n\n"}
	reason := probeReason
	messages := []chat.Message{{Role: "user", Content: chat.Text("?")}, {Role: "assistant", Content: chat.Text(probeAnswer), ReasoningContent: &reason}}
	probe := func(in Input) Rendered {
		in.BOSToken, in.EOSToken, in.steps = "<s>", "</s>", probeSteps
		r, err := t.Render(in)
		if err != nil {
			return Rendered{} // it refuses such conversations
		}
		return r
	}
	switched := func(in Input, on bool) Rendered {
		in.Variables = map[string]any{"enable_thinking": on, "thinking": on}
		return probe(in)
	}
	asked, answered := Input{Messages: messages[:1], AddGenerationPrompt: true}, Input{Messages: messages}
	on, off, said := probe(asked), switched(asked, false), probe(answered)
	if found.Asked = on.EndsThinking(); found.Asked {
		on, said = switched(asked, true), switched(answered, true)
	}
	before, rest, shown := strings.Cut(said.Text, probeReason)
	if end, _, ok := strings.Cut(rest, probeAnswer); ok && strings.TrimSpace(end) == tags.Close {
		at := strings.Index(end, tags.Close) + len(tags.Close)
		found.Close, found.Apart = end[:at], end[at:]
	} else if text := strings.TrimRight(off.Text, " \t\r\n"); !shown && off.EndsThinking() {
		// Thoughts are left out, but an empty block is not.
		found.Apart = off.Text[len(text):]
		if !strings.HasSuffix(text, "\n"+tags.Close) {
			found.Close = tags.Close
		}
	}
	// A model opens its blocks itself if its template closes an empty one when thinking is
	// disabled, and otherwise neither opens nor closes one.
	if !off.EndsThinking() || on.EndsThinking() {
		return found
	}
	if open, ok := strings.CutPrefix(before, on.Text); ok && strings.TrimSpace(open) == tags.Open+tags.Label {
		found.Open = open
	} else if !shown && tags.Label != "" && !on.StartsThinking() {
		found.Open = tags.Open + tags.Label + "\n"
	}
	return found
}
