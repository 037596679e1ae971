package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/plot"
	"github.com/foretoken/foretoken/sample"
)

// maxMismatches is how many are told one by one.
const maxMismatches = 5

// conclusions are the report's lines on exactness, speed and noise, with the kind of each.
func (r *DecodeReport) conclusions() (lines, kinds []string) {
	say := func(kind, format string, args ...any) {
		lines, kinds = append(lines, fmt.Sprintf(format, args...)), append(kinds, kind)
	}
	if r.Exact() {
		say("", "Every answer under the rule exact was that of plain decoding, token for token and bit for bit of the logits, in every repetition.")
	}
	for i, m := range r.Mismatches {
		line := fmt.Sprintf("%v, depth %s, prompt %d, token %d: %s", m.Setting, DepthName(m.Depth), m.Prompt, m.Token, m.What)
		switch {
		case i == maxMismatches:
			say("bad", "%d more answers are wrong.", len(r.Mismatches)-i)
		case i > maxMismatches:
		case m.exact():
			say("bad", "NOT EXACT: %s from plain decoding.", line)
		default:
			say("warn", "Not repeatable: %s from one repetition to the next.", line)
		}
	}
	if r.Noisy {
		say("warn", "The machine is too noisy: another run may differ by more than %.0f %%. Set more repetitions, or stop other programs.", 100*measure.Tolerance)
	} else {
		say("", "Another run on this machine should agree with the means within %.0f %%.", 100*measure.Tolerance)
	}
	for _, line := range r.slower() {
		say("warn", "%s", line)
	}
	return lines, kinds
}

// slower lists where the best depth is slower than plain decoding: means below Floor, and classes
// whose interval is below it.
func (r *DecodeReport) slower() (lines []string) {
	for _, t := range r.Totals {
		if t.Depth != r.best() {
			continue
		}
		where := fmt.Sprintf("batch %d, temperature %g, rule %s, depth %s", t.Batch, t.Temperature, t.Rule, DepthName(t.Depth))
		if t.Context > 0 {
			where += fmt.Sprintf(", context %d", t.Context)
		}
		if t.Ratio.Median < Floor {
			lines = append(lines, fmt.Sprintf("Slower than plain decoding: %s: %.3f in the mean.", where, t.Ratio.Median))
		}
		if len(t.Slower) > 0 {
			lines = append(lines, fmt.Sprintf("Slower than plain decoding: %s: the interval of %s is below %g.", where, strings.Join(t.Slower, ", "), Floor))
		}
	}
	return lines
}

// describe names the filters and penalties of sampling options.
func describe(o *sample.Options) string {
	var parts []string
	add := func(name string, value, off float64) {
		if value != off && value != 0 {
			parts = append(parts, fmt.Sprintf("%s %g", name, value))
		}
	}
	add("top-k", float64(o.TopK), 0)
	add("top-p", o.TopP, 1)
	add("min-p", o.MinP, 0)
	add("repetition penalty", o.RepetitionPenalty, 1)
	add("presence penalty", o.PresencePenalty, 0)
	add("frequency penalty", o.FrequencyPenalty, 0)
	if parts == nil {
		return "no filters"
	}
	return strings.Join(parts, ", ")
}

// contextName is a context for people.
func contextName(tokens int) string {
	if tokens == 0 {
		return "-"
	}
	return fmt.Sprint(tokens)
}

// fine is a spread with a digit more, for ratios near 1.
func fine(s measure.Spread) string {
	return fmt.Sprintf("%.3f (%.3f to %.3f)", s.Median, s.Low, s.High)
}

// head describes what was measured, and where.
func (r *DecodeReport) head() string {
	line := fmt.Sprintf("%s on %s: answers of %d tokens, %s, %d repetitions, medians; in brackets the 95 %% interval.", r.Model, r.Device, r.MaxTokens, r.Sampling, r.Repeats)
	if r.Load != "" {
		line += " " + r.Load
	}
	return line
}

// rows are the cells as a table, headings first.
func (r *DecodeReport) rows() [][]string {
	rows := append(make([][]string, 0, 1+len(r.Cells)), []string{
		"class", "context", "temp", "rule", "batch", "depth", "tok/s", "speedup", "predicted", "acceptance", "by position", "tokens/round", "rows", "β", "δ", "exact",
	})
	for i := range r.Cells {
		c := &r.Cells[i]
		exact := "yes"
		switch {
		case c.Different > 0:
			exact = "NO"
		case !c.exact():
			exact = "dist." // the distribution; and the same text in every repetition
		}
		row := []string{c.Class, contextName(c.Context), fmt.Sprintf("%g", c.Temperature), c.Rule, fmt.Sprint(c.Batch), DepthName(c.Depth), number(c.Rate.Median)}
		if c.Depth == 0 {
			rows = append(rows, append(row, "", "", "", "", "", number(c.Rows), "", "", exact))
			continue
		}
		ratio := fine(c.Ratio)
		if c.Noisy {
			ratio += " ~"
		}
		rows = append(rows, append(row, ratio, number(c.Predicted), number(c.Acceptance), numbers(c.ByPosition, 4), number(c.TokensPerRound),
			number(c.Rows), number(c.Beta), fmt.Sprintf("%.3f", c.Delta), exact))
	}
	return rows
}

// totalRows are the means over classes as a table, headings first.
func (r *DecodeReport) totalRows() [][]string {
	rows := append(make([][]string, 0, 1+len(r.Totals)), []string{"context", "temp", "rule", "batch", "depth", "tok/s", "speedup", "lowest class"})
	for _, t := range r.Totals {
		row := []string{contextName(t.Context), fmt.Sprintf("%g", t.Temperature), t.Rule, fmt.Sprint(t.Batch), DepthName(t.Depth), number(t.Rate.Median), "", ""}
		if t.Depth != 0 {
			if row[6] = fine(t.Ratio); t.Noisy {
				row[6] += " ~"
			}
			row[7] = t.Lowest
		}
		rows = append(rows, row)
	}
	return rows
}

// costRows are the costs as a table, headings first.
func (r *DecodeReport) costRows() [][]string {
	rows := append(make([][]string, 0, 1+len(r.Costs)), []string{"context", "batch", "depth", "rows", "β", "δ", "round cost", "tokens/round", "acceptance", "break-even"})
	for _, c := range r.Costs {
		rows = append(rows, []string{
			contextName(c.Context), fmt.Sprint(c.Batch), fmt.Sprint(c.Depth), number(c.Rows), number(c.Beta), fmt.Sprintf("%.3f", c.Delta), number(c.Time), number(c.Gain),
			number(c.Acceptance), number(max(c.BreakEven, 0)),
		})
	}
	return rows
}

// Text is the report for a terminal.
func (r *DecodeReport) Text(plot.Style) string {
	var b strings.Builder
	b.WriteString(plain(r.head()) + "\n\n" + align(r.rows()) + "\n")
	if slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.Noisy && c.Depth != 0 }) {
		b.WriteString("~ the interval is wider than 5 %\n\n")
	}
	if slices.ContainsFunc(r.Cells, func(c Cell) bool { return !c.exact() }) {
		b.WriteString("dist.: the rule ratio keeps the distribution of texts, not each text\n\n")
	}
	if len(r.Costs) > 0 {
		b.WriteString("Costs in plain rounds, medians\n" + align(r.costRows()) + "\n")
	}
	b.WriteString("Means over the classes\n" + align(r.totalRows()) + "\n")
	lines, _ := r.conclusions()
	return b.String() + strings.Join(lines, "\n") + "\n"
}

// Page is the report as one HTML page that needs nothing from elsewhere.
func (r *DecodeReport) Page() string {
	p := newPage(r.Model + ": foretoken bench decode")
	p.text(r.head())
	lines, kinds := r.conclusions()
	for i := range lines {
		p.note(kinds[i], lines[i])
	}
	plots := r.Plots()
	of := func(names ...string) []Plot {
		return slices.DeleteFunc(slices.Clone(plots), func(d Plot) bool {
			return !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(d.Name, n) })
		})
	}
	p.section("Speed", of("decode-total", "decode-temperature", "decode-batch", "decode-context")...)
	p.table(r.totalRows())
	p.section("Acceptance", of("decode-acceptance")...)
	p.text("Acceptance is accepted over drafted tokens, in all and by position. A draft token after a rejected one is rejected.")
	p.section("Costs", of("decode-cost", "decode-model")...)
	p.text("β is a pass with a draft, δ a draft token, both in plain passes of the same repetition. A round of k draft tokens costs β + kδ plain rounds, and must give as many tokens to break even: break-even is the acceptance at which it does.")
	p.table(r.costRows())
	p.section("Rounds of one text", of("decode-rounds")...)
	p.section("All measurements")
	p.table(r.rows())
	return p.end()
}

// Plots are the drawings of the report.
func (r *DecodeReport) Plots() []Plot {
	var list []Plot
	for i, c := range r.totalBars() {
		list = append(list, Plot{fmt.Sprintf("decode-total-%d", i+1), c.SVG()})
	}
	add := func(name string, c plot.Lines) { list = append(list, Plot{name, c.SVG()}) }
	rule, batch, context := r.rules()[0], r.batches()[0], r.contexts()[0]
	add("decode-temperature", speedups("Speedup by temperature, rule "+rule, "temperature", "batch", r.batches(), r.temperatures(),
		func(batch int, temperature float64) float64 { return r.speedup(temperature, batch, context) }))
	add("decode-batch", speedups("Speedup by batch size, rule "+rule, "batch size", "temperature", r.temperatures(), r.batches(),
		func(temperature float64, batch int) float64 { return r.speedup(temperature, batch, context) }))
	add("decode-context", speedups(fmt.Sprintf("Speedup by context, rule %s, batch %d", rule, batch), "tokens of context", "temperature", r.temperatures(), r.contexts(),
		func(temperature float64, context int) float64 { return r.speedup(temperature, batch, context) }))
	acceptance := r.acceptance()
	list = append(list, Plot{"decode-acceptance", acceptance.SVG()})
	add("decode-cost", r.costLines())
	add("decode-model", r.modelLines())
	add("decode-rounds", r.trackLines())
	return list
}

// totalBars are the speeds by depth with the first context, rule and temperature, a chart for each
// batch.
func (r *DecodeReport) totalBars() []plot.Bars {
	var list []plot.Bars
	depths := len(r.depths())
	for i := 0; i+depths <= len(r.Totals); i += depths {
		group, first := r.Totals[i:i+depths], r.Totals[0].Group
		if first.Batch = group[0].Batch; group[0].Group != first {
			continue
		}
		c := plot.Bars{Title: fmt.Sprintf("Tokens per second by depth: rule %s, temperature %g, batch %d", first.Rule, first.Temperature, first.Batch)}
		for _, t := range group {
			text := number(t.Rate.Median)
			if t.Depth != 0 {
				text += ", " + t.Ratio.String()
			}
			c.Bars = append(c.Bars, plot.Bar{Label: DepthName(t.Depth), Value: t.Rate.Median, Text: text, Strong: t.Depth == r.best()})
		}
		list = append(list, c)
	}
	return list
}

// speedups draws the speedup of the best depth under the first rule: a series for each of names, with a point for each of xs.
func speedups[N, X int | float64](title, x, name string, names []N, xs []X, speedup func(N, X) float64) plot.Lines {
	c := plot.Lines{Title: title, X: x, Y: "times plain", Rule: 1}
	for _, n := range names {
		s := plot.Series{Name: fmt.Sprintf("%s %v", name, n)}
		for _, at := range xs {
			s.Points = append(s.Points, plot.Point{X: float64(at), Y: speedup(n, at)})
		}
		c.Series = append(c.Series, s)
	}
	return c
}

func (r *DecodeReport) speedup(temperature float64, batch, context int) float64 {
	return r.ratio(r.best(), func(c *Cell) bool {
		return c.Rule == r.rules()[0] && c.Temperature == temperature && c.Batch == batch && c.Context == context
	}).Median
}

// acceptance draws acceptance by class and position, at the deepest fixed depth.
func (r *DecodeReport) acceptance() plot.Bars {
	depth := slices.Max(r.depths())
	if depth == 0 {
		depth = AutoDepth
	}
	c := plot.Bars{Title: fmt.Sprintf("Acceptance by class and position, depth %s", DepthName(depth)), Max: 1}
	for _, class := range r.classes() {
		var drafted, accepted []float64
		for _, cell := range r.at(depth, func(c *Cell) bool { return c.Class == class }) {
			for j := range cell.DraftedAt {
				if j == len(drafted) {
					drafted, accepted = append(drafted, 0), append(accepted, 0)
				}
				drafted[j] += float64(cell.DraftedAt[j])
				accepted[j] += float64(cell.AcceptedAt[j])
			}
		}
		for j := range drafted {
			c.Bars = append(c.Bars, plot.Bar{Label: fmt.Sprintf("%s %d", class, j+1), Value: measure.Ratio(accepted[j], drafted[j]), Strong: j == 0})
		}
	}
	return c
}

// costLines draws what a round costs and what it gives: where the second line is above the
// first, drafting is faster than plain decoding.
func (r *DecodeReport) costLines() plot.Lines {
	batch := r.batches()[0]
	c := plot.Lines{Title: fmt.Sprintf("Cost of a round, and the tokens it gives, batch %d", batch), X: "draft tokens", Y: "plain rounds, tokens", Rule: 1}
	zero := plot.Point{X: 0, Y: 1}
	cost, gain := plot.Series{Name: "cost: β + kδ, the tokens to break even", Points: []plot.Point{zero}}, plot.Series{Name: "tokens", Points: []plot.Point{zero}}
	for _, x := range r.Costs {
		if x.Batch == batch && x.Context == r.contexts()[0] {
			cost.Points = append(cost.Points, plot.Point{X: float64(x.Depth), Y: x.Time})
			gain.Points = append(gain.Points, plot.Point{X: float64(x.Depth), Y: x.Gain})
		}
	}
	c.Series = []plot.Series{cost, gain}
	return c
}

// modelLines draws the cost model's speedup beside the measured one.
func (r *DecodeReport) modelLines() plot.Lines {
	rule, batch := r.rules()[0], r.batches()[0]
	c := plot.Lines{Title: fmt.Sprintf("Speedup by the cost model, and as measured, batch %d", batch), X: "draft tokens", Y: "times plain", Rule: 1}
	model, measured := plot.Series{Name: "cost model", Points: []plot.Point{{X: 0, Y: 1}}}, plot.Series{Name: "measured", Points: []plot.Point{{X: 0, Y: 1}}}
	for _, x := range r.Costs {
		if x.Batch == batch && x.Context == r.contexts()[0] {
			model.Points = append(model.Points, plot.Point{X: float64(x.Depth), Y: measure.Speedup(x.Gain, x.Beta, float64(x.Depth)*x.Delta)})
			y := r.ratio(x.Depth, func(c *Cell) bool { return c.Rule == rule && c.Batch == batch && c.Context == x.Context }).Median
			measured.Points = append(measured.Points, plot.Point{X: float64(x.Depth), Y: y})
		}
	}
	c.Series = []plot.Series{model, measured}
	return c
}

// trackLines draws rounds of the same text: every point is a round, the higher it climbs the
// more draft tokens were accepted.
func (r *DecodeReport) trackLines() plot.Lines {
	c := plot.Lines{Title: "Tokens over time, a point for every round", X: "milliseconds", Y: "tokens"}
	tracks := slices.DeleteFunc(slices.Clone(r.Timeline), func(t Track) bool { return t.Depth != 0 && t.Depth != r.best() })
	end := math.Inf(1) // where the first of them ends
	for _, t := range tracks {
		if n := len(t.Rounds); n > 0 {
			end = min(end, t.Rounds[n-1].Milliseconds)
		}
	}
	for _, t := range tracks {
		s := plot.Series{Name: DepthName(t.Depth), Points: []plot.Point{{}}}
		tokens := 0
		for _, step := range t.Rounds {
			if tokens += step.Tokens; step.Milliseconds <= end {
				s.Points = append(s.Points, plot.Point{X: step.Milliseconds, Y: float64(tokens)})
			}
		}
		c.Series = append(c.Series, s)
	}
	return c
}
