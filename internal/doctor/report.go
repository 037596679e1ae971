package doctor

import (
	"fmt"
	"strings"

	"github.com/foretoken/foretoken/internal/plot"
)

// Text is the report for a terminal, with bars.
func (r *Report) Text(s plot.Style) string {
	t := &table{}
	t.row("model", "%s: %s, %s parameters, %s", r.Name, r.Family, countText(r.Model.Parameters), bytesText(r.Bytes))
	t.row("machine", "%s; a step takes %s", r.Device, secondsText(r.Costs.Step))
	t.row("perplexity", "%.1f on the built-in text", r.Perplexity)
	if r.Images != nil {
		t.row("images", "%s", r.Images)
	}
	charts := []plot.Bars{}
	if len(r.Trials) > 0 {
		charts = append(charts, r.positions(), r.trials())
	}
	if charts = append(charts, r.passes()); len(r.Trials) > 0 {
		charts = append(charts, r.depths())
	}
	if r.Drafter != nil {
		charts = append(charts, r.Drafter.charts()...)
	}
	for i := range charts {
		t.line("")
		for _, line := range charts[i].Lines(s) {
			t.line(line)
		}
	}
	t.line("")
	t.row("verdict", "%s", r.Verdict)
	for i, f := range r.Findings {
		if i > 0 {
			t.row("", "%s", f.What)
		}
		t.row("remedy", "%s", f.Remedy)
	}
	for _, n := range r.advice() {
		t.row("advice", "%s", n)
	}
	t.problems(r.Problems)
	return t.String()
}

// positions is the chart of acceptance by position.
func (r *Report) positions() plot.Bars {
	return positionBars(fmt.Sprintf("Acceptance at %d positions of the model's own text", r.Positions), r.used().Rates)
}

func positionBars(title string, rates []float64) plot.Bars {
	c := plot.Bars{Title: title, Max: 1}
	for d, rate := range rates {
		label := "draft token 1"
		if d > 0 {
			label = fmt.Sprintf("draft tokens 1 to %d", d+1)
		}
		c.Bars = append(c.Bars, plot.Bar{Label: label, Value: rate, Strong: true})
	}
	return c
}

// trials is the chart of the ways to run the head.
func (r *Report) trials() plot.Bars {
	return trialBars("Acceptance of the first draft token if the head is run with", r.Trials)
}

func trialBars(title string, trials []trial) plot.Bars {
	c := plot.Bars{Title: title, Max: 1}
	for _, t := range trials {
		text := fmt.Sprintf("%.2f", t.Rates[0])
		if t.Used {
			text += " (used)"
		}
		c.Bars = append(c.Bars, plot.Bar{Label: t.Name, Value: t.Rates[0], Text: text, Strong: t.Used})
	}
	return c
}

// passes is the chart of costs.
func (r *Report) passes() plot.Bars {
	c := plot.Bars{Title: "Costs on this machine, in steps of one token"}
	for i, cost := range r.Costs.Beta {
		c.Bars = append(c.Bars, plot.Bar{Label: "pass over " + counted(i+1, "row", "rows"), Value: cost})
	}
	for _, d := range r.Costs.Delta {
		for i, cost := range d.Cost {
			c.Bars = append(c.Bars, plot.Bar{Label: draftLabel(i+1, d.DraftVocab), Value: cost})
		}
	}
	return c
}

// depths is the chart of expected speeds: of each depth the best.
func (r *Report) depths() plot.Bars {
	c := plot.Bars{Title: "Expected speed, as a multiple of plain decoding"}
	for depth := range maxDepth + 1 {
		best := speed{}
		for _, s := range r.Speeds {
			if s.Depth == depth && s.Speedup > best.Speedup {
				best = s
			}
		}
		label := "no draft"
		if depth > 0 {
			label = draftLabel(depth, best.DraftVocab)
		}
		c.Bars = append(c.Bars, plot.Bar{Label: label, Value: best.Speedup, Strong: depth == r.Best.Depth})
	}
	return c
}

// draftLabel names a draft of depth tokens from a draft vocabulary.
func draftLabel(depth, vocab int) string {
	return fmt.Sprintf("%s, vocabulary of %d", counted(depth, "draft token", "draft tokens"), vocab)
}

// advice is the recommendation for this machine if nothing is wrong with the model.
func (r *Report) advice() []string {
	var list []string
	if len(r.Trials) > 0 && r.Healthy {
		list = append(list, "--mtp=off, or --draft ngram")
		if r.Best.Depth > 0 {
			list[0] = fmt.Sprintf("no flags are needed: the depth adapts at run time; expect --mtp-depth %d --draft-vocab %s", r.Best.Depth, r.draftVocab())
		}
	}
	const quiet = 1.5
	if r.Costs.Spread > quiet {
		list = append(list, fmt.Sprintf("the machine was busy: equal passes differed by a factor of %.1f. Measure again for reliable costs and speeds", r.Costs.Spread))
	}
	return list
}

// draftVocab is how --draft-vocab names the best draft vocabulary.
func (r *Report) draftVocab() string {
	if r.Best.DraftVocab >= r.Model.Vocab {
		return "all"
	}
	return fmt.Sprint(r.Best.DraftVocab)
}

// secondsText is a time for people.
func secondsText(s float64) string {
	if s < 1 {
		return strings.TrimSpace(fmt.Sprintf("%.3g ms", 1e3*s))
	}
	return fmt.Sprintf("%.2f s", s)
}
