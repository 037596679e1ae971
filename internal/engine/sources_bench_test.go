package engine

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/ngram"
	"github.com/foretoken/foretoken/internal/tokenizer"
	"github.com/foretoken/foretoken/sample"
)

// tape records the drafts of a head behind every token of a text. It drafts nothing itself.
type tape struct {
	unaware
	drafts map[int][]int32 // by length of the text
	none   []spec.Draft
}

func (t *tape) Draft(batch []spec.Run) ([]spec.Draft, error) {
	drafts, err := t.unaware.Draft(batch)
	if err != nil {
		return nil, err
	}
	t.none = t.none[:0]
	for i := range drafts {
		t.drafts[len(batch[i].Text)] = slices.Clone(drafts[i].Tokens)
		t.none = append(t.none, spec.Draft{})
	}
	return t.none, nil
}

// taped is a text with the drafts of the head.
type taped struct {
	prompt, all []int32
	head        map[int][]int32
}

// imagined is a machine: what a row and a draft token of the head take, in passes over one row.
type imagined struct {
	name       string
	row, draft float64
}

// decode has a controller choose the drafts of a text, and returns its tokens and what they take.
func (m *imagined) decode(c *spec.Controller, x *taped, head bool, lookup *ngram.Drafter) (tokens int, took float64) {
	const step = float64(time.Millisecond)
	record, host := &spec.Record{}, any(nil)
	for at := len(x.prompt) + 1; at < len(x.all); {
		runs := []spec.Run{{HostState: &host, Text: x.all[:at], Prompt: len(x.prompt), Depth: len(x.all) - at - 1}}
		if lookup != nil {
			lookup.Plan(runs)
		}
		if head {
			runs[0].Sources = runs[0].Sources.With(spec.Computed)
		}
		c.Choose(runs, []*spec.Record{record})
		var drafts []int32
		drafting, depth := 0.0, 0
		if runs[0].Source != spec.Computed {
			out, _ := lookup.Draft(runs)
			drafts = out[0].Tokens
		} else if head && runs[0].Depth > 0 {
			drafts = x.head[at][:min(runs[0].Depth, len(x.head[at]))]
			depth = len(drafts)
		}
		if head {
			drafting = 0.03 + m.draft*float64(depth)
			c.ObserveDraft([]int{depth}, time.Duration(drafting*step))
		}
		accepted, pass := 0, 1+m.row*float64(len(drafts))
		for accepted < len(drafts) && drafts[accepted] == x.all[at+accepted] {
			accepted++
		}
		c.Report(record, spec.Outcome{Rows: 1 + len(drafts), Drafted: len(drafts), Accepted: accepted, Tokens: accepted + 1, Batch: 1})
		c.ObservePass(1+len(drafts), len(drafts), time.Duration(pass*step))
		at, tokens, took = at+accepted+1, tokens+accepted+1, took+pass+drafting
	}
	return tokens, took
}

// BenchmarkSources has the controller choose between the drafts of the trained head and copies, on answers to prompts of
// all kinds and on edits, on machines whose passes take what a formula says: the result does not depend on this one. It
// reports tokens in the time of a plain pass with the head, with copies, and with both.
func BenchmarkSources(b *testing.B) {
	texts := tapes(b)
	for _, m := range []imagined{{"slow rows", 0.3, 0.1}, {"processor", 0.15, 0.12}, {"AMX", 0.06, 0.1}, {"GPU", 0.01, 0.05}} {
		for _, class := range []string{"math", "story", "dialogue", "define", "code", "edit"} {
			b.Run("machine="+m.name+"/text="+class, func(b *testing.B) {
				for b.Loop() {
					for _, mode := range []string{"mtp", "ngram", "auto"} {
						var lookup *ngram.Drafter
						if mode != "mtp" {
							lookup, _ = ngram.New(ngram.Options{})
						}
						c := spec.NewController()
						tokens, took := 0, 0.0
						for i := range 3 * len(texts[class]) {
							n, t := m.decode(c, &texts[class][i%len(texts[class])], mode != "ngram", lookup)
							if i >= len(texts[class]) { // the controller has learned
								tokens, took = tokens+n, took+t
							}
						}
						b.ReportMetric(float64(tokens)/took, mode+"/plain")
					}
				}
			})
		}
	}
}

// tapes are answers of the trained model to prompts of each class, and dictated edits.
func tapes(b *testing.B) map[string][]taped {
	b.Helper()
	dir := golden.Dir(b, "tiny")
	m, pool := openModel(b, dir, model.Options{})
	data, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		b.Fatal(err)
	}
	tok, err := tokenizer.New(data)
	if err != nil {
		b.Fatal(err)
	}
	s, err := sampling.New(sample.Options{Vocab: m.Info().Vocab}, nil)
	if err != nil {
		b.Fatal(err)
	}
	tape := &tape{unaware: unaware{Drafter: m.Drafter(), s: s}}
	e, err := New(m, pool, Options{Drafter: tape})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	list := map[string][]taped{}
	add := func(class string, r Request) {
		tape.drafts = map[int][]int32{}
		r.IgnoreEnd, r.NoForced, r.Depth = true, true, spec.MaxDepth
		ids, _, err := collect(e, r)
		if err != nil {
			b.Fatal(err)
		}
		list[class] = append(list[class], taped{r.Prompt, slices.Concat(r.Prompt, ids), tape.drafts})
	}
	for class, prompts := range golden.Prompts(b) {
		for _, text := range prompts[:3] {
			if class != "code" {
				text = "<|im_start|>user\n" + text + "<|im_end|>\n<|im_start|>assistant\n"
			}
			add(class, Request{Prompt: tok.Encode(text), MaxTokens: 128})
		}
	}
	for _, x := range golden.Edits(b) {
		answer := tok.Encode(x.Answer())
		r := Request{Prompt: tok.Encode(x.Prompt()), MaxTokens: len(answer)}
		r.Sampling.Constraint = func() sample.Constraint {
			return &dictated{ids: answer, mask: make([]uint64, (m.Info().Vocab+63)/64)}
		}
		add("edit", r)
	}
	return list
}
