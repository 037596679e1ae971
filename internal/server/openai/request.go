package openai

import (
	"math"
	"strconv"

	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// maxTopLogProbs is the maximum number of alternatives per token.
const maxTopLogProbs = 20

// request is a generate.Request and how to send its answer.
type request struct {
	generate.Request
	stream  bool
	usage   bool // at the end of a stream
	stats   bool
	format  string            // the field with the format of the answer; "": the protocol's
	origins map[string]origin // of tools, by the model's names
}

// newRequest reads the common fields of all endpoints.
func newRequest(c generate.Caller, v *body.Value) request {
	q := request{Request: generate.Request{Caller: c, Model: v.Field("model").Text(), Parallel: true}}
	q.sampling(v)
	q.stream = v.Field("stream").True()
	o := v.Field("stream_options")
	if !o.Absent() && !q.stream {
		o.Fault("this needs stream set to true")
	}
	q.usage = o.Field("include_usage").True()
	o.Ignore("include_obfuscation")
	own := v.Field("foretoken")
	q.stats = own.Field("stats").True() || c.Stats
	q.Trace = own.Field("trace").True()
	q.CacheSalt = body.CacheSalt(v)
	v.Ignore("user", "metadata", "store", "service_tier", "safety_identifier",
		"prompt_cache_key", "prompt_cache_retention", "prompt_cache_options")
	return q
}

// sampling reads the sampling options. Package generate checks their ranges.
func (q *request) sampling(v *body.Value) {
	q.Temperature, q.TopP, q.MinP = v.Field("temperature").Number(), v.Field("top_p").Number(), v.Field("min_p").Number()
	q.XTCProbability, q.XTCThreshold = v.Field("xtc_probability").Number(), v.Field("xtc_threshold").Number()
	q.RepetitionPenalty = v.Field("repetition_penalty").Number()
	q.PresencePenalty, q.FrequencyPenalty = v.Field("presence_penalty").Number(), v.Field("frequency_penalty").Number()
	if k := v.Field("top_k").Int(-1, math.MaxInt32); k != nil {
		q.TopK = new(int)
		*q.TopK = int(max(*k, 0)) // other servers write -1 for all
	}
	if seed := v.Field("seed").Int(-1, math.MaxInt64); seed != nil && *seed >= 0 { // clients write -1 for any
		q.Seed = new(uint64)
		*q.Seed = uint64(*seed)
	}
	q.LogitBias = logitBias(v.Field("logit_bias"))
	if stop := v.Field("stop"); stop.IsText() {
		q.Stop = []string{stop.Text()}
	} else {
		q.Stop = stop.Texts(generate.MaxStops)
	}
	q.IgnoreEnd = v.Field("ignore_eos").True()
	q.Depth = body.Depth(v)
}

// logitBias reads an object from ids to biases of their logits.
func logitBias(v *body.Value) map[int32]float32 {
	if v.Absent() {
		return nil
	}
	if !v.IsObject() {
		v.Fault("want an object of token ids with numbers, as {\"42\": -100}")
		return nil
	}
	bias := map[int32]float32{}
	for key, item := range v.Fields() {
		id, err := strconv.ParseInt(key, 10, 32)
		x := item.Required().Number()
		switch {
		case x == nil:
		case err != nil:
			v.Fault("the name %.40q is not a token id", key)
		case *x < -100 || *x > 100:
			v.Fault("%v for token %d, want a number from -100 to 100", *x, id)
		default:
			bias[int32(id)] = float32(*x)
		}
	}
	return bias
}

// limit reads the maximum tokens of the answer, which may have several names.
func (q *request) limit(v *body.Value, names ...string) {
	for _, name := range names {
		f := v.Field(name)
		n := f.Int(1, math.MaxInt32)
		switch {
		case n == nil:
		case q.MaxTokens != 0 && q.MaxTokens != int(*n):
			f.Fault("%d, but another field sets the same limit to %d: leave one of them out", *n, q.MaxTokens)
		default:
			q.MaxTokens = int(*n)
		}
	}
}

// choices reads the number of answers.
func (q *request) choices(v *body.Value) {
	q.Choices = 1
	if n := v.Field("n").Int(1, generate.MaxChoices); n != nil {
		q.Choices = int(*n)
	}
}

// thinking reads the options of thinking; effort is the field of its effort.
func (q *request) thinking(v, effort *body.Value) {
	q.Effort = effort.OneOf("none", "minimal", "low", "medium", "high", "xhigh", "max")
	if q.Effort != "" {
		think := q.Effort != "none"
		q.Thinking = &think
	}
	if think := v.Field("enable_thinking").Bool(); think != nil {
		q.Thinking = think
	}
	for _, name := range []string{"max_thinking_tokens", "thinking_budget"} {
		if n := v.Field(name).Int(1, math.MaxInt32); n != nil {
			q.MaxThinking = int(*n)
		}
	}
	q.Variables = v.Field("chat_template_kwargs").Variables()
}

// format reads a response format; schema returns the field of a JSON schema, which differs
// between endpoints.
func format(v *body.Value, schema func() *body.Value) grammar.Source {
	switch v.Field("type").Required().OneOf("text", "json_object", "json_schema") {
	case "json_object":
		if s := v.Field("schema"); !s.Absent() { // some clients have it here
			return schemaGrammar(s)
		}
		return grammar.Object()
	case "json_schema":
		return schemaGrammar(schema().Required())
	}
	return grammar.Source{}
}

// schemaGrammar is the grammar of a JSON schema.
func schemaGrammar(v *body.Value) grammar.Source {
	if !v.IsObject() {
		v.Fault("want a JSON schema, which is an object")
		return grammar.Source{}
	}
	v.IgnoreRest()
	return grammar.Schema(v.Raw())
}

// guided reads grammars under the names that vLLM has for them.
func (q *request) guided(v *body.Value) {
	for _, name := range []string{"guided_json", "guided_regex", "guided_choice"} {
		f := v.Field(name)
		if f.Absent() {
			continue
		}
		if !q.Grammar.IsZero() {
			f.Fault("the request has two formats for the answer: leave one out")
		}
		q.format = name
		switch name {
		case "guided_json":
			q.Grammar = schemaGrammar(f)
		case "guided_regex":
			q.Grammar = grammar.Regexp(f.Text())
		case "guided_choice":
			if texts := f.Texts(body.MaxValues); len(texts) > 0 {
				q.Grammar = grammar.Choice(texts...)
			} else {
				f.Fault("want at least one string")
			}
		}
	}
}
