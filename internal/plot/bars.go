// Package plot draws small charts, as lines of a terminal and as SVG. It knows numbers and
// labels, not their meaning, and only returns text. Labels are not trusted: they can
// neither control a terminal nor inject markup into a page. NaN and infinities are not
// drawn.
package plot

import (
	"fmt"
	"html"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bars is a chart of horizontal bars, each with its label before and its value after it.
type Bars struct {
	Title string
	Max   float64 // value of a full bar; 0: the largest there is
	Bars  []Bar
}

// Bar is one bar of Bars.
type Bar struct {
	Label  string
	Value  float64 // drawn as 0 below 0
	Text   string  // the value for people; empty: with two decimals
	Strong bool    // emphasized
}

// Style is the capabilities of a terminal. The zero Style is 80 columns of Unicode without
// colors.
type Style struct {
	Width int  // columns; 0: 80
	ASCII bool // nothing but ASCII
	Color bool // escape sequences for colors
}

// eighths are the parts of a column.
const eighths = " ▏▎▍▌▋▊▉"

// Lines draws the chart for a terminal, title first if there is one. No line is longer than
// the style's width unless the labels are.
func (c *Bars) Lines(s Style) []string {
	if s.Width == 0 {
		s.Width = 80
	}
	var lines []string
	if t := clean(c.Title); t != "" {
		lines = append(lines, t)
	}
	labels, texts := 0, 0
	for i := range c.Bars {
		labels = max(labels, utf8.RuneCountInString(clean(c.Bars[i].Label)))
		texts = max(texts, utf8.RuneCountInString(c.Bars[i].text()))
	}
	columns := max(s.Width-labels-texts-6, 8)
	top := c.top()
	for i := range c.Bars {
		b := &c.Bars[i]
		bar := drawn(b.share(top), columns, s.ASCII)
		if s.Color && b.Strong {
			bar = "\x1b[32m" + bar + "\x1b[0m"
		}
		lines = append(lines, fmt.Sprintf("  %s  %s  %s", pad(clean(b.Label), labels), bar, b.text()))
	}
	return lines
}

// drawn is a bar that fills a share of the columns, with the rest blank.
func drawn(share float64, columns int, ascii bool) string {
	n := int(math.Round(share * float64(columns) * 8))
	if ascii {
		full := (n + 4) / 8
		return strings.Repeat("#", full) + strings.Repeat(".", columns-full)
	}
	bar := strings.Repeat("█", n/8)
	if n%8 > 0 {
		bar += string([]rune(eighths)[n%8])
	}
	return pad(bar, columns)
}

// SVG draws the chart as an element of an HTML page. It brings its own style, in the light or dark
// that the reader prefers, and refers to nothing outside.
func (c *Bars) SVG() string {
	const row, top = 26, 34
	labels, texts := 0, 0
	for i := range c.Bars {
		labels = max(labels, utf8.RuneCountInString(clean(c.Bars[i].Label)))
		texts = max(texts, utf8.RuneCountInString(c.Bars[i].text()))
	}
	left, right := letters(labels)+14, width-letters(texts)-14
	var b strings.Builder
	begin(&b, c.Title, top+row*len(c.Bars)+8)
	full := c.top()
	for i := range c.Bars {
		x := &c.Bars[i]
		class := "bar"
		if x.Strong {
			class = "bar strong"
		}
		y := top + i*row
		long := math.Max(x.share(full)*float64(right-left), 1)
		label(&b, float64(left-8), float64(y+16), "end", x.Label)
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="3"/>`+"\n", class, left, y+2, long, row-8)
		label(&b, float64(left)+long+8, float64(y+16), "start", x.text())
	}
	return b.String() + "</svg>\n"
}

// top is the value of a full bar.
func (c *Bars) top() float64 {
	if c.Max > 0 && !math.IsInf(c.Max, 0) {
		return c.Max
	}
	top := 0.0
	for i := range c.Bars {
		if v := c.Bars[i].Value; finite(v) {
			top = math.Max(top, v)
		}
	}
	return top
}

// share is how much of a full bar this one is, from 0 to 1.
func (b *Bar) share(top float64) float64 {
	if !finite(b.Value) || b.Value <= 0 || top <= 0 {
		return 0
	}
	return math.Min(b.Value/top, 1)
}

func (b *Bar) text() string {
	switch {
	case b.Text != "":
		return clean(b.Text)
	case !finite(b.Value):
		return "none"
	}
	return fmt.Sprintf("%.2f", b.Value)
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// pad is text with blanks after it, up to the number of columns.
func pad(text string, columns int) string {
	return text + strings.Repeat(" ", max(columns-utf8.RuneCountInString(text), 0))
}

// clean removes characters that a terminal or XML would interpret.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError || r >= 0xFFFE && r <= 0xFFFF {
			return -1
		}
		return r
	}, text)
}

// escaped is text as it may stand between tags.
func escaped(text string) string { return html.EscapeString(clean(text)) }
