package plot

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestBarsDrawTheirShare(t *testing.T) {
	c := Bars{Title: "Accepted", Max: 1, Bars: []Bar{{Label: "first", Value: 1}, {Label: "2", Value: 0.5, Text: "half"}, {Label: "none"}, {Label: "odd", Value: 0.265625}}}
	want := []string{
		"Accepted",
		"  first  ████████  1.00",
		"  2      ████      half",
		"  none             0.00",
		"  odd    ██▏       0.27",
	}
	if got := c.Lines(Style{Width: 23}); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	want = []string{"Accepted", "  first  ########  1.00", "  2      ####....  half", "  none   ........  0.00", "  odd    ##......  0.27"}
	if got := c.Lines(Style{Width: 23, ASCII: true}); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestBarsKeepToTheWidth(t *testing.T) {
	for _, width := range []int{30, 80, 200} {
		c := Bars{Bars: []Bar{{Label: "a", Value: 3}, {Label: "bcd", Value: math.Inf(1)}, {Label: "é", Value: -1}, {Label: "e", Value: math.NaN()}}}
		for _, line := range c.Lines(Style{Width: width}) {
			if n := utf8.RuneCountInString(line); n > width {
				t.Errorf("width %d: line of %d columns: %q", width, n, line)
			}
		}
	}
}

func TestBarsColorOnlyWhereAsked(t *testing.T) {
	c := Bars{Bars: []Bar{{Label: "a", Value: 1, Strong: true}, {Label: "b", Value: 1}}}
	plain, colored := c.Lines(Style{}), c.Lines(Style{Color: true})
	if strings.Contains(strings.Join(plain, ""), "\x1b") || !strings.Contains(colored[0], "\x1b[32m") || strings.Contains(colored[1], "\x1b") {
		t.Errorf("%q, %q", plain, colored)
	}
}

// hostile are labels that a terminal or an SVG viewer could interpret.
var hostile = []string{
	"\x1b[2Jgone", "a\nb\tc", "</svg><script>alert(1)</script>", `" onload="x`, "&amp;", "\x00\x01", "\xff\xfe", "\uffff", "\u009b31m", "", strings.Repeat("long ", 50),
}

func TestLabelsAreOnlyText(t *testing.T) {
	for _, label := range hostile {
		bars := Bars{Title: label, Bars: []Bar{{Label: label, Value: 1, Text: label}}}
		for _, line := range bars.Lines(Style{ASCII: true}) {
			if i := strings.IndexFunc(line, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }); i >= 0 {
				t.Errorf("label %q: a control character in %q", label, line)
			}
		}
		lines := Lines{Title: label, X: label, Y: label, Series: []Series{{Name: label, Points: []Point{{1, 1}, {2, 3}}}}}
		for _, svg := range []string{bars.SVG(), lines.SVG()} {
			if elements := wellFormed(t, svg); elements["script"] > 0 || elements["svg"] != 1 {
				t.Errorf("label %q: elements %v", label, elements)
			}
		}
	}
}

// wellFormed parses a drawing and counts its elements.
func wellFormed(t *testing.T, svg string) map[string]int {
	t.Helper()
	elements := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return elements
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		if e, ok := token.(xml.StartElement); ok {
			elements[e.Name.Local]++
			for _, a := range e.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" || strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("attribute %s=%q of %s", a.Name.Local, a.Value, e.Name.Local)
				}
			}
		}
	}
}

func TestLinesDrawEveryPoint(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]Lines{
		"two":     {Title: "cost", X: "rows", Y: "steps", Rule: 1, Series: []Series{{"a", []Point{{1, 1}, {2, 1.2}, {3, 1.4}}}, {"b", []Point{{1, 0.2}, {3, 0.7}}}}},
		"gaps":    {Series: []Series{{"a", []Point{{1, 1}, {2, nan}, {3, -2}, {4, 2}, {nan, 1}, {5, math.Inf(1)}}}}},
		"one":     {Series: []Series{{"a", []Point{{4, 0}}}}},
		"nothing": {Rule: 3},
		"many":    {Series: slices.Repeat([]Series{{"a", []Point{{0, 1e-9}, {100, 1e-7}}}}, 9)},
		"huge":    {Series: []Series{{"a", []Point{{1, 1e300}, {2, 1}}}}},
	} {
		points, lines := 0, 0
		for _, s := range c.Series {
			lines += 2
			for _, p := range s.Points {
				if p.finite() {
					points++
				}
			}
		}
		elements := wellFormed(t, c.SVG())
		if elements["circle"] != points || elements["path"]+elements["line"] < lines || elements["text"] < 3 {
			t.Errorf("%s: %v, want %d points", name, elements, points)
		}
	}
}

func TestTickCutsIntoFewParts(t *testing.T) {
	for _, span := range []float64{1e-9, 0.07, 0.5, 1, 1.3, 2, 9, 10, 11, 4711, 1e12} {
		step := tick(span, 6)
		if n := span / step; n > 6.01 || n < 2 {
			t.Errorf("%g is cut into %g parts of %g", span, n, step)
		}
		if text := fmt.Sprintf("%.0e", step); !strings.ContainsAny(text[:1], "125") {
			t.Errorf("step %g of %g is not round", step, span)
		}
	}
}
