// Package fold writes what generators made into package kernel. Assembly has a macro for every run of instructions that
// repeats, which is a third of the text, and its functions are declared in a Go file of the same name.
package fold

import (
	"cmp"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Write writes a file. A name that ends in .s is assembly.
func Write(name, text string) {
	if stem, ok := strings.CutSuffix(name, ".s"); ok {
		Write(stem+".go", declarations(text))
		text = folded(text)
	}
	if err := os.WriteFile(filepath.Join("..", name), []byte(text), 0o644); err != nil {
		log.Fatal(err)
	}
}

// declared is the declaration that a function's comment begins with.
var declared = regexp.MustCompile(`(?m)^// (func (\w+)\([^()]*\)( \([^()]*\))?)`)

// declarations is the Go side of assembly.
func declarations(text string) string {
	head, _, _ := strings.Cut(text, "#include")
	out := head + "package kernel\n"
	for _, d := range declared.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(text, "TEXT ·"+d[2]+"(SB)") {
			log.Fatalf("%s is declared and not defined", d[2])
		}
		if line := "\n//go:noescape\n" + d[1] + "\n"; !strings.Contains(out, line) {
			out += line
		}
	}
	return out
}

// Bytes of the use of a macro and of its definition, beside its body.
const (
	useSize    = 6
	defineSize = 18
	lineSize   = 2 // and of each line of the body more than outside
)

// A grammar replaces pairs of symbols that repeat, and then pairs of what replaced them. Symbols below len(lines) are lines
// of the text, and the others are pairs.
type grammar struct {
	lines []string
	pairs [][2]int
	text  []int
	size  []int  // of a symbol's text, by symbol, with the macros that it uses
	macro []bool // whether a pair has a macro, by symbol
}

// folded moves runs of instructions that repeat into macros, which may use each other.
func folded(text string) string {
	g := &grammar{}
	known := map[string]int{}
	for _, line := range strings.SplitAfter(text, "\n") {
		symbol, ok := known[line]
		if !ok {
			symbol = len(g.lines)
			g.lines = append(g.lines, line)
			known[line] = symbol
		}
		g.text = append(g.text, symbol)
	}
	for g.replace() {
	}
	g.choose()
	return g.write()
}

// inside tells whether a line may be part of a macro: an instruction without a comment. The linter reads lines with
// arguments and returns.
func (g *grammar) inside(symbol int) bool {
	if symbol >= len(g.lines) {
		return true
	}
	line := g.lines[symbol]
	return strings.HasPrefix(line, "\t") && !strings.Contains(line, "//") && !strings.Contains(line, "(FP)") && line != "\tRET\n"
}

// replace replaces the most frequent pairs, and reports whether there were any.
func (g *grammar) replace() bool {
	type place struct{ count, first, last int }
	places := map[[2]int]place{}
	for i := 1; i < len(g.text); i++ {
		pair := [2]int{g.text[i-1], g.text[i]}
		if !g.inside(pair[0]) || !g.inside(pair[1]) {
			continue
		}
		p, ok := places[pair]
		if !ok {
			p.first = i
		} else if p.last == i-1 && pair[0] == pair[1] { // of three equal symbols only two are a pair
			continue
		}
		places[pair] = place{p.count + 1, p.first, i}
	}
	maps.DeleteFunc(places, func(_ [2]int, p place) bool { return p.count < 3 })
	most := slices.SortedFunc(maps.Keys(places), func(a, b [2]int) int {
		return cmp.Or(places[b].count-places[a].count, places[a].first-places[b].first)
	})
	symbols, taken := map[[2]int]int{}, map[int]bool{}
	for _, pair := range most[:min(len(most), 64)] {
		if !taken[pair[0]] && !taken[pair[1]] { // the others in the next round
			taken[pair[0]], taken[pair[1]] = true, true
			symbols[pair] = len(g.lines) + len(g.pairs)
			g.pairs = append(g.pairs, pair)
		}
	}
	text := g.text[:0]
	for i := 0; i < len(g.text); i++ {
		symbol := g.text[i]
		if i+1 < len(g.text) {
			if pair, ok := symbols[[2]int{symbol, g.text[i+1]}]; ok {
				symbol = pair
				i++
			}
		}
		text = append(text, symbol)
	}
	g.text = text
	return len(symbols) > 0
}

// choose gives pairs a macro that make the text shorter. A pair comes after the pairs that it consists of.
func (g *grammar) choose() {
	uses := make([]int, len(g.lines)+len(g.pairs))
	for _, symbol := range g.text {
		uses[symbol]++
	}
	for _, pair := range g.pairs {
		uses[pair[0]]++
		uses[pair[1]]++
	}
	g.size, g.macro = make([]int, len(uses)), make([]bool, len(uses))
	for symbol, line := range g.lines {
		g.size[symbol] = len(line)
	}
	for i, pair := range g.pairs {
		symbol := len(g.lines) + i
		size := g.size[pair[0]] + g.size[pair[1]]
		lines := len(g.body(symbol))
		if uses[symbol]*(size-useSize) > size+lines*lineSize+defineSize {
			g.macro[symbol] = true
			size = useSize
		}
		g.size[symbol] = size
	}
}

// body is the lines and macros that a pair consists of.
func (g *grammar) body(symbol int) []int {
	var all []int
	for _, part := range g.pairs[symbol-len(g.lines)] {
		if part < len(g.lines) || g.macro[part] {
			all = append(all, part)
		} else {
			all = append(all, g.body(part)...)
		}
	}
	return all
}

// write is the text with its macros after the last file that it includes.
func (g *grammar) write() string {
	var out, macros strings.Builder
	spell := func(symbol int) string {
		if symbol < len(g.lines) {
			return g.lines[symbol]
		}
		return fmt.Sprintf("\tR_%d\n", symbol-len(g.lines))
	}
	for i := range g.pairs {
		if symbol := len(g.lines) + i; g.macro[symbol] {
			fmt.Fprintf(&macros, "#define R_%d", i)
			for _, part := range g.body(symbol) {
				macros.WriteString(" \\\n" + strings.TrimSuffix(spell(part), "\n"))
			}
			macros.WriteString("\n")
		}
	}
	last := 0
	for i, symbol := range g.text {
		if symbol < len(g.lines) && strings.HasPrefix(g.lines[symbol], "#include") {
			last = i
		}
	}
	for i, symbol := range g.text {
		parts := []int{symbol}
		if symbol >= len(g.lines) && !g.macro[symbol] {
			parts = g.body(symbol)
		}
		for _, part := range parts {
			out.WriteString(spell(part))
		}
		if i == last && macros.Len() > 0 {
			out.WriteString("\n// Runs of instructions that repeat.\n" + macros.String())
		}
	}
	return out.String()
}
