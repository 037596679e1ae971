package openai

import (
	"math"
	"net/http"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/turn"
	"github.com/foretoken/foretoken/sample"
)

const (
	maxPrompts       = 128 // of one request
	defaultMaxTokens = 16  // the protocol's, of completions only
)

// textRequest is a request to continue texts, each of them on its own.
type textRequest struct {
	request
	asks []*turn.Ask
	echo bool // answers begin with their prompts
}

// complete continues texts.
func (s *service) complete(w http.ResponseWriter, r *http.Request) error {
	q, err := readText(r, body.Read(w, r))
	if err != nil {
		turn.Report(r.Context(), nil, err)
		return err
	}
	err = s.with(r.Context(), q.asks, func(turns []*turn.Turn) (fault, err error) {
		c := newText(turns, q)
		if q.stream {
			return c.stream(w), nil
		}
		return nil, c.whole(w)
	})
	return rename(err, map[string]string{"messages": "prompt"})
}

// readText reads a request.
func readText(r *http.Request, v *body.Value) (*textRequest, error) {
	q := &textRequest{request: newRequest(r, v)}
	q.choices(v)
	if q.limit(v, "max_tokens"); q.ask.MaxTokens == 0 {
		q.ask.MaxTokens = defaultMaxTokens
	}
	if n := v.Field("logprobs").Int(0, maxTopLogProbs); n != nil {
		q.ask.LogProbs, q.ask.TopLogProbs = true, int(*n)
	}
	if best := v.Field("best_of").Int(1, math.MaxInt32); best != nil && int(*best) != q.ask.Choices {
		v.Field("best_of").Unsupported("%d answers to choose %d from: ask for all of them with n", *best, q.ask.Choices)
	}
	if q.echo = v.Field("echo").True(); q.echo && q.ask.LogProbs {
		v.Field("echo").Unsupported("log-probabilities of a prompt are not computed: leave out echo or logprobs")
	}
	if suffix := v.Field("suffix"); suffix.Text() != "" {
		suffix.Unsupported("texts are continued at their end only")
	}
	q.guided(v)
	q.prompts(v.Field("prompt").Required())
	return q, v.Err()
}

// prompts reads a text, ids, or a list of either.
func (q *textRequest) prompts(v *body.Value) {
	list := []*body.Value{v}
	if v.IsList() {
		if items := v.List(); len(items) > 0 && (items[0].IsText() || items[0].IsList()) {
			list = items
		}
	}
	if len(list) > maxPrompts {
		v.Fault("%d prompts, want at most %d", len(list), maxPrompts)
		return
	}
	if q.ask.Seed == nil { // one for all, so that the one that is reported gives all of them again
		seed := sample.NewSeed()
		q.ask.Seed = &seed
	}
	for _, p := range list {
		ask := q.ask
		if p.IsText() {
			ask.Text = p.Text()
		} else if ask.IDs = ids(p); ask.IDs == nil {
			p.Fault("want a text, or the ids of one")
		}
		q.asks = append(q.asks, &ask)
	}
}

// ids reads a list of token ids; nil if there are none.
func ids(v *body.Value) []int32 {
	var list []int32
	for _, item := range v.List() {
		if id := item.Required().Int(0, math.MaxInt32); id != nil {
			list = append(list, int32(*id))
		}
	}
	return list
}

// textWriter writes the answers of turns, which are numbered through.
type textWriter struct {
	turns []*turn.Turn
	q     *textRequest
	head  completion
}

// textAnswer is what is known of an answer: of a stream, what was not sent yet.
type textAnswer struct {
	text     []byte
	logprobs *textLogProbs // nil: not asked for
	offset   int           // of its end, in characters
	tokens   []turn.Traced
}

// textLogProbs are the log-probabilities of an answer, token by token.
type textLogProbs struct {
	Tokens   []string             `json:"tokens"`
	LogProbs []float64            `json:"token_logprobs"`
	Top      []map[string]float64 `json:"top_logprobs"`
	Offsets  []int                `json:"text_offset"` // of the tokens' beginnings, in characters
}

func newText(turns []*turn.Turn, q *textRequest) *textWriter {
	t := turns[0]
	return &textWriter{turns: turns, q: q, head: completion{
		ID: body.NewID("cmpl-"), Object: "text_completion", Created: t.Created.Unix(), Model: t.Name, Fingerprint: fingerprint(t.Model),
	}}
}

// begin returns the answers of a turn before their first token.
func (c *textWriter) begin(t *turn.Turn) []textAnswer {
	list := make([]textAnswer, len(t.Answers))
	for i := range list {
		a := &list[i]
		if c.q.echo {
			a.text = []byte(t.Ask.Text)
			if t.Ask.IDs != nil {
				a.text = []byte(t.Model.Decode(t.Ask.IDs))
			}
		}
		a.clear(c.q)
	}
	return list
}

func (a *textAnswer) clear(q *textRequest) {
	if a.tokens = nil; q.ask.LogProbs {
		a.logprobs = &textLogProbs{Tokens: []string{}, LogProbs: []float64{}, Top: []map[string]float64{}, Offsets: []int{}}
	}
}

// take makes a piece part of its answer.
func (c *textWriter) take(t *turn.Turn, a *textAnswer, e turn.Event) {
	a.text = append(a.text, e.Text...)
	a.tokens, _ = c.q.token(t, e, a.tokens, nil)
	if a.logprobs != nil && spoken(t.Model, e) {
		a.offset += a.logprobs.add(t.Model, e.Token, a.offset)
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

// choice is an answer as it is sent.
func (a *textAnswer) choice(index int, finish *foretoken.Finish) choice {
	text := string(a.text)
	one := choice{Index: index, Text: &text, Finish: finish}
	if a.logprobs != nil {
		one.LogProbs = a.logprobs
	}
	return one
}

// whole writes all answers when they have ended.
func (c *textWriter) whole(w http.ResponseWriter) error {
	var tokens []turn.Traced
	for n, t := range c.turns {
		answers := c.begin(t)
		for e, err := range t.Events() {
			if err != nil {
				return err
			}
			if !e.Ended {
				c.take(t, &answers[e.Choice], e)
			}
		}
		for i := range answers {
			c.head.Choices = append(c.head.Choices, answers[i].choice(len(c.head.Choices), &t.Answers[i].Finish))
		}
		if n == 0 {
			tokens = answers[0].tokens
		}
	}
	c.head.Usage, c.head.Foretoken = newUsage(c.turns...), c.q.details(c.turns[0], tokens)
	body.JSON(w, http.StatusOK, c.head)
	return nil
}

// stream writes the answers as they come, those of one prompt after those of another: all of
// them are being computed, and wait to be read.
func (c *textWriter) stream(w http.ResponseWriter) error {
	out := body.Events(w)
	defer out.KeepAlive(keepAlive, func() { out.Comment("still here") })()
	out.Flush()
	first, left := 0, len(c.turns)*len(c.turns[0].Answers)
	for _, t := range c.turns {
		answers := c.begin(t)
		for e, err := range t.Events() {
			if err != nil {
				return fail(out, err)
			}
			a := &answers[e.Choice]
			var finish *foretoken.Finish
			if !e.Ended {
				c.take(t, a, e)
			} else if finish, left = &t.Answers[e.Choice].Finish, left-1; left == 0 && !c.q.usage {
				c.head.Foretoken = c.q.details(c.turns[0], nil)
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
		c.head.Choices, c.head.Usage, c.head.Foretoken = []choice{}, newUsage(c.turns...), c.q.details(c.turns[0], nil)
		out.Send("", c.head)
	}
	out.Mark("[DONE]")
	out.Flush()
	return nil
}
