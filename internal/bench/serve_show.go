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
	if r.FirstGoal > 0 || r.TokenGoal > 0 {
		line += " Good is an answer"
		if r.FirstGoal > 0 {
			line += fmt.Sprintf(" that begins within %g ms", r.FirstGoal)
		}
		if r.TokenGoal > 0 {
			line += fmt.Sprintf(" whose tokens take at most %g ms each", r.TokenGoal)
		}
		line += "."
	}
	if r.Load != "" {
		line += " " + r.Load
	}
	return line
}

// rows are the loads as a table, heads first. Times are medians and 99th percentiles.
func (r *ServeReport) rows() [][]string {
	rows := append(make([][]string, 0, 1+len(r.Loads)), []string{
		"load", "requests", "failed", "tok/s", "answers/s", "good/s", "good", "first ms", "p99", "per token ms", "p99", "gap ms", "p99",
	})
	for i := range r.Loads {
		l := &r.Loads[i]
		rows = append(rows, []string{
			l.name(), fmt.Sprint(l.Requests), fmt.Sprint(l.Failed), number(l.TokensSec), number(l.Answers), number(l.Good), fmt.Sprintf("%.0f %%", 100*l.GoodShare),
			number(l.First.P50), number(l.First.P99), number(l.PerToken.P50), number(l.PerToken.P99), number(l.Gap.P50), number(l.Gap.P99),
		})
	}
	return rows
}

// Text is the report for a terminal.
func (r *ServeReport) Text(s plot.Style) string {
	text := plain(r.head()) + "\n\n" + align(r.rows()) + "\n"
	text += bars(r.throughput(), s) + "\n" + bars(r.first(), s)
	if faults := r.faults(); len(faults) > 0 {
		text += "\nFaults\n  " + plain(strings.Join(faults[:min(len(faults), mostFaults)], ";  ")) + "\n"
	}
	return text
}

// mostFaults is how many kinds of faults are shown.
const mostFaults = 10

// Page is the report as one HTML page that needs nothing from elsewhere.
func (r *ServeReport) Page() string {
	p := newPage(r.Model + ": foretoken bench serve")
	p.text(r.head())
	for i, fault := range r.faults() {
		if i < mostFaults {
			p.note("bad", fault)
		}
	}
	p.section("Under load", r.Plots()...)
	p.section("Everything that was measured")
	p.table(r.rows())
	return p.end()
}

// Plots are the drawings of the report.
func (r *ServeReport) Plots() []Plot {
	tokens, first := r.throughput(), r.first()
	list := []Plot{{"serve-throughput", tokens.SVG()}, {"serve-first", first.SVG()}}
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

// first draws the time to the first text.
func (r *ServeReport) first() plot.Bars {
	c := plot.Bars{Title: "Milliseconds to the first text, median (and 99th percentile)"}
	for i := range r.Loads {
		l := &r.Loads[i]
		c.Bars = append(c.Bars, plot.Bar{Label: l.name(), Value: l.First.P50, Text: fmt.Sprintf("%s (%s)", number(l.First.P50), number(l.First.P99))})
	}
	return c
}

// times draws the times of a token over loads of one kind: those that have an x.
func (r *ServeReport) times(x func(*Load) float64) plot.Lines {
	c := plot.Lines{Title: "Milliseconds per token", Y: "ms", Series: []plot.Series{{Name: "median"}, {Name: "99th percentile"}}}
	for i := range r.Loads {
		l := &r.Loads[i]
		if at := x(l); at > 0 {
			c.Series[0].Points = append(c.Series[0].Points, plot.Point{X: at, Y: l.PerToken.P50})
			c.Series[1].Points = append(c.Series[1].Points, plot.Point{X: at, Y: l.PerToken.P99})
		}
	}
	return c
}
