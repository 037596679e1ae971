package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/ngram"
)

// tape records the drafts of a head behind every token of a text. It drafts nothing itself.
type tape struct {
	spec.Drafter
	drafts map[int]spec.Draft // by length of the text
	none   []spec.Draft
}

func (t *tape) Draft(batch []spec.Run) ([]spec.Draft, error) {
	drafts, err := t.Drafter.Draft(batch)
	if err != nil {
		return nil, err
	}
	t.none = t.none[:0]
	for i, d := range drafts {
		t.drafts[len(batch[i].Text)] = spec.Draft{Tokens: slices.Clone(d.Tokens), Probs: slices.Clone(d.Probs)}
		t.none = append(t.none, spec.Draft{})
	}
	return t.none, nil
}

// taped is a text with the drafts of the head.
type taped struct {
	prompt, all []int32
	head        map[int]spec.Draft
}

// draft is what the head drafts for a run.
func (x *taped) draft(run *spec.Run) (d spec.Draft) {
	all := x.head[len(run.Text)]
	for len(d.Tokens) < min(run.Depth, len(all.Tokens)) && (len(d.Tokens) == 0 || run.More == nil || run.More(d.Probs)) {
		n := len(d.Tokens)
		d.Tokens, d.Probs = append(d.Tokens, all.Tokens[n]), append(d.Probs, all.Probs[n])
	}
	return d
}

// imagined is a machine: what a row and a draft token of the head take, in passes over one row.
type imagined struct {
	name       string
	row, draft float64
}

// decode has a controller choose the drafts of a text, and returns its tokens and what they take.
func (m *imagined) decode(c *spec.Controller, x *taped, head bool, lookup *ngram.Drafter) (tokens int, took float64) {
	const step = float64(time.Millisecond)
	records, host := []*spec.Record{{}}, any(nil)
	for at := len(x.prompt) + 1; at < len(x.all); {
		runs := []spec.Run{{HostState: &host, Text: x.all[:at], Prompt: len(x.prompt), Depth: len(x.all) - at - 1}}
		if lookup != nil {
			lookup.Plan(runs)
		}
		if head {
			runs[0].Sources = runs[0].Sources.With(spec.Computed)
		}
		c.Choose(runs, records)
		drafts, drafting := []spec.Draft{{}}, 0.0
		if runs[0].Source != spec.Computed {
			drafts, _ = lookup.Draft(runs)
		} else if head {
			drafts[0] = x.draft(&runs[0])
		}
		if head {
			depth := 0
			if runs[0].Source == spec.Computed {
				depth = len(drafts[0].Tokens)
			}
			drafting = 0.03 + m.draft*float64(depth)
			c.ObserveDraft(spec.Computed, []int{depth}, 0, time.Duration(drafting*step))
		}
		c.Trim(runs, records, drafts)
		n, accepted := len(drafts[0].Tokens), 0
		for accepted < n && drafts[0].Tokens[accepted] == x.all[at+accepted] {
			accepted++
		}
		pass := 1 + m.row*float64(n)
		c.Report(records[0], spec.Outcome{Rows: 1 + n, Drafted: n, Accepted: accepted, Tokens: accepted + 1, Batch: 1})
		c.ObservePass(1+n, time.Duration(pass*step))
		at, tokens, took = at+accepted+1, tokens+accepted+1, took+pass+drafting
	}
	return tokens, took
}

// rate is the tokens in the time of a plain pass over all texts, in several orders, each with a controller of its own. The first
// time that it has a text it learns. In one order a single other choice changes all rounds after it, and the rate by up to 2 %.
func (m *imagined) rate(texts []taped, head, copies bool) float64 {
	tokens, took := 0, 0.0
	for seed := range uint64(8) {
		var lookup *ngram.Drafter
		if copies {
			lookup, _ = ngram.New(ngram.Options{})
		}
		c, order := spec.NewController(), rand.New(rand.NewPCG(seed, 1)).Perm(len(texts))
		for _, i := range order {
			m.decode(c, &texts[i], head, lookup)
		}
		for _, i := range order {
			n, t := m.decode(c, &texts[i], head, lookup)
			tokens, took = tokens+n, took+t
		}
	}
	return float64(tokens) / took
}

// BenchmarkSources has the controller choose between the drafts of the trained head and copies, on answers to prompts of
// all kinds and on edits, on machines whose passes take what a formula says: the result does not depend on this one. It
// reports tokens in the time of a plain pass with the head, with copies, and with both, and the last over the first.
func BenchmarkSources(b *testing.B) {
	texts := tapes(b)
	for _, m := range []imagined{{"slow rows", 0.3, 0.1}, {"processor", 0.15, 0.12}, {"AMX", 0.06, 0.1}, {"GPU", 0.01, 0.05}} {
		for _, class := range []string{"math", "story", "dialogue", "define", "code", "edit"} {
			b.Run("machine="+m.name+"/text="+class, func(b *testing.B) {
				for b.Loop() {
					head, auto := m.rate(texts[class], true, false), m.rate(texts[class], true, true)
					b.ReportMetric(head, "mtp/plain")
					b.ReportMetric(m.rate(texts[class], false, true), "ngram/plain")
					b.ReportMetric(auto, "auto/plain")
					b.ReportMetric(auto/head, "auto/mtp")
				}
			})
		}
	}
}

// tapes are answers of the trained model to prompts of each class, every second one sampled, and dictated edits.
func tapes(b *testing.B) map[string][]taped {
	b.Helper()
	a := openAuthor(b)
	list := map[string][]taped{}
	add := func(class string, e *Engine, t *tape, r Request) {
		t.drafts = map[int]spec.Draft{}
		r.IgnoreEnd, r.NoForced, r.Depth = true, true, spec.MaxDepth
		ids, _, err := collect(e, r)
		if err != nil {
			b.Fatal(err)
		}
		list[class] = append(list[class], taped{r.Prompt, slices.Concat(r.Prompt, ids), t.drafts})
	}
	t := &tape{Drafter: a.model.Drafter()}
	e := a.engine(b, t)
	for class, prompts := range golden.Prompts(b) {
		for i, text := range prompts[:8] {
			if class != "code" {
				text = "<|im_start|>user\n" + text + "<|im_end|>\n<|im_start|>assistant\n"
			}
			r := Request{Prompt: a.tok.Encode(text), MaxTokens: 128}
			r.Sampling.Temperature, r.Sampling.Seed = 0.7*float64(i%2), uint64(i)
			add(class, e, t, r)
		}
	}
	t = &tape{Drafter: &unaware{Drafter: a.model.Drafter(), s: a.free}}
	e = a.engine(b, t)
	for _, x := range golden.Edits(b) {
		add("edit", e, t, a.edit(x))
	}
	return list
}
