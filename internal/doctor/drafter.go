package doctor

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/model/drafter"
	"github.com/foretoken/foretoken/internal/plot"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/block"
	"github.com/foretoken/foretoken/internal/spec/mtp"
)

// drafterReport is about a drafter in a file of its own.
type drafterReport struct {
	Name      string    `json:"name"` // as the user named it
	Kind      string    `json:"kind"`
	Positions int       `json:"positions"`  // at which drafts were made
	Trials    []trial   `json:"acceptance"` // as its files say first
	Cost      []float64 `json:"cost"`       // of 1, 2, … draft tokens, in steps
	Speeds    []speed   `json:"speeds"`     // by depth, from 1
	Best      speed     `json:"best"`       // of Speeds; depth 0 is one of the choices
}

// measureDrafter measures the acceptance of the drafter of the options on the model's own text, of at most maxTokens tokens: as
// its files say, and with known mistakes undone.
func (e *examination) measureDrafter(maxTokens int) error {
	if e.texts == nil {
		if err := e.generate(maxTokens); err != nil {
			return err
		}
	}
	e.o.Progress("measuring the drafter")
	d := e.o.Drafter
	used, err := e.walk(d, e.texts)
	if err != nil {
		return err
	}
	r := &drafterReport{Name: e.o.DrafterName, Kind: d.Kind.String()}
	e.Drafter = r
	first := trial{Name: "its files as they are", Used: true, agreement: used}
	r.Positions = first.compare(used)
	r.Trials = []trial{first}
	for _, repair := range d.Repairs() {
		if repair.Kind == "norms" && first.Rates[0] >= goodRate {
			continue
		}
		t, err := e.tryDrafter(repair, used)
		if err != nil {
			return err
		}
		r.Trials = append(r.Trials, t)
	}
	return nil
}

// timeDrafter measures what drafts cost behind the text of ids.
func (e *examination) timeDrafter(ids []int32) error {
	seq, err := measure.Open(e.m, e.policy(e.o.Drafter), e.pool, e.vocab)
	if err != nil {
		return err
	}
	defer seq.Close()
	costs, err := seq.Costs(e.ctx, ids, 1+maxDepth, []int{e.m.Info().Vocab}, e.by(1))
	if err != nil {
		return err
	}
	e.Drafter.speeds(costs)
	return nil
}

// policy is how drafts are drawn with a drafter: from the whole vocabulary.
func (e *examination) policy(d *drafter.Drafter) spec.Drafter {
	vocab := e.m.Info().Vocab
	if d.Head != nil {
		return mtp.New(d.Head, mtp.Options{Vocab: vocab, DraftVocab: -1, Taps: d.Taps, Tokens: d.Tokens})
	}
	return block.New(d.Block, block.Options{Vocab: vocab, DraftVocab: -1, Taps: d.Taps, Tokens: d.Tokens})
}

// walk measures the acceptance of a drafter.
func (e *examination) walk(d *drafter.Drafter, texts []*measure.Text) (*measure.Agreement, error) {
	return measure.Walk(e.ctx, e.m, e.policy(d), e.pool, e.vocab, texts, maxDepth)
}

// tryDrafter is a trial of the drafter run in another way than the used one.
func (e *examination) tryDrafter(r drafter.Repair, used *measure.Agreement) (t trial, err error) {
	t = trial{Name: r.Name, Kind: r.Kind, cause: r.Cause, remedy: r.Remedy}
	texts := e.texts
	if r.Kind == "window" { // which shows in long texts
		if texts, err = e.longTexts(e.o.Drafter.Window()); err == nil {
			used, err = e.walk(e.o.Drafter, texts)
		}
		if err != nil {
			return t, err
		}
	}
	d, err := r.Open()
	if err != nil {
		return t, err
	}
	if t.agreement, err = e.walk(d, texts); err == nil {
		t.compare(used)
	}
	return t, errors.Join(err, d.Close())
}

// longTexts are texts that the model writes behind prompts longer than a window, as far as its context allows.
func (e *examination) longTexts(window int) ([]*measure.Text, error) {
	const texts = 4
	length := min(2*window, e.m.Info().Context-e.o.Tokens)
	page := e.tok.Encode(prose)
	long := slices.Repeat(page, 2+length/len(page))
	openings := make([][]int32, texts)
	for i := range openings {
		first := i * len(page) / texts
		openings[i] = long[first : first+length]
	}
	return e.continueAll(openings, e.o.Tokens, e.o.Tokens, time.Time{})
}

// speeds are the expected speeds of every depth.
func (r *drafterReport) speeds(c *measure.Costs) {
	r.Cost, r.Best = c.Delta[0].Cost, speed{TokensPerRound: 1, Speedup: 1}
	for depth := 1; depth <= maxDepth; depth++ {
		s := speed{Depth: depth, DraftVocab: c.Delta[0].DraftVocab, TokensPerRound: r.Trials[0].agreement.TokensPerRound(depth)}
		s.Speedup = measure.Speedup(s.TokensPerRound, c.Beta[depth], r.Cost[depth-1])
		if r.Speeds = append(r.Speeds, s); s.Speedup > r.Best.Speedup {
			r.Best = s
		}
	}
}

// drafter judges the drafter by the best way to run it.
func (r *Report) drafter() {
	d := r.Drafter
	now, n := d.Trials[0].Rates[0], float64(d.Positions)
	swap := "fetch the drafter again from where it was published; foretoken pull checks sizes and hashes"
	switch best := bestOf(d.Trials); {
	case best != nil:
		remedy := best.remedy
		if remedy == "" {
			remedy = swap
		}
		r.find(remedy, "The %s drafter is damaged or read wrongly: %s. On average %.2f of %d draft tokens are accepted, and %.2f with %s.",
			d.Kind, best.cause, measure.Gain(best.before)-1, maxDepth, measure.Gain(best.Rates)-1, best.Name)
	case now*n+math.Sqrt(n) < soundRate*n:
		r.find("use a drafter that was made for this model, or the model's head",
			"The %s drafter was made for another model or another version of this one, or its weights are damaged: %.0f %% of its first draft tokens are accepted; a sound drafter has more than %.0f %%.",
			d.Kind, 100*now, 100*goodRate)
	}
}

// sound is the sentence on a drafter that works.
func (d *drafterReport) sound() string {
	line := fmt.Sprintf("The %s drafter is intact: %.0f %% of its first draft tokens are accepted", d.Kind, 100*d.Trials[0].Rates[0])
	if d.Best.Depth == 0 {
		return line + ", but it is not faster than plain decoding on this machine."
	}
	return fmt.Sprintf("%s, and with %s at a time it is expected to be %.2f times as fast as plain decoding.",
		line, counted(d.Best.Depth, "draft token", "draft tokens"), d.Best.Speedup)
}

// charts are those of the drafter: acceptance by position, and the ways to run it.
func (d *drafterReport) charts() []plot.Bars {
	return []plot.Bars{
		positionBars(fmt.Sprintf("Acceptance of the %s drafter at %d positions", d.Kind, d.Positions), d.Trials[0].Rates),
		trialBars("Acceptance of the first draft token if the drafter is run with", d.Trials),
	}
}
