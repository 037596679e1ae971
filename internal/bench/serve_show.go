package bench

import (
	"fmt"
	"strings"

	"github.com/foretoken/foretoken/internal/plot"
)

// name is a load for people.
func (l *Load) name() string {
	if l.Concurrency > 0 {
		return fmt.Sprintf("%d at a time", l.Concurrency)
	}
	return fmt.Sprintf("%g per second", l.Rate)
}

func (r *ServeReport) head() string {
	line := fmt.Sprintf("%s at %s: answers of at most %d tokens.", r.Model, r.URL, r.MaxTokens)
	var goals []string
	if r.TTFTGoal > 0 {
		goals = append(goals, fmt.Sprintf("TTFT is at most %g ms", r.TTFTGoal))
	}
	if r.TPOTGoal > 0 {
		goals = append(goals, fmt.Sprintf("TPOT is at most %g ms", r.TPOTGoal))
	}
	if len(goals) > 0 {
		line += " An answer is good if its " + strings.Join(goals, " and its ") + "."
	}
	if r.Load != "" {
		line += " " + r.Load
	}
	return line
}

// rows are the loads as a table, headings first. Times are medians and 99th percentiles.
func (r *ServeReport) rows() [][]string {
	rows := append(make([][]string, 0, 1+len(r.Loads)), []string{
		"load", "requests", "failed", "tok/s", "answers/s", "goodput/s", "good", "TTFT ms", "p99", "TPOT ms", "p99", "ITL ms", "p99",
	})
	for i := range r.Loads {
		l := &r.Loads[i]
		rows = append(rows, []string{
			l.name(), fmt.Sprint(l.Requests), fmt.Sprint(l.Failed), number(l.TokensSec), number(l.Answers), number(l.Goodput), fmt.Sprintf("%.0f %%", 100*l.GoodShare),
			number(l.TTFT.P50), number(l.TTFT.P99), number(l.TPOT.P50), number(l.TPOT.P99), number(l.ITL.P50), number(l.ITL.P99),
		})
	}
	return rows
}

// Text is the report for a terminal.
func (r *ServeReport) Text(s plot.Style) string {
	text := plain(r.head()) + "\n\n" + align(r.rows()) + "\n"
	text += bars(r.throughput(), s) + "\n" + bars(r.ttft(), s)
	if faults := r.faults(); len(faults) > 0 {
		text += "\nFaults\n  " + plain(strings.Join(faults[:min(len(faults), maxFaults)], ";  ")) + "\n"
	}
	return text
}

// maxFaults is how many kinds of faults are shown.
const maxFaults = 10

// Page is the report as one HTML page that needs nothing from elsewhere.
func (r *ServeReport) Page() string {
	p := newPage(r.Model + ": foretoken bench serve")
	p.text(r.head())
	for i, fault := range r.faults() {
		if i < maxFaults {
			p.note("bad", fault)
		}
	}
	p.section("Under load", r.Plots()...)
	p.section("All measurements")
	p.table(r.rows())
	return p.end()
}

// Plots are the drawings of the report.
func (r *ServeReport) Plots() []Plot {
	tokens, ttft := r.throughput(), r.ttft()
	list := []Plot{{"serve-throughput", tokens.SVG()}, {"serve-ttft", ttft.SVG()}}
	for _, c := range []struct {
		name, x string
		lines   plot.Lines
	}{
		{"serve-concurrency", "requests at a time", r.times(func(l *Load) float64 { return float64(l.Concurrency) })},
		{"serve-rate", "requests per second", r.times(func(l *Load) float64 { return l.Rate })},
	} {
		if len(c.lines.Series[0].Points) > 1 {
			c.lines.X = c.x
			list = append(list, Plot{c.name, c.lines.SVG()})
		}
	}
	return list
}

// throughput draws tokens per second, of all answers together.
func (r *ServeReport) throughput() plot.Bars {
	c := plot.Bars{Title: "Tokens per second, all answers together"}
	for i := range r.Loads {
		l := &r.Loads[i]
		c.Bars = append(c.Bars, plot.Bar{Label: l.name(), Value: l.TokensSec, Text: number(l.TokensSec), Strong: true})
	}
	return c
}

// ttft draws the time to first token.
func (r *ServeReport) ttft() plot.Bars {
	c := plot.Bars{Title: "Time to first token (TTFT) in milliseconds, median (and 99th percentile)"}
	for i := range r.Loads {
		l := &r.Loads[i]
		c.Bars = append(c.Bars, plot.Bar{Label: l.name(), Value: l.TTFT.P50, Text: fmt.Sprintf("%s (%s)", number(l.TTFT.P50), number(l.TTFT.P99))})
	}
	return c
}

// times draws the time per output token over the loads for which x is not zero.
func (r *ServeReport) times(x func(*Load) float64) plot.Lines {
	c := plot.Lines{Title: "Time per output token (TPOT) in milliseconds", Y: "ms", Series: []plot.Series{{Name: "median"}, {Name: "99th percentile"}}}
	for i := range r.Loads {
		l := &r.Loads[i]
		if at := x(l); at > 0 {
			c.Series[0].Points = append(c.Series[0].Points, plot.Point{X: at, Y: l.TPOT.P50})
			c.Series[1].Points = append(c.Series[1].Points, plot.Point{X: at, Y: l.TPOT.P99})
		}
	}
	return c
}
