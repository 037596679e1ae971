package openai

import (
	"encoding/json"
	"slices"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/server/body"
	"github.com/foretoken/foretoken/server/turn"
)

// tools reads the tools of a request and which of them may be called. flat is the form of
// responses, which have no level "function".
func (q *request) tools(v *body.Value, flat bool) {
	a := &q.ask
	for _, item := range v.Field("tools").List() {
		t, ok := tool(item, flat)
		if ok && slices.ContainsFunc(a.Tools, func(u chat.Tool) bool { return u.Name() == t.Name() }) {
			item.Fault("there are two tools with the name %.80q", t.Name())
		}
		if !ok {
			return // v has the reason
		}
		a.Tools = append(a.Tools, t)
		a.Strict = a.Strict || t.Strict()
	}
	if parallel := v.Field("parallel_tool_calls").Bool(); parallel != nil {
		a.Parallel = *parallel
		// One call at most is kept by a grammar of calls, which has their arguments in it.
		a.Strict = a.Strict || !*parallel
	}
	choice := v.Field("tool_choice")
	if !choice.Absent() && len(a.Tools) == 0 {
		if text := string(choice.Raw()); text == `"none"` || text == `"auto"` {
			return // clients send it whether or not they have tools
		}
		choice.Fault("there are no tools")
		return
	}
	q.toolChoice(choice, flat)
}

// tool reads one tool.
func tool(v *body.Value, flat bool) (t chat.Tool, ok bool) {
	if !v.IsObject() {
		v.Fault("want an object that describes a function")
		return t, false
	}
	if kind := v.Field("type"); kind.Required().Text() != "function" {
		kind.Unsupported("tools of type %.40q are not run here: there are only functions, which the client runs", kind.Text())
		return t, false
	}
	function := v
	if !flat {
		function = v.Field("function").Required()
	}
	var own struct {
		Type     string `json:"type"`
		Function struct {
			Name        string          `json:"name"`
			Description string          `json:"description,omitempty"`
			Parameters  json.RawMessage `json:"parameters,omitempty"`
			Strict      bool            `json:"strict,omitempty"`
		} `json:"function"`
	}
	own.Type = "function"
	f := &own.Function
	f.Name, f.Description, f.Strict = function.Field("name").Required().Text(), function.Field("description").Text(), function.Field("strict").True()
	if f.Name == "" {
		function.Field("name").Fault("the name is empty")
	}
	if p := function.Field("parameters"); !p.Absent() {
		if !p.IsObject() {
			p.Fault("want a JSON schema, which is an object")
		}
		f.Parameters = p.Raw()
	}
	raw := v.Raw()
	if flat {
		raw, _ = json.Marshal(own) // strings and JSON that was read
	}
	v.IgnoreRest() // templates are shown all of it
	function.IgnoreRest()
	if err := json.Unmarshal(raw, &t); err != nil {
		v.Fault("%v", cause(err))
		return t, false
	}
	return t, true
}

// toolChoice reads which tools may, or must, be called.
func (q *request) toolChoice(v *body.Value, flat bool) {
	a := &q.ask
	calls := map[string]turn.Calls{"": turn.CallAuto, "auto": turn.CallAuto, "none": turn.CallNone, "required": turn.CallRequired}
	if v.Absent() || v.IsText() {
		a.Calls = calls[v.OneOf("auto", "none", "required")]
		return
	}
	switch kind := v.Field("type").Required(); kind.Text() {
	case "function":
		a.Calls, a.Named = turn.CallNamed, toolName(v, flat)
	case "allowed_tools":
		list := v
		if !flat {
			list = v.Field("allowed_tools").Required()
		}
		a.Calls = calls[list.Field("mode").Required().OneOf("auto", "required")]
		var allowed []chat.Tool
		for _, item := range list.Field("tools").Required().List() {
			item.Field("type").OneOf("function")
			name := toolName(item, flat)
			at := slices.IndexFunc(a.Tools, func(t chat.Tool) bool { return t.Name() == name })
			if at < 0 {
				item.Fault("there is no tool %.80q", name)
				return
			}
			allowed = append(allowed, a.Tools[at])
		}
		if a.Tools = allowed; len(allowed) == 0 {
			list.Field("tools").Fault("the list is empty")
		}
	default:
		kind.Unsupported("%.40q, want function or allowed_tools", kind.Text())
	}
}

// toolName is the name of a function that is chosen.
func toolName(v *body.Value, flat bool) string {
	if !flat {
		v = v.Field("function").Required()
	}
	return v.Field("name").Required().Text()
}
