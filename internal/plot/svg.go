package plot

import (
	"fmt"
	"math"
	"strings"
)

// width of all drawings; they scale with the page.
const width = 680

// style is the same in every drawing, so that several on one page do not quarrel.
const style = `<style>.plot{font:13px system-ui,sans-serif;max-width:100%;height:auto}.plot text{fill:#24292f}` +
	`.plot .title{font-weight:600}.plot .grid{stroke:#d0d7de;stroke-width:1}.plot .rule{stroke:#8c959f;stroke-dasharray:5 4}` +
	`.plot .bar{fill:#8ab4f8}.plot .strong{fill:#1f883d}.plot .line{fill:none;stroke-width:2.5}` +
	`.plot .s0{stroke:#0969da;color:#0969da}.plot .s1{stroke:#bc4c00;color:#bc4c00}.plot .s2{stroke:#1f883d;color:#1f883d}` +
	`.plot .s3{stroke:#8250df;color:#8250df}.plot circle{fill:currentColor}` +
	`@media(prefers-color-scheme:dark){.plot text{fill:#e6edf3}.plot .grid{stroke:#30363d}.plot .bar{fill:#3b6fb5}` +
	`.plot .strong{fill:#3fb950}.plot .s0{stroke:#58a6ff;color:#58a6ff}.plot .s1{stroke:#f0883e;color:#f0883e}` +
	`.plot .s2{stroke:#3fb950;color:#3fb950}.plot .s3{stroke:#bc8cff;color:#bc8cff}}</style>`

// colors is how many kinds of lines the style has.
const colors = 4

// begin opens a drawing. Screen readers read its title.
func begin(b *strings.Builder, title string, height int) {
	fmt.Fprintf(b, `<svg class="plot" role="img" aria-label="%s" viewBox="0 0 %d %d" width="%d" height="%d">`+"\n",
		escaped(title), width, height, width, height)
	b.WriteString(style + "\n")
	fmt.Fprintf(b, `<text class="title" x="0" y="16">%s</text>`+"\n", escaped(title))
}

// label writes text, unless it is empty, at a point; anchor says which end of it is there.
func label(b *strings.Builder, x, y float64, anchor, text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, escaped(text))
}

// letters is about the width of n letters.
func letters(n int) int { return n * 15 / 2 }

// chartHeight is that of a chart of lines, to which its legend adds a row for each of them.
const chartHeight, legendRow = 300, 20

// Lines is a chart of lines over a common axis.
type Lines struct {
	Title, X, Y string // titles of the chart and of its axes
	Series      []Series
	Rule        float64 // height of a horizontal line that marks "no gain"; 0: none
}

// Series is one line.
type Series struct {
	Name   string
	Points []Point // in the order of X
}

// Point is a point of a line.
type Point struct{ X, Y float64 }

// frame maps a chart's numbers to the drawing.
type frame struct {
	left, right, top, bottom float64
	x0, x1, y1               float64 // values at the edges; that at the bottom is 0
}

func (f *frame) x(v float64) float64 { return f.left + (v-f.x0)/(f.x1-f.x0)*(f.right-f.left) }
func (f *frame) y(v float64) float64 { return f.bottom - v/f.y1*(f.bottom-f.top) }

// SVG draws the chart as an element of a page, under the same terms as Bars.SVG. The
// vertical axis begins at 0.
func (c *Lines) SVG() string {
	var b strings.Builder
	begin(&b, c.Title, chartHeight+legendRow*len(c.Series))
	f := c.frame()
	for v, step := 0.0, tick(f.y1, 6); v <= f.y1*1.0001; v += step {
		y := f.y(v)
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", f.left, y, f.right, y)
		label(&b, f.left-8, y+4, "end", number(v))
	}
	for v, step := f.x0, math.Max(tick(f.x1-f.x0, 10), 1); v <= f.x1*1.0001; v += step {
		label(&b, f.x(v), f.bottom+18, "middle", number(v))
	}
	label(&b, (f.left+f.right)/2, f.bottom+36, "middle", c.X)
	label(&b, 0, f.top-10, "start", c.Y)
	if c.Rule > 0 && c.Rule <= f.y1 {
		fmt.Fprintf(&b, `<line class="rule" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", f.left, f.y(c.Rule), f.right, f.y(c.Rule))
	}
	for i := range c.Series {
		c.Series[i].draw(&b, &f, i)
	}
	return b.String() + "</svg>\n"
}

// draw writes a line, its points, and its name in the legend.
func (s *Series) draw(b *strings.Builder, f *frame, index int) {
	class := fmt.Sprintf("s%d", index%colors)
	path, mark := "", "M"
	for _, p := range s.Points {
		if !p.finite() {
			mark = "M" // a gap
			continue
		}
		path += fmt.Sprintf("%s%.1f %.1f", mark, f.x(p.X), f.y(p.Y))
		mark = "L"
		fmt.Fprintf(b, `<circle class="%s" cx="%.1f" cy="%.1f" r="3.5"/>`+"\n", class, f.x(p.X), f.y(p.Y))
	}
	fmt.Fprintf(b, `<path class="line %s" d="%s"/>`+"\n", class, path)
	y := chartHeight + legendRow*float64(index) + 4
	fmt.Fprintf(b, `<line class="line %s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", class, f.left, y, f.left+24, y)
	label(b, f.left+32, y+4, "start", s.Name)
}

func (p Point) finite() bool { return finite(p.X) && finite(p.Y) && p.Y >= 0 }

// frame finds the edges: all finite points are inside.
func (c *Lines) frame() frame {
	f := frame{left: 44, right: width - 20, top: 50, bottom: chartHeight - 50, x0: math.Inf(1), x1: math.Inf(-1), y1: c.Rule}
	for i := range c.Series {
		for _, p := range c.Series[i].Points {
			if p.finite() {
				f.x0, f.x1, f.y1 = math.Min(f.x0, p.X), math.Max(f.x1, p.X), math.Max(f.y1, p.Y)
			}
		}
	}
	if f.x0 > f.x1 {
		f.x0, f.x1 = 0, 1
	}
	if f.x0 == f.x1 {
		f.x1++
	}
	if !finite(f.y1) || f.y1 <= 0 {
		f.y1 = 1
	}
	step := tick(f.y1, 6)
	f.y1 = math.Ceil(f.y1/step) * step
	return f
}

// tick is a round step that cuts span into at most parts pieces.
func tick(span float64, parts int) float64 {
	least := span / float64(parts)
	unit := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{1, 2, 5} {
		if m*unit >= least*0.9999 {
			return m * unit
		}
	}
	return 10 * unit
}

// number is a value of an axis, as short as it can be.
func number(v float64) string { return fmt.Sprintf("%.4g", math.Round(v*1e6)/1e6) }
