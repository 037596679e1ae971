package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/drafter"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/mtp"
)

// maxDepth is the maximum depth that is examined.
const maxDepth = measure.AgreementDepth

// ExamineOptions say how to examine. The zero value is the default.
type ExamineOptions struct {
	Prompts  []string          // prompts to continue; nil: built-in ones
	Tokens   int               // of each continuation, more than the maximum depth; 0: 64
	Limit    time.Duration     // approximate limit, at least the time it needs; 0: a minute
	Progress func(what string) // is called with the next step; may be nil
	Device   string            // for people; empty: the device's name

	Drafter     *drafter.Drafter // in a file of its own, to be measured too; nil: none
	DrafterName string           // the user's name of it
}

// Report is the result of an examination.
type Report struct {
	*Facts
	Device     string         `json:"device"`
	Perplexity float64        `json:"perplexity"` // on the built-in text
	Positions  int            `json:"positions"`  // at which drafts were made
	Trials     []trial        `json:"acceptance"`
	Images     *ImageTest     `json:"sight,omitempty"` // nil if it takes no images
	Costs      *measure.Costs `json:"costs"`
	Speeds     []speed        `json:"speeds"`
	Best       speed          `json:"best"` // of Speeds; depth 0 is one of the choices
	Drafter    *drafterReport `json:"drafter,omitempty"`

	Verdict  string    `json:"verdict"`  // one sentence
	Findings []Problem `json:"findings"` // faults found by measuring, with remedies
	Healthy  bool      `json:"healthy"`  // no fault of the weights
}

// trial is a way to run the head, with the acceptance of its draft tokens.
type trial struct {
	Name  string    `json:"name"`
	Kind  string    `json:"kind"`  // hidden, norms, fc or vocabulary: the difference
	Used  bool      `json:"used"`  // the model runs this way
	Rates []float64 `json:"rates"` // shares of positions whose first 1, 2, … draft tokens are all accepted

	cause      string    // the damage that this undoes; of hidden: the reason why it is used
	remedy     string    // "": that of the kind
	won, lost  int       // positions where more draft tokens are accepted in this one, and in the used one
	before     []float64 // Rates of the used one on the same texts
	agreement  *measure.Agreement
	draftVocab int // of vocabulary: frequent tokens
}

// compare compares the trial with the used way on the same texts, and returns the number of positions.
func (t *trial) compare(used *measure.Agreement) (positions int) {
	t.won, t.lost = t.agreement.Compare(used)
	t.Rates, positions = t.agreement.Rates()
	t.before, _ = used.Rates()
	t.before = t.before[:len(t.Rates)]
	return positions
}

// speed is the expected result of a depth on this machine.
type speed struct {
	Depth          int     `json:"depth"`
	DraftVocab     int     `json:"draft_vocab"` // frequent tokens in the draft vocabulary
	TokensPerRound float64 `json:"tokens_per_round"`
	Speedup        float64 `json:"speedup"` // tokens per second as a multiple of plain decoding
}

// Examine measures a loaded model. facts are those of its checkpoint, which are loadable.
// The model and the backend must have no other users meanwhile. ctx ends it early.
func Examine(ctx context.Context, facts *Facts, m model.Model, b backend.Backend, o ExamineOptions) (*Report, error) {
	if !facts.Loadable || facts.tok == nil {
		return nil, errors.New("doctor: a model that cannot be loaded cannot be measured")
	}
	if o.Prompts == nil {
		o.Prompts = prompts
	}
	if o.Tokens == 0 {
		o.Tokens = 64
	}
	if o.Limit == 0 {
		o.Limit = time.Minute
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	r := &Report{Facts: facts, Device: cmp.Or(o.Device, b.Name()), Trials: []trial{}, Findings: []Problem{}}
	e := &examination{runner: newRunner(ctx, m, b, facts.tok.Size()), Report: r, o: o, start: time.Now()}
	if err := e.run(); err != nil {
		return nil, err
	}
	r.judge()
	return r, nil
}

// examination is a running Examine.
type examination struct {
	*runner
	*Report
	o     ExamineOptions
	start time.Time
	texts []*measure.Text

	drafter *mtp.Drafter // nil without a head
}

// by is when that share of the time limit is over.
func (e *examination) by(share float64) time.Time {
	return e.start.Add(time.Duration(share * float64(e.o.Limit)))
}

func (e *examination) run() (err error) {
	e.o.Progress("measuring perplexity")
	maxTokens := min(e.m.Info().Context, 1024)
	ids := e.tok.Encode(prose)
	ids = ids[:min(len(ids), maxTokens)]
	if len(ids) < 2 {
		return fmt.Errorf("doctor: the tokenizer encodes a page of text as %d tokens: %s", len(ids), otherTokenizer)
	}
	if i := slices.IndexFunc(ids, func(id int32) bool { return int(id) >= e.vocab }); i >= 0 {
		return fmt.Errorf("doctor: the tokenizer has token %d, but the model has only %d: %s", ids[i], e.vocab, otherTokenizer)
	}
	if e.Perplexity, err = e.perplexity(ids); err != nil {
		return err
	}
	if err := e.testImages(); err != nil {
		return err
	}
	sizes := []int{e.m.Info().Vocab}
	if h := e.m.Head(); h != nil {
		e.drafter = mtp.New(h, mtp.Options{Vocab: e.m.Info().Vocab})
		if sizes, err = e.head(maxTokens); err != nil {
			return err
		}
	}
	e.o.Progress("measuring costs")
	var d spec.Drafter
	if e.drafter != nil {
		d = e.drafter
	}
	seq, err := measure.Open(e.m, d, e.pool, e.vocab)
	if err != nil {
		return err
	}
	defer seq.Close()
	if e.Costs, err = seq.Costs(e.ctx, ids, 1+maxDepth, sizes, e.by(1)); err != nil {
		return err
	}
	e.speeds()
	if e.o.Drafter == nil {
		return nil
	}
	if err := e.measureDrafter(maxTokens); err != nil {
		return err
	}
	return e.timeDrafter(ids)
}

// head tries the head in all ways, on texts of at most maxTokens tokens, and returns the draft
// vocabularies whose costs are worth measuring, the whole vocabulary first.
func (e *examination) head(maxTokens int) (sizes []int, err error) {
	if err := e.generate(maxTokens); err != nil {
		return nil, err
	}
	e.o.Progress("measuring acceptance")
	list := draftVocabs(e.m.Info().Vocab)
	if err := e.hiddenTrials(list); err != nil {
		return nil, err
	}
	if err := e.repairTrials(); err != nil {
		return nil, err
	}
	for i := range e.Trials {
		e.Positions = e.Trials[i].compare(e.used().agreement)
	}
	return append([]int{e.m.Info().Vocab}, list...), nil
}

// generate has the model write texts of at most maxTokens tokens.
func (e *examination) generate(maxTokens int) (err error) {
	e.o.Progress("generating text")
	var openings [][]int32
	for _, p := range e.o.Prompts {
		if ids := e.tok.Encode(p); len(ids) > 0 {
			openings = append(openings, ids[:min(len(ids), maxTokens/2)])
		}
	}
	const minimum = 24 // tokens of each text, for enough positions to count
	tokens := min(e.o.Tokens, maxTokens/2)
	if tokens <= maxDepth+1 {
		return fmt.Errorf("doctor: texts of %d tokens are too short to judge a drafter", tokens)
	}
	e.texts, err = e.continueAll(openings, tokens, min(minimum, tokens), e.by(0.4))
	return err
}

// draftVocabs are the sizes to try beside the whole vocabulary: a quarter and a sixteenth.
func draftVocabs(vocab int) []int {
	const smallest = 1 << 10
	var sizes []int
	for _, n := range []int{vocab / 4, vocab / 16} {
		if n >= smallest {
			sizes = append(sizes, n)
		}
	}
	return sizes
}

// used is the trial of the head as the model runs it.
func (r *Report) used() *trial {
	return &r.Trials[slices.IndexFunc(r.Trials, func(t trial) bool { return t.Used })]
}

// hiddenTrials tries hidden states after and before the final norm, and those of the
// config also with limited draft vocabularies.
func (e *examination) hiddenTrials(list []int) error {
	pre := e.Model.Head.PreNorm
	for _, before := range e.hiddenKinds() {
		t := trial{Name: "hidden state after the final norm", Kind: "hidden", Used: before == pre, cause: `remove "mtp_hidden_state_mode" from config.json`}
		if before {
			t.Name, t.cause = "hidden state before the final norm", `set "mtp_hidden_state_mode": "pre_norm" in config.json`
		}
		sizes := list
		if before != pre {
			sizes = nil
		}
		results, err := e.agree(e.m.Head(), maxDepth, before, sizes)
		if err != nil {
			return err
		}
		t.agreement = results[0]
		e.Trials = append(e.Trials, t)
		for i, r := range results[1:] {
			e.Trials = append(e.Trials, trial{Name: fmt.Sprintf("draft vocabulary of %d tokens and those of the text", sizes[i]), Kind: "vocabulary", agreement: r, draftVocab: sizes[i]})
		}
	}
	return nil
}

// hiddenKinds are the hidden states that the model can return, before the final norm or after it:
// at least the input of its head.
func (e *examination) hiddenKinds() []bool {
	if _, ok := e.m.(model.Examinable); ok {
		return []bool{false, true}
	}
	return []bool{e.Model.Head.PreNorm}
}

// repairTrials undoes known damage of heads, one mistake at a time. A head with
// good acceptance is only tried for common ones.
func (e *examination) repairTrials() error {
	h, ok := e.m.Head().(model.Repairable)
	if !ok {
		return nil
	}
	rates, _ := e.used().agreement.Rates()
	for _, r := range h.Repairs() {
		if !r.Common && rates[0] >= goodRate {
			continue
		}
		if err := e.try(r); err != nil {
			return err
		}
	}
	return nil
}

// try adds a trial of the head with something changed, one token deep.
func (e *examination) try(r model.Repair) error {
	h, done, err := r.Open()
	if err != nil {
		return err
	}
	defer done()
	results, err := e.agree(h, 1, e.Model.Head.PreNorm, nil)
	if err != nil {
		return err
	}
	e.Trials = append(e.Trials, trial{Name: r.Name, Kind: r.Kind, cause: r.Cause, agreement: results[0]})
	return nil
}

// agree measures the acceptance of a head on the texts, see measure.TeacherForcing.Run.
func (e *examination) agree(h model.Head, depth int, before bool, sizes []int) ([]*measure.Agreement, error) {
	f := measure.TeacherForcing{Backend: e.b, Pool: e.pool, Texts: e.texts, Width: e.width, Vocab: e.vocab, Blocks: e.drafter.Blocks}
	return f.Run(e.ctx, h, depth, before, sizes)
}

// speeds are the expected speeds of every depth, by the costs and by walking along the
// texts.
func (e *examination) speeds() {
	e.Best = speed{TokensPerRound: 1, Speedup: 1}
	e.Speeds = append(e.Speeds, e.Best)
	if len(e.Trials) == 0 {
		return
	}
	for i, d := range e.Costs.Delta {
		agreement := e.used().agreement
		for _, t := range e.Trials {
			if i > 0 && t.Kind == "vocabulary" && t.draftVocab == d.DraftVocab {
				agreement = t.agreement
			}
		}
		for depth := 1; depth <= maxDepth; depth++ {
			s := speed{Depth: depth, DraftVocab: d.DraftVocab, TokensPerRound: agreement.TokensPerRound(depth)}
			s.Speedup = measure.Speedup(s.TokensPerRound, e.Costs.Beta[depth], d.Cost[depth-1])
			e.Speeds = append(e.Speeds, s)
			if s.Speedup > e.Best.Speedup {
				e.Best = s
			}
		}
	}
}
