package bench

import (
	"fmt"
	"html"
	"strings"
	"unicode"

	"github.com/foretoken/foretoken/internal/plot"
)

// pageStyle follows what the reader prefers, light or dark.
const pageStyle = `:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}` +
	`h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2.5rem}.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}` +
	`th,td{padding:.2rem .6rem;text-align:right;white-space:nowrap;border-bottom:1px solid color-mix(in srgb,currentColor 15%,transparent)}` +
	`th:first-child,td:first-child{text-align:left}.note{border-left:.3rem solid #1f883d;padding:.1rem 1rem}.note.bad{border-color:#cf222e}.note.warn{border-color:#bf8700}`

// page is an HTML page that needs nothing from elsewhere: no script, no image, no font.
type page struct{ b strings.Builder }

// newPage starts one. Every text that is given to a page is only text.
func newPage(title string) *page {
	p := &page{}
	t := html.EscapeString(plain(title))
	fmt.Fprintf(&p.b, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"+
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<link rel=\"icon\" href=\"data:,\"/>\n"+
		"<title>%s</title>\n<style>%s</style>\n</head>\n<body>\n<h1>%s</h1>\n", t, pageStyle, t)
	return p
}

func (p *page) text(line string) { fmt.Fprintf(&p.b, "<p>%s</p>\n", html.EscapeString(plain(line))) }

// note is a line that stands out. kind is "", "warn" or "bad".
func (p *page) note(kind, line string) {
	fmt.Fprintf(&p.b, "<p class=\"note %s\">%s</p>\n", kind, html.EscapeString(plain(line)))
}

// section starts a part, with its drawings.
func (p *page) section(title string, plots ...Plot) {
	fmt.Fprintf(&p.b, "<h2>%s</h2>\n", html.EscapeString(plain(title)))
	for _, d := range plots {
		p.b.WriteString(d.SVG)
	}
}

// table writes rows of cells, the first of them as headings.
func (p *page) table(rows [][]string) {
	p.b.WriteString("<div class=\"wide\"><table>\n")
	for i, row := range rows {
		tag := "td"
		if i == 0 {
			tag = "th"
		}
		p.b.WriteString("<tr>")
		for _, cell := range row {
			fmt.Fprintf(&p.b, "<%s>%s</%s>", tag, html.EscapeString(plain(cell)), tag)
		}
		p.b.WriteString("</tr>\n")
	}
	p.b.WriteString("</table></div>\n")
}

func (p *page) end() string { return p.b.String() + "</body>\n</html>\n" }

// plain is text without control characters: names come from files and from other machines.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, text)
}

// Plot is a drawing of a report.
type Plot struct {
	Name string // of a file, without its ending
	SVG  string // an element of a page
}

// File is the drawing as a file of its own.
func (p Plot) File() string {
	return strings.Replace(p.SVG, "<svg ", `<svg xmlns="http://www.w3.org/2000/svg" `, 1)
}

// align writes rows of cells as columns for a terminal: the first one to the left, the others
// to the right.
func align(rows [][]string) string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			cell = plain(cell)
			blank := strings.Repeat(" ", max(widths[i]-len([]rune(cell)), 0))
			switch i {
			case 0:
				line = cell + blank
			default:
				line += "  " + blank + cell
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// bars writes a chart for a terminal.
func bars(c plot.Bars, s plot.Style) string { return strings.Join(c.Lines(s), "\n") + "\n" }

// number is a measurement with as many digits as mean something.
func number(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// numbers are several, one after another, at most limit of them.
func numbers(list []float64, limit int) string {
	var parts []string
	for i, x := range list {
		if i == limit {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, fmt.Sprintf("%.2f", x))
	}
	return strings.Join(parts, " ")
}
