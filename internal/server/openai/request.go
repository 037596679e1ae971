package openai

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"

	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/jinja"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/turn"
)

// maxTopLogProbs is the most alternatives that may be asked for per token.
const maxTopLogProbs = 20

// request is what a client asks for: a turn, and how to send its answer.
type request struct {
	ask     turn.Ask
	stream  bool
	usage   bool // at the end of a stream, too
	receipt bool
	origins map[string]origin // of tools, by the name that the model knows them by
}

// newRequest reads what requests of all endpoints have in common.
func newRequest(r *http.Request, v *body.Value) request {
	q := request{ask: turn.Ask{Model: v.Field("model").Text(), Parallel: true}}
	q.sampling(v)
	q.stream = v.Field("stream").True()
	o := v.Field("stream_options")
	if !o.Absent() && !q.stream {
		o.Fault("these are for streams, and stream is not true")
	}
	q.usage = o.Field("include_usage").True()
	o.Ignore("include_obfuscation")
	own := v.Field("foretoken")
	q.receipt = own.Field("receipt").True() || body.WantsStats(r)
	q.ask.Trace = own.Field("trace").True()
	q.ask.CacheSalt = body.CacheSalt(v)
	v.Ignore("user", "metadata", "store", "service_tier", "safety_identifier",
		"prompt_cache_key", "prompt_cache_retention", "prompt_cache_options")
	return q
}

// sampling reads how tokens are to be chosen. Ranges are for package turn to check.
func (q *request) sampling(v *body.Value) {
	a := &q.ask
	a.Temperature, a.TopP, a.MinP = v.Field("temperature").Number(), v.Field("top_p").Number(), v.Field("min_p").Number()
	a.XTCProbability, a.XTCThreshold = v.Field("xtc_probability").Number(), v.Field("xtc_threshold").Number()
	a.RepetitionPenalty = v.Field("repetition_penalty").Number()
	a.PresencePenalty, a.FrequencyPenalty = v.Field("presence_penalty").Number(), v.Field("frequency_penalty").Number()
	if k := v.Field("top_k").Int(-1, math.MaxInt32); k != nil {
		a.TopK = new(int)
		*a.TopK = int(max(*k, 0)) // other servers write -1 for all
	}
	if seed := v.Field("seed").Int(-1, math.MaxInt64); seed != nil && *seed >= 0 { // clients write -1 for any
		a.Seed = new(uint64)
		*a.Seed = uint64(*seed)
	}
	a.LogitBias = logitBias(v.Field("logit_bias"))
	if stop := v.Field("stop"); stop.IsText() {
		a.Stop = []string{stop.Text()}
	} else {
		a.Stop = stop.Texts()
	}
	if n := len(a.Stop); n > turn.MaxStops {
		v.Field("stop").Fault("%d texts, want at most %d", n, turn.MaxStops)
	}
	a.IgnoreEnd = v.Field("ignore_eos").True()
	if n := v.Field("mtp_depth").Int(math.MinInt32, math.MaxInt32); n != nil {
		a.SetDepth(int(*n))
	}
}

// logitBias reads an object from ids to what is added to their logits.
func logitBias(v *body.Value) map[int32]float32 {
	if v.Absent() {
		return nil
	}
	var entries map[string]float64
	if err := json.Unmarshal(v.Raw(), &entries); err != nil {
		v.Fault("want an object of token ids with numbers, as {\"42\": -100}")
		return nil
	}
	v.IgnoreRest()
	bias := make(map[int32]float32, len(entries))
	for key, x := range entries {
		id, err := strconv.ParseInt(key, 10, 32)
		switch {
		case err != nil:
			v.Fault("the name %.40q is not the id of a token", key)
		case x < -100 || x > 100:
			v.Fault("%v for token %d, want a number from -100 to 100", x, id)
		}
		bias[int32(id)] = float32(x)
	}
	return bias
}

// limit reads the most tokens of the answer, which may go by several names.
func (q *request) limit(v *body.Value, names ...string) {
	for _, name := range names {
		f := v.Field(name)
		n := f.Int(1, math.MaxInt32)
		switch {
		case n == nil:
		case q.ask.MaxTokens != 0 && q.ask.MaxTokens != int(*n):
			f.Fault("%d, but there is another limit of %d under another name: leave one of them out", *n, q.ask.MaxTokens)
		default:
			q.ask.MaxTokens = int(*n)
		}
	}
}

// choices reads how many answers are wanted.
func (q *request) choices(v *body.Value) {
	q.ask.Choices = 1
	if n := v.Field("n").Int(1, turn.MaxChoices); n != nil {
		q.ask.Choices = int(*n)
	}
}

// thinking reads what is said about thinking; effort is the field that has its effort.
func (q *request) thinking(v, effort *body.Value) {
	a := &q.ask
	a.Effort = effort.OneOf("none", "minimal", "low", "medium", "high", "xhigh", "max")
	if a.Effort != "" {
		think := a.Effort != "none"
		a.Thinking = &think
	}
	if think := v.Field("enable_thinking").Bool(); think != nil {
		a.Thinking = think
	}
	for _, name := range []string{"max_thinking_tokens", "thinking_budget"} {
		if n := v.Field(name).Int(1, math.MaxInt32); n != nil {
			a.MaxThinking = int(*n)
		}
	}
	kwargs := v.Field("chat_template_kwargs")
	if kwargs.Absent() {
		return
	}
	variables, err := jinja.DecodeJSON(kwargs.Raw())
	if err != nil || !kwargs.IsObject() {
		kwargs.Fault("want an object with variables of the chat template")
		return
	}
	kwargs.IgnoreRest()
	a.Variables = variables.Map().Any()
}

// format reads the form of an answer; schema is where a JSON schema is, which differs
// between endpoints.
func format(v *body.Value, schema func() *body.Value) grammar.Source {
	switch v.Field("type").Required().OneOf("text", "json_object", "json_schema") {
	case "json_object":
		if s := v.Field("schema"); !s.Absent() { // some clients have it here
			return schemaForm(s)
		}
		return grammar.Object()
	case "json_schema":
		return schemaForm(schema().Required())
	}
	return grammar.Source{}
}

// schemaForm is the form that a JSON schema describes.
func schemaForm(v *body.Value) grammar.Source {
	if !v.IsObject() {
		v.Fault("want a JSON schema, which is an object")
		return grammar.Source{}
	}
	v.IgnoreRest()
	return grammar.Schema(v.Raw())
}

// guided reads forms under the names that other servers have for them.
func (q *request) guided(v *body.Value) {
	for _, name := range []string{"guided_json", "guided_regex", "guided_choice"} {
		f := v.Field(name)
		if f.Absent() {
			continue
		}
		if !q.ask.Form.IsZero() {
			f.Fault("another form of the answer is asked for, and there can be one")
		}
		switch name {
		case "guided_json":
			q.ask.Form = schemaForm(f)
		case "guided_regex":
			q.ask.Form = grammar.Regexp(f.Text())
		case "guided_choice":
			if texts := f.Texts(); len(texts) > 0 {
				q.ask.Form = grammar.Choice(texts...)
			} else {
				f.Fault("want at least one text")
			}
		}
	}
}
