package anthropic

import (
	"math"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// request is a generate.Request and how to send its answer.
type request struct {
	generate.Request
	stream bool
	stats  bool
	silent bool     // thinking is not to be shown
	left   []string // names of tools that were left out

	thread   *thread        // that the answer is added to; nil: none
	previous string         // the id of the answer that the thread continues; "": it is new
	done     func(*message) // called with the answer before the end of it is sent
}

// decode reads a request for a message, or with count one for its number of tokens, which
// has the same fields except those of the answer.
func decode(v *body.Value, count bool) (*request, error) {
	r := &request{Request: generate.Request{Parallel: true}}
	r.Model = v.Field("model").Text()
	limit := v.Field("max_tokens")
	if !count {
		limit.Required()
	}
	if n := limit.Int(1, math.MaxInt32); n != nil {
		r.MaxTokens = int(*n)
	}
	r.stream = v.Field("stream").True()
	r.Temperature, r.TopP = v.Field("temperature").Number(), v.Field("top_p").Number()
	if n := v.Field("top_k").Int(0, math.MaxInt32); n != nil {
		k := int(*n)
		r.TopK = &k
	}
	if stops := v.Field("stop_sequences"); !stops.Absent() {
		r.Stop = stops.Texts(generate.MaxStops)
	}
	v.Ignore("metadata", "service_tier", "cache_control", "inference_geo", "speed", "diagnostics")

	r.Variables = v.Field("chat_template_kwargs").Variables()
	for _, edit := range v.Field("context_management").Field("edits").List() {
		if kind := edit.Field("type").Required(); kind.Text() == "clear_thinking_20251015" && string(edit.Field("keep").Raw()) == `"all"` {
			continue
		} else if edit.IgnoreRest(); !kind.Absent() {
			kind.Drop("editing the context is not supported: leave the edit out, or set keep to all")
		}
	}
	r.thinking(v.Field("thinking"))
	r.output(v)
	r.extensions(v)
	r.tools(v)
	c := conversation{request: &r.Request, list: []chat.Message{}, addTool: r.tool}
	c.system(v.Field("system"))
	c.messages(v.Field("messages").Required())
	r.Messages, r.Prefill = c.list, c.prefill
	if t := v.Field("thread"); !t.Absent() && !count {
		t.Field("type").Required().OneOf("create", "continue")
		t.Ignore("previous_message_id")
		r.thread = newThread(v)
	}
	if thinks := r.Thinking == nil || *r.Thinking; thinks && r.Prefill != "" {
		v.Field("messages").Unsupported("an assistant message at the end is continued, which excludes thinking: end with a user message, or set thinking to disabled")
	}
	return r, v.Err()
}

// explain gives an error of Start the client's name of the field.
func (r *request) explain(err error) error {
	format := "output_config.format"
	if r.Grammar.IsZero() {
		format = "tools"
	}
	return generate.Rename(err, map[string]string{"response_format": format})
}

// thinking reads the options of thinking, which is off by default.
func (r *request) thinking(v *body.Value) {
	off, on := false, true
	r.Thinking = &off
	if v.Absent() {
		return
	}
	budget := v.Field("budget_tokens")
	switch v.Field("type").Required().OneOf("enabled", "disabled", "adaptive") {
	case "enabled":
		r.Thinking = &on
		budget.Required()
	case "adaptive":
		r.Thinking = nil
	}
	if n := budget.Int(1, math.MaxInt32); n != nil {
		if r.MaxThinking = int(*n); r.MaxTokens > 0 && r.MaxThinking >= r.MaxTokens {
			budget.Fault("%d, want less than max_tokens (%d)", *n, r.MaxTokens)
		}
	}
	r.silent = v.Field("display").OneOf("summarized", "omitted") == "omitted"
}

// output reads the format of the answer, which has an older and a newer field.
func (r *request) output(v *body.Value) {
	config := v.Field("output_config")
	r.Effort = config.Field("effort").OneOf("low", "medium", "high", "xhigh", "max")
	for _, f := range []*body.Value{config.Field("format"), v.Field("output_format")} {
		if f.Absent() {
			continue
		}
		f.Field("type").Required().OneOf("json_schema")
		if schema := f.Field("schema").Required(); schema.IsObject() {
			r.Grammar = grammar.Schema(schema.Raw())
		} else {
			schema.Fault("want a JSON schema, as an object")
		}
	}
}

// extensions reads our own fields.
func (r *request) extensions(v *body.Value) {
	own := v.Field("foretoken")
	r.stats, r.Trace = own.Field("stats").True(), own.Field("trace").True()
	r.CacheSalt = body.CacheSalt(v)
	if n := v.Field("seed").Int(0, 1<<53); n != nil {
		seed := uint64(*n)
		r.Seed = &seed
	}
	r.Depth = body.Depth(v)
}

// tools reads the tools and which of them must be called.
func (r *request) tools(v *body.Value) {
	for _, t := range v.Field("tools").List() {
		r.tool(t)
	}
	choice := v.Field("tool_choice")
	if choice.Absent() {
		return
	}
	name := choice.Field("name")
	if len(r.Tools) == 0 && v.Field("tools").Len() > 0 {
		if kind := choice.Field("type").Text(); kind != "auto" && kind != "none" {
			choice.Drop("no tool of the request is supported")
		}
		choice.IgnoreRest()
		return
	}
	switch choice.Field("type").Required().OneOf("auto", "any", "tool", "none") {
	case "any":
		r.Calls = generate.CallRequired
	case "tool":
		r.Calls, r.Named = generate.CallNamed, name.Required().Text()
		if slices.Contains(r.left, r.Named) {
			r.Calls, r.Named = generate.CallAuto, ""
			name.Drop("tools that the provider runs are not supported")
		} else if !slices.ContainsFunc(r.Tools, func(t chat.Tool) bool { return t.Name() == r.Named }) {
			name.Fault("there is no tool %.60q in tools", r.Named)
		}
	case "none":
		r.Calls = generate.CallNone
	}
	if r.Calls == generate.CallRequired && len(r.Tools) == 0 {
		choice.Fault("a tool call is required, but there are no tools")
	}
	r.Parallel = !choice.Field("disable_parallel_tool_use").True()
	r.Constrained = !r.Parallel // a grammar limits the answer to one call
}

// tool reads a tool and writes it in the format of templates. Tools that only the
// provider can run are left out.
func (r *request) tool(v *body.Value) {
	var known *clientTool
	if kind := v.Field("type"); !kind.Absent() && kind.Text() != "custom" {
		if known = clientToolOf(kind.Text()); known == nil {
			r.left = append(r.left, v.Field("name").Text())
			v.IgnoreRest()
			kind.Drop("%.60q is a tool that the provider runs, which is not supported: use tools that the client runs, with name, description and input_schema", kind.Text())
			return
		}
	}
	v.Ignore("cache_control", "eager_input_streaming")
	if d := v.Field("defer_loading"); d.True() {
		d.Drop("tool search is not supported: all tools are in the prompt")
	}
	for _, caller := range v.Field("allowed_callers").List() {
		if caller.Text() != "direct" {
			caller.Drop("the only supported caller is direct")
		}
	}
	name := v.Field("name").Required()
	if name.Text() == "" {
		name.Fault("the name is empty")
	}
	if known != nil {
		v.IgnoreRest() // sizes and counts, for the client that runs the tool
		r.addTool(v, known.describe(name.Text()))
		return
	}
	schema := v.Field("input_schema").Required()
	if !schema.IsObject() {
		schema.Fault("want a JSON schema, as an object")
	}
	r.Strict = v.Field("strict").True() || r.Strict

	var b strings.Builder
	b.WriteString(`{"type": "function", "function": {"name": `)
	b.Write(name.Raw())
	if d := v.Field("description"); d.Text() != "" {
		b.WriteString(`, "description": `)
		b.Write(d.Raw())
	}
	b.WriteString(`, "parameters": `)
	b.Write(schema.Raw())
	if examples := v.Field("input_examples"); !examples.Absent() && examples.Len() >= 0 {
		b.WriteString(`, "input_examples": `)
		b.Write(examples.Raw())
	}
	b.WriteString(`}}`)
	r.addTool(v, b.String())
}

// addTool adds a tool in the format of templates.
func (r *request) addTool(v *body.Value, text string) {
	var t chat.Tool
	raw := []byte(text)
	if !v.Admit(raw) {
		return
	}
	if err := t.UnmarshalJSON(raw); err != nil {
		v.Fault("%v", err)
		return
	}
	if slices.ContainsFunc(r.Tools, func(u chat.Tool) bool { return u.Name() == t.Name() }) && strings.HasPrefix(v.Path(), "messages") {
		return // it is added again
	}
	if len(r.Tools) == generate.MaxTools {
		v.Fault("more than %d tools", generate.MaxTools)
		return
	}
	r.Tools = append(r.Tools, t)
}
