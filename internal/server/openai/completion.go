package openai

import (
	"math"
	"net/http"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/sample"
)

const (
	maxPrompts       = 128 // of one request
	defaultMaxTokens = 16  // the protocol's default, of completions only
)

// textRequest is a request to continue texts, each of them on its own.
type textRequest struct {
	request
	requests []*generate.Request
	echo     bool // answers begin with their prompts
}

// complete reads a request to continue texts.
func (h *API) complete(c generate.Caller, v *body.Value) (*task, error) {
	q, err := readText(c, v)
	return &task{
		requests: q.requests, stream: q.stream, explain: q.explain,
		whole: func(runs []*generate.Run) (any, error) { return newText(runs, q).whole() },
		send:  func(runs []*generate.Run, w http.ResponseWriter) error { return newText(runs, q).stream(w) },
	}, err
}

// readText reads a request.
func readText(c generate.Caller, v *body.Value) (*textRequest, error) {
	q := &textRequest{request: newRequest(c, v)}
	q.choices(v)
	if q.limit(v, "max_tokens"); q.MaxTokens == 0 {
		q.MaxTokens = defaultMaxTokens
	}
	if n := v.Field("logprobs").Int(0, maxTopLogProbs); n != nil {
		q.LogProbs, q.TopLogProbs = true, int(*n)
	}
	if best := v.Field("best_of").Int(1, math.MaxInt32); best != nil && int(*best) != q.Choices {
		v.Field("best_of").Unsupported("choosing the best %[2]d of %[1]d answers is not supported: get all of them with n", *best, q.Choices)
	}
	if q.echo = v.Field("echo").True(); q.echo && q.LogProbs {
		v.Field("echo").Unsupported("log-probabilities of a prompt are not supported: leave out echo or logprobs")
	}
	if suffix := v.Field("suffix"); suffix.Text() != "" {
		suffix.Unsupported("a suffix is not supported: texts are continued at their end only")
	}
	q.guided(v)
	q.prompts(v.Field("prompt").Required())
	return q, v.Err()
}

// prompts reads a text, ids, or a list of either.
func (q *textRequest) prompts(v *body.Value) {
	if q.Seed == nil { // one for all, so that the reported seed reproduces all of them
		seed := sample.NewSeed()
		q.Seed = &seed
	}
	if first := v.First(); !first.IsText() && !first.IsList() {
		q.prompt(v)
		return
	}
	for _, p := range v.AtMost(maxPrompts).List() {
		q.prompt(p)
	}
}

// prompt reads a text or ids.
func (q *textRequest) prompt(v *body.Value) {
	r := q.Request
	if v.IsText() {
		r.Text = v.Text()
	} else if r.IDs = v.IDs(); r.IDs == nil {
		v.Fault("want a string, or a list of token ids")
	}
	q.requests = append(q.requests, &r)
}

// explain gives an error the client's name of the field.
func (q *textRequest) explain(err error) error {
	return rename(q.request.explain(err), map[string]string{"messages": "prompt"})
}

// textWriter writes the answers of all runs, which are numbered through.
type textWriter struct {
	runs []*generate.Run
	q    *textRequest
	head completion
}

// textAnswer is the content of an answer: in a stream, the part that was not sent yet.
type textAnswer struct {
	text     []byte
	logprobs *textLogProbs // nil: not asked for
	offset   int           // of its end, in characters
	tokens   []generate.Traced
}

// textLogProbs are the log-probabilities of an answer, token by token.
type textLogProbs struct {
	Tokens   []string             `json:"tokens"`
	LogProbs []float64            `json:"token_logprobs"`
	Top      []map[string]float64 `json:"top_logprobs"`
	Offsets  []int                `json:"text_offset"` // where the tokens begin, in characters
}

func newText(runs []*generate.Run, q *textRequest) *textWriter {
	run := runs[0]
	return &textWriter{runs: runs, q: q, head: completion{
		ID: run.ID("cmpl-"), Object: "text_completion", Created: run.Created.Unix(), Model: run.Name, Fingerprint: fingerprint(run.Model),
	}}
}

// begin returns the answers of a run before their first token.
func (c *textWriter) begin(run *generate.Run) []textAnswer {
	list := make([]textAnswer, len(run.Answers))
	for i := range list {
		a := &list[i]
		if c.q.echo {
			a.text = []byte(run.Request.Text)
			if run.Request.IDs != nil {
				a.text = []byte(run.Model.Decode(run.Request.IDs))
			}
		}
		a.clear(c.q)
	}
	return list
}

func (a *textAnswer) clear(q *textRequest) {
	if a.tokens = nil; q.LogProbs {
		a.logprobs = &textLogProbs{Tokens: []string{}, LogProbs: []float64{}, Top: []map[string]float64{}, Offsets: []int{}}
	}
}

// take makes a piece part of its answer.
func (c *textWriter) take(run *generate.Run, a *textAnswer, e generate.Event) {
	a.text = append(a.text, e.Text...)
	a.tokens, _ = c.q.token(run, e, a.tokens, nil)
	if a.logprobs != nil && spoken(run.Model, e) {
		a.offset += a.logprobs.add(run.Model, e.Token, a.offset)
	}
}

// add appends a token that begins at offset, and returns how many characters it has: a
// character belongs to the token with its first byte.
func (l *textLogProbs) add(m *foretoken.Model, t foretoken.Token, offset int) int {
	p := newTokenLogProb(m, t)
	l.Tokens = append(l.Tokens, p.Token)
	l.LogProbs = append(l.LogProbs, p.LogProb)
	l.Offsets = append(l.Offsets, offset)
	top := make(map[string]float64, len(p.Top))
	for _, alternative := range p.Top {
		if _, ok := top[alternative.Token]; !ok { // pieces of characters may look alike: the likelier stays
			top[alternative.Token] = alternative.LogProb
		}
	}
	l.Top = append(l.Top, top)
	n := 0
	for _, b := range p.Bytes {
		if b&0xC0 != 0x80 {
			n++
		}
	}
	return n
}

// choice is an answer in the protocol's format.
func (a *textAnswer) choice(index int, finish *foretoken.Finish) choice {
	text := string(a.text)
	one := choice{Index: index, Text: &text, Finish: finish}
	if a.logprobs != nil {
		one.LogProbs = a.logprobs
	}
	return one
}

// whole is all answers when they have ended.
func (c *textWriter) whole() (any, error) {
	var tokens []generate.Traced
	for n, run := range c.runs {
		answers := c.begin(run)
		for e, err := range run.Events() {
			if err != nil {
				return nil, err
			}
			if !e.Ended {
				c.take(run, &answers[e.Choice], e)
			}
		}
		for i := range answers {
			c.head.Choices = append(c.head.Choices, answers[i].choice(len(c.head.Choices), &run.Answers[i].Finish))
		}
		if n == 0 {
			tokens = answers[0].tokens
		}
	}
	c.head.Usage, c.head.Foretoken = newUsage(c.runs...), c.q.details(c.runs[0], tokens)
	return c.head, nil
}

// stream writes the answers as they come, prompt by prompt: all of
// them are generated at the same time, and buffered.
func (c *textWriter) stream(w http.ResponseWriter) error {
	out := body.Events(w)
	defer out.KeepAlive(keepAlive, func() { out.Comment("keep-alive") })()
	out.Flush()
	first, left := 0, len(c.runs)*len(c.runs[0].Answers)
	for _, run := range c.runs {
		answers := c.begin(run)
		for e, err := range run.Events() {
			if err != nil {
				return fail(out, err)
			}
			a := &answers[e.Choice]
			var finish *foretoken.Finish
			if !e.Ended {
				c.take(run, a, e)
			} else if finish, left = &run.Answers[e.Choice].Finish, left-1; left == 0 && !c.q.usage {
				c.head.Foretoken = c.q.details(c.runs[0], nil)
			}
			if e.Ended || len(a.text) > 0 && !e.More {
				out.Send("", c.head.chunk(a.choice(first+e.Choice, finish), a.tokens))
				a.text = nil
				a.clear(c.q)
			}
			if !e.More {
				out.Flush()
			}
		}
		first += len(answers)
	}
	if c.q.usage {
		c.head.Choices, c.head.Usage, c.head.Foretoken = []choice{}, newUsage(c.runs...), c.q.details(c.runs[0], nil)
		out.Send("", c.head)
	}
	out.Mark("[DONE]")
	out.Flush()
	return nil
}
