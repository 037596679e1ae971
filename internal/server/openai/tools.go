package openai

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// defaultNamespace is the namespace of tools without one.
const defaultNamespace = "functions"

// origin is the client's name of a tool, which the model may know by another name.
type origin struct {
	namespace, name string
	custom          bool // its input is a text instead of arguments
}

// tools reads the tools of a request and which of them may be called. flat is the syntax of
// responses, which have no level "function".
func (q *request) tools(v *body.Value, flat bool) {
	list := v.Field("tools")
	for _, item := range list.List() {
		if !q.tool(item, "", flat) {
			return // v has the reason
		}
	}
	if parallel := v.Field("parallel_tool_calls").Bool(); parallel != nil {
		q.Parallel = *parallel
		q.Constrained = !*parallel // a grammar limits the answer to one call
	}
	choice := v.Field("tool_choice")
	if !choice.Absent() && len(q.Tools) == 0 {
		if text := string(choice.Raw()); text == `"none"` || text == `"auto"` {
			return // clients send it whether or not they have tools
		}
		choice.IgnoreRest()
		if list.Len() > 0 {
			choice.Drop("no tool of the request is supported")
		} else {
			choice.Fault("there are no tools")
		}
		return
	}
	q.toolChoice(choice, flat)
}

// tool adds a tool, or those of a namespace. Tools that only a provider can run are left out.
func (q *request) tool(v *body.Value, namespace string, flat bool) (ok bool) {
	if !v.IsObject() {
		v.Fault("want an object that describes a function")
		return false
	}
	switch kind := v.Field("type").Required(); {
	case kind.Absent():
		return false
	case kind.Text() == "function":
		return q.function(v, namespace, flat)
	case kind.Text() == "custom":
		return q.custom(v, namespace, flat)
	case kind.Text() == "namespace" && flat && namespace == "":
		v.Ignore("description") // which templates do not use
		name := v.Field("name").Required().Text()
		for _, item := range v.Field("tools").Required().List() {
			if !q.tool(item, name, true) {
				return false
			}
		}
		return true
	default:
		v.IgnoreRest()
		kind.Drop("tools of type %.40q are not supported: use functions, which the client runs", kind.Text())
		return true
	}
}

// add adds a tool under the model's name.
func (q *request) add(v *body.Value, t chat.Tool, from origin) bool {
	if _, ok := q.origins[t.Name()]; ok {
		v.Fault("two tools have the name %.80q", t.Name())
		return false
	}
	if len(q.Tools) == generate.MaxTools {
		v.Fault("more than %d tools", generate.MaxTools)
		return false
	}
	if q.origins == nil {
		q.origins = map[string]origin{}
	}
	q.origins[t.Name()] = from
	q.Tools = append(q.Tools, t)
	return true
}

// qualified is the model's name of a tool of a namespace.
func qualified(namespace, name string) string {
	if namespace == "" || namespace == defaultNamespace || strings.HasPrefix(name, namespace) {
		return name
	}
	return namespace + "__" + name
}

// described is a tool as templates are shown it.
type described struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
		Strict      bool            `json:"strict,omitempty"`
	} `json:"function"`
}

// function reads a function.
func (q *request) function(v *body.Value, namespace string, flat bool) bool {
	function := v
	if !flat {
		function = v.Field("function").Required()
	}
	own := described{Type: "function"}
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
	from := origin{namespace: namespace, name: f.Name}
	f.Name = qualified(namespace, f.Name)
	raw := v.Raw()
	if flat {
		raw = body.Marshal(own)
		// Tools whose loading is deferred are in the prompt at once.
		v.Ignore("defer_loading", "async", "allowed_callers", "output_schema")
	} else {
		v.IgnoreRest() // templates are shown all of it
		function.IgnoreRest()
	}
	var t chat.Tool
	if !v.Admit(raw) {
		return false
	}
	if err := t.UnmarshalJSON(raw); err != nil {
		v.Fault("%v", cause(err))
		return false
	}
	q.Strict = q.Strict || t.Strict()
	return q.add(v, t, from)
}

// custom reads a tool whose input is a text, perhaps of a grammar. To the model it is a function with
// one argument.
func (q *request) custom(v *body.Value, namespace string, flat bool) bool {
	tool := v
	if !flat {
		tool = v.Field("custom").Required()
	}
	v.Ignore("defer_loading", "async", "allowed_callers")
	own := described{Type: "function"}
	f := &own.Function
	from := origin{namespace: namespace, name: tool.Field("name").Required().Text(), custom: true}
	if from.name == "" {
		tool.Field("name").Fault("the name is empty")
		return false
	}
	f.Name, f.Description = qualified(namespace, from.name), tool.Field("description").Text()
	g, about := inputGrammar(tool.Field("format"))
	description := body.Marshal("The input, as it is." + about)
	f.Parameters = json.RawMessage(`{"type": "object", "properties": {"` + generate.InputName + `": {"type": "string", "description": ` + string(description) +
		`}}, "required": ["` + generate.InputName + `"], "additionalProperties": false}`)
	var t chat.Tool
	if err := t.UnmarshalJSON(body.Marshal(own)); err != nil {
		v.Fault("%v", cause(err))
		return false
	}
	if !g.IsZero() {
		if q.Inputs == nil {
			q.Inputs = map[string]grammar.Source{}
		}
		q.Inputs[f.Name] = g
	}
	return q.add(v, t, from)
}

// maxShown is the largest grammar that a model is shown, in bytes.
const maxShown = 8 << 10

// inputGrammar reads the grammar of a custom tool's text, zero for any text, and its description for
// the model. A grammar that cannot be compiled is left out.
func inputGrammar(v *body.Value) (source grammar.Source, about string) {
	if v.Absent() || v.Field("type").OneOf("text", "grammar") != "grammar" {
		return source, ""
	}
	g := v
	if inner := v.Field("grammar"); !inner.Absent() { // as chat completions have it
		g = inner
	}
	syntax, definition := g.Field("syntax").Required().OneOf("lark", "regex"), g.Field("definition").Required()
	var err error
	if source = grammar.Regexp(definition.Text()); syntax == "lark" {
		source, err = grammar.Lark(definition.Text())
	} else {
		err = generate.CheckExpression(definition.Text())
	}
	if len(definition.Text()) <= maxShown {
		about = " It is a text of this grammar (" + syntax + "):\n" + definition.Text()
	}
	if err != nil {
		g.Field("syntax").Drop("the input cannot be constrained to its definition: %v", err)
		return grammar.Source{}, about
	}
	return source, about
}

// toolChoice reads which tools may, or must, be called.
func (q *request) toolChoice(v *body.Value, flat bool) {
	calls := map[string]generate.Calls{"": generate.CallAuto, "auto": generate.CallAuto, "none": generate.CallNone, "required": generate.CallRequired}
	if v.Absent() || v.IsText() {
		q.Calls = calls[v.OneOf("auto", "none", "required")]
		return
	}
	switch kind := v.Field("type").Required(); kind.Text() {
	case "":
	case "function", "custom":
		q.Calls, q.Named = generate.CallNamed, chosen(v, flat)
	case "allowed_tools":
		list := v
		if !flat {
			list = v.Field("allowed_tools").Required()
		}
		q.Calls = calls[list.Field("mode").Required().OneOf("auto", "required")]
		q.allow(list.Field("tools").Required(), flat)
	default:
		v.IgnoreRest()
		kind.Drop("tools of type %.40q are not supported: use functions, which the client runs", kind.Text())
	}
}

// allow leaves only the tools of a list.
func (q *request) allow(v *body.Value, flat bool) {
	var allowed []chat.Tool
	for _, item := range v.List() {
		if kind := item.Field("type"); kind.Text() != "function" && kind.Text() != "custom" {
			item.IgnoreRest()
			kind.Drop("tools of type %.40q are not supported", kind.Text())
			continue
		}
		name := chosen(item, flat)
		at := slices.IndexFunc(q.Tools, func(t chat.Tool) bool { return t.Name() == name })
		if at < 0 {
			item.Fault("there is no tool %.80q", name)
			return
		}
		allowed = append(allowed, q.Tools[at])
	}
	if q.Tools = allowed; v.Len() == 0 {
		v.Fault("the list is empty")
	}
	if len(allowed) == 0 {
		q.Calls = generate.CallNone
	}
}

// chosen is the model's name of the chosen tool.
func chosen(v *body.Value, flat bool) string {
	if !flat {
		v = v.Field(v.Field("type").Text()).Required()
	}
	return qualified(v.Field("namespace").Text(), v.Field("name").Required().Text())
}
