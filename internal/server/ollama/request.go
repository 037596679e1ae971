package ollama

import (
	"math"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/media"
)

// request is a generate.Request and how to send its answer.
type request struct {
	generate.Request
	chat    bool // it has messages, and so has the answer
	empty   bool // nothing is to be answered: the model is to be loaded
	stream  bool
	stats   bool
	context int // tokens of context that the client needs; 0: any
}

// decodeChat reads a conversation.
func (h *handler) decodeChat(v *body.Value) (*request, error) {
	q := h.decode(v)
	q.chat = true
	messages := v.Field("messages").AtMost(generate.MaxMessages)
	q.Messages = make([]chat.Message, 0, messages.Len())
	for _, m := range messages.List() {
		q.Messages = append(q.Messages, q.message(m))
	}
	q.prefill(v)
	if tools := v.Field("tools").AtMost(generate.MaxTools); tools.Len() > 0 && tools.Admit(tools.Raw()) {
		var err error
		if q.Tools, err = chat.DecodeTools(tools.Raw()); err != nil {
			tools.Fault("%v", err)
		}
	}
	return q.checked(v, len(q.Messages) == 0 && q.Prefill == "")
}

// prefill makes a last message of the assistant the prefill of its answer.
func (q *request) prefill(v *body.Value) {
	n := len(q.Messages) - 1
	if n < 0 || q.Messages[n].Role != "assistant" || len(q.Messages[n].ToolCalls) > 0 {
		return
	}
	if q.Thinking != nil && *q.Thinking {
		v.Field("think").Unsupported("an assistant message at the end is continued, which excludes thinking: end with a user message")
	}
	off := false
	q.Thinking = &off
	text, ok := q.Messages[n].Content.Text()
	if !ok {
		v.Field("messages").Fault("an assistant message at the end is continued, which excludes images: end with a user message")
	}
	q.Prefill = text
	q.Messages = q.Messages[:n]
}

// decodeGenerate reads a prompt.
func (h *handler) decodeGenerate(v *body.Value) (*request, error) {
	q := h.decode(v)
	prompt, system := v.Field("prompt").Text(), v.Field("system").Text()
	for name, remedy := range map[string]string{
		"suffix":   "filling in text before a suffix is not supported: leave it out",
		"template": "templates in requests are not supported: use raw, with the final prompt",
	} {
		if f := v.Field(name); f.Text() != "" {
			f.Unsupported("%s", remedy)
		}
	}
	if c := v.Field("context"); c.Len() > 0 {
		c.Unsupported("conversations as token ids are not supported: use /api/chat with messages")
	}
	content := q.content(v, prompt)
	empty := prompt == "" && len(q.Media) == 0
	if raw := v.Field("raw"); raw.True() {
		if q.Text = prompt; system != "" {
			v.Field("system").Fault("this field cannot be combined with raw, which sends only the prompt to the model")
		}
		if len(q.Media) > 0 {
			v.Field("images").Fault("this field cannot be combined with raw, which sends only the prompt to the model")
		}
	} else if !empty {
		if system != "" {
			q.Messages = append(q.Messages, chat.Message{Role: "system", Content: chat.Text(system)})
		}
		q.Messages = append(q.Messages, chat.Message{Role: "user", Content: content})
	}
	return q.checked(v, empty)
}

// checked is the request after all of it was read.
func (q *request) checked(v *body.Value, empty bool) (*request, error) {
	if q.empty = empty; empty {
		if keep := v.Field("keep_alive"); unloads(keep) {
			keep.Unsupported("unloading a model by a request is not supported: see foretoken serve --keep-alive and --models-memory")
		}
	}
	return q, v.Err()
}

// names are this protocol's names of fields that others name differently.
var names = map[string]string{
	"response_format": "format", "max_tokens": "options.num_predict", "repetition_penalty": "options.repeat_penalty",
	"temperature": "options.temperature", "top_p": "options.top_p", "min_p": "options.min_p",
	"presence_penalty": "options.presence_penalty", "frequency_penalty": "options.frequency_penalty",
}

// explain gives an error of Start the client's name of the field.
func (q *request) explain(err error) error {
	e := generate.Rename(err, names)
	switch {
	case e.Param == "messages" && !q.chat:
		e.Param = "prompt"
	case e.Param == "format" && q.Grammar.IsZero():
		e.Param = "tools"
	}
	return e
}

// unloads reports whether a keep_alive is zero: 0, or "0" with a unit.
func unloads(keep *body.Value) bool {
	text := string(keep.Raw())
	return text != "" && strings.Trim(text, `"0.smh`) == ""
}

// decode reads the common fields of both kinds of requests.
func (h *handler) decode(v *body.Value) *request {
	q := &request{Request: generate.Request{Parallel: true}, stream: true}
	q.Model = h.modelOf(v)
	if s := v.Field("stream").Bool(); s != nil {
		q.stream = *s
	}
	v.Ignore("keep_alive", "truncate", "shift")
	if f := v.Field("logprobs"); f.True() {
		f.Drop("log-probabilities are not supported here: use /v1/chat/completions")
	}
	v.Ignore("top_logprobs")
	switch f := v.Field("format"); {
	case f.IsObject():
		q.Grammar = grammar.Schema(f.Raw())
	case f.IsText() && f.Text() == "":
	case f.OneOf("json") == "json":
		q.Grammar = grammar.Object()
	}
	if think := v.Field("think"); think.IsText() {
		on := true
		q.Thinking, q.Effort = &on, think.OneOf("low", "medium", "high", "xhigh", "max")
	} else {
		q.Thinking = think.Bool()
	}
	q.Variables = v.Field("chat_template_kwargs").Variables()
	own := v.Field("foretoken")
	q.stats, q.Trace = own.Field("stats").True(), own.Field("trace").True()
	q.CacheSalt = body.CacheSalt(v)
	q.options(v.Field("options"))
	return q
}

// modelOf is the model that a request names, in the current or the former field, without the
// tag that clients add to a name without one.
func (h *handler) modelOf(v *body.Value) string {
	name := v.Field("model").Text()
	if old := v.Field("name").Text(); name == "" {
		name = old
	}
	if plain, ok := strings.CutSuffix(name, ":latest"); ok && !slices.Contains(h.service.Library.Names(), h.service.Resolve(name)) {
		return plain
	}
	return name
}

// options reads the sampling options.
func (q *request) options(v *body.Value) {
	if n := v.Field("num_predict").Int(math.MinInt32, math.MaxInt32); n != nil && *n > 0 { // below 0: to the end
		q.MaxTokens = int(*n)
	}
	q.Temperature, q.TopP, q.MinP = v.Field("temperature").Number(), v.Field("top_p").Number(), v.Field("min_p").Number()
	q.RepetitionPenalty = v.Field("repeat_penalty").Number()
	q.PresencePenalty, q.FrequencyPenalty = v.Field("presence_penalty").Number(), v.Field("frequency_penalty").Number()
	q.TopK = whole(v.Field("top_k"), 0)
	if n := v.Field("seed").Int(math.MinInt64, math.MaxInt64); n != nil && *n >= 0 { // below 0: any
		seed := uint64(*n)
		q.Seed = &seed
	}
	switch last := whole(v.Field("repeat_last_n"), -1); { // 0: off, -1: all
	case last == nil:
	case *last == 0:
		one := 1.0
		q.RepetitionPenalty = &one
	default:
		q.RepetitionWindow = last
	}
	stop := v.Field("stop")
	if stop.IsText() {
		q.Stop = []string{stop.Text()}
	} else {
		q.Stop = stop.Texts(generate.MaxStops)
	}
	if n := whole(v.Field("num_ctx"), 0); n != nil {
		q.context = *n
	}
	q.Depth = body.Depth(v)
	for name, off := range map[string]float64{"mirostat": 0, "typical_p": 1, "tfs_z": 1} {
		if f := v.Field(name); !f.Absent() && *orElse(f.Number(), off) != off {
			f.Drop("this sampling option is not supported: set it to %v", off)
		}
	}
	v.Ignore("mirostat_tau", "mirostat_eta") // which say nothing while mirostat is off
	// Settings of memory and devices of Ollama's own engine.
	v.Ignore("num_keep", "num_batch", "num_gpu", "main_gpu", "low_vram", "use_mmap", "use_mlock", "num_thread", "numa", "f16_kv", "vocab_only")
}

// orElse is x, or y if x is nil.
func orElse(x *float64, y float64) *float64 {
	if x == nil {
		return &y
	}
	return x
}

// whole is a whole number of at least low, or nil.
func whole(v *body.Value, low int64) *int {
	n := v.Int(low, math.MaxInt32)
	if n == nil {
		return nil
	}
	i := int(*n)
	return &i
}

// message reads one message.
func (q *request) message(v *body.Value) chat.Message {
	m := chat.Message{
		Role:       v.Field("role").Required().OneOf("system", "user", "assistant", "tool"),
		Content:    q.content(v, v.Field("content").Text()),
		Name:       v.Field("tool_name").Text(),
		ToolCallID: v.Field("tool_call_id").Text(),
	}
	if m.Name == "" {
		m.Name = v.Field("name").Text()
	}
	if m.Role == "system" && len(m.Content.Media()) > 0 {
		v.Field("images").Fault("images are not allowed in system messages: put them into a user message")
	}
	if t := v.Field("thinking").Text(); t != "" {
		m.ReasoningContent = &t
	}
	for _, c := range v.Field("tool_calls").List() {
		c.Ignore("type")
		f := c.Field("function").Required()
		f.Ignore("index", "description")
		call := chat.ToolCall{ID: c.Field("id").Text(), Name: f.Field("name").Required().Text()}
		if arguments := f.Field("arguments"); arguments.IsObject() && arguments.Admit(arguments.Raw()) {
			var err error
			if call.Arguments, err = chat.ParseArguments(arguments.Raw()); err != nil {
				arguments.Fault("%v", err)
			}
		} else if !arguments.Absent() {
			arguments.Fault("want the arguments as an object")
		}
		m.ToolCalls = append(m.ToolCalls, call)
	}
	return m
}

// content is a text behind the images that come with it.
func (q *request) content(v *body.Value, text string) chat.Content {
	var parts media.Parts
	images := v.Field("images")
	if !images.Absent() && !images.IsList() {
		images.Fault("want a list of images as base64 strings")
		return chat.Text(text)
	}
	for _, f := range images.List() {
		parts.Media(media.Base64(&q.Request, f))
	}
	parts.Text(text)
	return parts.Content()
}
