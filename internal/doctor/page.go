package doctor

import (
	"fmt"
	"html"
	"strings"

	"github.com/foretoken/foretoken/internal/plot"
)

// pageStyle follows the reader's preference, light or dark.
const pageStyle = `:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}` +
	`h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}pre{overflow-x:auto;font-size:.8rem;line-height:1.35}` +
	`.verdict{border-left:.3rem solid #1f883d;padding:.5rem 1rem;margin:1rem 0}.verdict.bad{border-color:#cf222e}code{font-size:.9em}`

// Page is the report as one HTML page that needs nothing from elsewhere: no script, no
// image, no font.
func (r *Report) Page() string {
	var b strings.Builder
	name := html.EscapeString(printable(r.Name))
	fmt.Fprintf(&b, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"+
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>%s: foretoken doctor</title>\n<style>%s</style>\n</head>\n<body>\n", name, pageStyle)
	fmt.Fprintf(&b, "<h1>%s</h1>\n", name)
	class := "verdict"
	if !r.Healthy {
		class = "verdict bad"
	}
	fmt.Fprintf(&b, "<div class=\"%s\">\n<p>%s</p>\n", class, html.EscapeString(printable(r.Verdict)))
	for _, f := range r.Findings {
		if f.What != r.Verdict {
			fmt.Fprintf(&b, "<p>%s</p>\n", html.EscapeString(printable(f.What)))
		}
		fmt.Fprintf(&b, "<p>Remedy: %s</p>\n", html.EscapeString(printable(f.Remedy)))
	}
	for _, n := range r.advice() {
		fmt.Fprintf(&b, "<p>Advice: %s</p>\n", html.EscapeString(n))
	}
	fmt.Fprintf(&b, "</div>\n<p>%s; a step of one token takes %s. Perplexity on the built-in text: %.1f.</p>\n",
		html.EscapeString(printable(r.Device)), secondsText(r.Costs.Step), r.Perplexity)
	if r.Images != nil {
		fmt.Fprintf(&b, "<p>Images: %s.</p>\n", html.EscapeString(r.Images.String()))
	}
	if len(r.Trials) > 0 {
		acceptance, trials, speeds := r.acceptance(), r.trials(), r.speedLines()
		fmt.Fprintf(&b, "<h2>Acceptance</h2>\n<p>At %d positions of text that the model generated, teacher-forced.</p>\n%s%s", r.Positions, acceptance.SVG(), trials.SVG())
		fmt.Fprintf(&b, "<h2>Speed</h2>\n%s", speeds.SVG())
	}
	if r.Drafter != nil {
		fmt.Fprint(&b, "<h2>Drafter</h2>\n")
		for _, c := range r.Drafter.charts() {
			b.WriteString(c.SVG())
		}
	}
	costs := r.costLines()
	fmt.Fprintf(&b, "<h2>Costs</h2>\n%s", costs.SVG())
	fmt.Fprintf(&b, "<h2>Files</h2>\n<pre>%s</pre>\n</body>\n</html>\n", html.EscapeString(r.Table()))
	return b.String()
}

// acceptance draws acceptance by position, for the trials of the full depth.
func (r *Report) acceptance() plot.Lines {
	c := plot.Lines{Title: "Share of positions whose first draft tokens are all accepted", X: "draft tokens"}
	for _, t := range r.Trials {
		if len(t.Rates) < 2 {
			continue
		}
		s := plot.Series{Name: t.Name}
		for d, rate := range t.Rates {
			s.Points = append(s.Points, plot.Point{X: float64(d + 1), Y: rate})
		}
		c.Series = append(c.Series, s)
	}
	return c
}

// costLines draws the times of passes and drafts.
func (r *Report) costLines() plot.Lines {
	c := plot.Lines{Title: "Time of passes and of drafts, in steps of one token", X: "rows of a pass, or draft tokens", Rule: 1}
	add := func(name string, costs []float64) {
		s := plot.Series{Name: name}
		for i, x := range costs {
			s.Points = append(s.Points, plot.Point{X: float64(i + 1), Y: x})
		}
		c.Series = append(c.Series, s)
	}
	add("passes (β)", r.Costs.Beta)
	for _, d := range r.Costs.Delta {
		add(fmt.Sprintf("drafts, vocabulary of %d (δ)", d.DraftVocab), d.Cost)
	}
	return c
}

// speedLines draws the expected speed of every depth.
func (r *Report) speedLines() plot.Lines {
	c := plot.Lines{Title: "Expected speed, as a multiple of plain decoding", X: "draft tokens", Rule: 1}
	for _, d := range r.Costs.Delta {
		s := plot.Series{Name: fmt.Sprintf("draft vocabulary of %d", d.DraftVocab), Points: []plot.Point{{X: 0, Y: 1}}}
		for _, x := range r.Speeds {
			if x.DraftVocab == d.DraftVocab && x.Depth > 0 {
				s.Points = append(s.Points, plot.Point{X: float64(x.Depth), Y: x.Speedup})
			}
		}
		c.Series = append(c.Series, s)
	}
	return c
}
