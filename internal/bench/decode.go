package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/sample"
)

// AutoDepth stands for the fastest depth, chosen while it runs.
const AutoDepth = -1

// DecodeOptions say what to measure. Everything is measured in every combination.
type DecodeOptions struct {
	Prompts      map[Text][][]int32 // what is measured of a text is all of them
	Classes      []string
	Contexts     []int // of texts
	Temperatures []float64
	Rules        []spec.Rule
	Batches      []int
	Depths       []int // of drafts, perhaps AutoDepth; plain decoding is always measured
	Repeats      int   // timed repetitions, each with every depth
	MaxTokens    int   // of an answer, which always is that long

	Sampling sample.Options // but for temperature and seed
	Progress func(what string)
}

// Text is a kind of prompts.
type Text struct {
	Class   string `json:"class"`
	Context int    `json:"context"` // tokens that earlier turns fill up to; 0: the prompt has no earlier turns
}

// Setting is what a comparison of depths has in common.
type Setting struct {
	Text
	Temperature float64 `json:"temperature"`
	Rule        string  `json:"rule"`
	Batch       int     `json:"batch"` // sequences at a time
}

func (s Setting) String() string {
	text := fmt.Sprintf("%s, temperature %g, rule %s, batch %d", s.Class, s.Temperature, s.Rule, s.Batch)
	if s.Context > 0 {
		text += fmt.Sprintf(", context %d", s.Context)
	}
	return text
}

// exact reports whether every answer must be that of plain decoding. At temperature 0 there is
// only one answer, whatever the rule.
func (s Setting) exact() bool { return s.Rule == spec.Exact.String() || s.Temperature == 0 }

// settings are all combinations. The classes of a Group are together.
func (o *DecodeOptions) settings() []Setting {
	list := make([]Setting, 0, len(o.Contexts)*len(o.Batches)*len(o.Rules)*len(o.Temperatures)*len(o.Classes))
	for _, context := range o.Contexts {
		for _, batch := range o.Batches {
			for _, rule := range o.Rules {
				for _, temperature := range o.Temperatures {
					for _, class := range o.Classes {
						list = append(list, Setting{Text{class, context}, temperature, rule.String(), batch})
					}
				}
			}
		}
	}
	return list
}

// Decode measures plain and speculative decoding alternately. The first repetition of every
// setting is not timed: it warms up, and compares tokens and the bits of logits. The later ones
// compare tokens.
func Decode(ctx context.Context, run Runner, o DecodeOptions) (*DecodeReport, error) {
	depths := append([]int{0}, slices.DeleteFunc(slices.Clone(o.Depths), func(d int) bool { return d == 0 })...)
	report := &DecodeReport{Repeats: o.Repeats, MaxTokens: o.MaxTokens, Sampling: describe(&o.Sampling)}
	settings := o.settings()
	for i, s := range settings {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf("%v (%d of %d)", s, i+1, len(settings)))
		}
		if len(o.Prompts[s.Text]) == 0 {
			return nil, fmt.Errorf("bench: no prompts of the class %q with context %d", s.Class, s.Context)
		}
		trial := newTrial(&o, s, depths)
		if err := trial.run(ctx, run, o.Repeats); err != nil {
			return nil, fmt.Errorf("bench: %v: %w", s, err)
		}
		report.Cells = append(report.Cells, trial.cells...)
		report.Mismatches = append(report.Mismatches, trial.mismatches...)
		if report.Timeline == nil {
			report.Timeline = trial.timeline
		}
	}
	report.settle()
	return report, nil
}

// trial is the measurement of one setting.
type trial struct {
	setting    Setting
	batches    [][]engine.Request
	cells      []Cell     // by depth
	want       [][]Answer // of the untimed repetition, by depth and prompt
	mismatches []Mismatch
	timeline   []Track // by depth
}

func newTrial(o *DecodeOptions, s Setting, depths []int) *trial {
	t := &trial{setting: s, timeline: make([]Track, len(depths))}
	rule, _ := spec.ParseRule(s.Rule) // it came from one
	sampling := o.Sampling
	sampling.Temperature = s.Temperature
	prompts := o.Prompts[s.Text]
	for first := 0; first == 0 || first < len(prompts); first += s.Batch {
		batch := make([]engine.Request, s.Batch)
		for i := range batch { // a batch that the prompts do not fill starts over with them
			sampling.Seed = uint64(first + i + 1)
			batch[i] = engine.Request{
				Prompt: prompts[(first+i)%len(prompts)], MaxTokens: o.MaxTokens, Sampling: sampling,
				IgnoreEnd: true, Rule: rule,
			}
		}
		t.batches = append(t.batches, batch)
	}
	for _, d := range depths {
		t.cells = append(t.cells, Cell{Setting: s, Depth: d})
	}
	return t
}

func (t *trial) run(ctx context.Context, run Runner, repeats int) error {
	for n := range repeats + 1 {
		answers, sums := make([][]Answer, len(t.cells)), make([]Repeat, len(t.cells))
		for i, batch := range t.batches {
			for j := range t.cells {
				at := (i + j + n) % len(t.cells) // nothing is always first, or always after the same
				r, err := t.measure(ctx, run, at, n, batch)
				if err != nil {
					return err
				}
				answers[at] = append(answers[at], r.Answers...)
				sums[at].add(r, len(batch))
				if n == 1 && i == 0 {
					t.timeline[at] = newTrack(t.cells[at].Depth, r.Rounds)
				}
			}
		}
		if err := t.book(n, answers, sums); err != nil {
			return err
		}
	}
	return nil
}

// measure answers one batch at one depth, in repetition n. Repetition 0 is not timed.
func (t *trial) measure(ctx context.Context, run Runner, at, n int, batch []engine.Request) (*Run, error) {
	cell := &t.cells[at]
	batch = slices.Clone(batch)
	depth := spec.DepthAuto
	if cell.Depth != AutoDepth {
		depth = spec.FixedDepth(cell.Depth)
	}
	for j := range batch {
		batch[j].Depth, batch[j].Hash = depth, n == 0
	}
	r, err := run(ctx, batch)
	if err == nil && n > 0 {
		cell.count(r.Answers)
	}
	return r, err
}

// book compares the answers of repetition n and adds its times.
func (t *trial) book(n int, answers [][]Answer, sums []Repeat) error {
	if n == 0 {
		t.want = answers
	}
	for at := range t.cells {
		t.compare(at, answers[at], n == 0)
		if n == 0 {
			continue
		}
		if sums[at].Seconds == 0 {
			return fmt.Errorf("no round had all %d sequences generating: set more tokens", t.setting.Batch)
		}
		t.cells[at].Repeats = append(t.cells[at].Repeats, sums[at])
	}
	return nil
}

// reference is what answers are to be: plain decoding's, or those of the untimed repetition
// where the rule promises its distribution only.
func (t *trial) reference(at int) []Answer {
	if t.setting.exact() {
		return t.want[0]
	}
	return t.want[at]
}

// Mismatch is an answer that is not what it must be: that of plain decoding under the rule
// exact, that of the first repetition under the other.
type Mismatch struct {
	Setting
	Depth  int    `json:"depth"`
	Prompt int    `json:"prompt"` // of the class, from 0
	Token  int    `json:"token"`  // the first that differs; -1: only the logits do
	What   string `json:"what"`
}

// compare notes the answers that are not as wanted. Hashes are compared where there are any.
func (t *trial) compare(at int, got []Answer, hashed bool) {
	cell, want := &t.cells[at], t.reference(at)
	for i := range got {
		m := Mismatch{Setting: t.setting, Depth: cell.Depth, Prompt: i, Token: -1}
		switch {
		case !slices.Equal(want[i].Tokens, got[i].Tokens):
			for m.Token = 0; m.Token < min(len(want[i].Tokens), len(got[i].Tokens)) && want[i].Tokens[m.Token] == got[i].Tokens[m.Token]; {
				m.Token++
			}
			m.What = "tokens differ"
		case hashed && got[i].Hash != want[i].Hash:
			m.What = "logits differ in some bit"
		default:
			continue
		}
		cell.Different++
		t.mismatches = append(t.mismatches, m)
	}
}
