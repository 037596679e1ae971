package bench

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/measure"
)

// DecodeReport is what speculative decoding gives, by setting and depth. What it says follows
// from its cells' repetitions and counts, and can be worked out again from them.
type DecodeReport struct {
	Model     string `json:"model"`
	Device    string `json:"device"`
	Load      string `json:"load,omitempty"` // of the machine, as far as it is known
	Repeats   int    `json:"repeats"`
	MaxTokens int    `json:"max_tokens"`
	Sampling  string `json:"sampling"` // filters and penalties of all requests

	Cells      []Cell     `json:"cells"`
	Totals     []Total    `json:"totals"`
	Costs      []Cost     `json:"costs"`
	Mismatches []Mismatch `json:"mismatches"`
	Noisy      bool       `json:"noisy"`    // some total's interval is too wide
	Timeline   []Track    `json:"timeline"` // of the first text, by depth
}

// Group is what the cells of all classes have in common.
type Group struct {
	Context     int     `json:"context"`
	Batch       int     `json:"batch"`
	Rule        string  `json:"rule"`
	Temperature float64 `json:"temperature"`
	Depth       int     `json:"depth"`
}

func (c *Cell) group() Group { return Group{c.Context, c.Batch, c.Rule, c.Temperature, c.Depth} }

// Total is the mean over the classes of a group. Rate is all tokens of a repetition over all its
// time, Ratio the geometric mean of the classes'.
type Total struct {
	Group
	Rate   measure.Spread `json:"tokens_per_second"`
	Ratio  measure.Spread `json:"ratio"`
	Noisy  bool           `json:"noisy"`
	Lowest string         `json:"lowest"` // class with the lowest ratio
	Slower []string       `json:"slower"` // classes whose interval is below Floor
}

// Floor is the ratio to plain decoding below which speculative decoding is slower: less is lost
// to catching up and trials.
const Floor = 0.99

// Cost is what a round with a draft takes and gives, in plain rounds: medians over the settings
// of one context and batch size.
type Cost struct {
	Context int     `json:"context"`
	Batch   int     `json:"batch"`
	Depth   int     `json:"depth"`
	Rows    float64 `json:"rows"` // of a pass
	Beta    float64 `json:"beta"`
	Delta   float64 `json:"delta"`
	Time    float64 `json:"time"` // of a round; the tokens it must give to break even
	Gain    float64 `json:"gain"` // the tokens it gives

	Acceptance float64 `json:"acceptance"` // accepted over drafted
	BreakEven  float64 `json:"break_even"` // the acceptance above which it is faster than plain decoding
}

// Exact reports whether every answer was that of plain decoding where it must be.
func (r *DecodeReport) Exact() bool {
	return !slices.ContainsFunc(r.Mismatches, func(m Mismatch) bool { return m.exact() })
}

// settle works out everything that follows from the measurements.
func (r *DecodeReport) settle() {
	plain := map[Setting]*Cell{}
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Depth == 0 {
			plain[c.Setting] = c
		}
	}
	for i := range r.Cells {
		r.Cells[i].settle(plain[r.Cells[i].Setting])
	}
	r.Totals, r.Costs, r.Noisy = nil, nil, false
	for _, g := range distinct(r, (*Cell).group) {
		t := r.total(g)
		r.Noisy = r.Noisy || t.Noisy
		r.Totals = append(r.Totals, t)
	}
	for _, g := range distinct(r, func(c *Cell) Group { return Group{Context: c.Context, Batch: c.Batch, Depth: c.Depth} }) {
		if g.Depth > 0 {
			r.Costs = append(r.Costs, r.cost(g))
		}
	}
}

// total works out the mean over the classes of a group.
func (r *DecodeReport) total(g Group) Total {
	t := Total{Group: g}
	same := func(c *Cell) bool {
		x := c.group()
		x.Depth = g.Depth
		return x == g
	}
	cells := r.at(g.Depth, same)
	t.Rate, t.Ratio = measure.NewSpread(rates(total(cells))), r.ratio(g.Depth, same)
	t.Noisy = t.Ratio.Noisy()
	lowest := cells[0]
	for _, c := range cells {
		if c.Ratio.Median < lowest.Ratio.Median {
			lowest = c
		}
		if c.Ratio.High < Floor {
			t.Slower = append(t.Slower, c.Class)
		}
	}
	t.Lowest = lowest.Class
	return t
}

// at lists the cells of a depth that are wanted.
func (r *DecodeReport) at(depth int, wanted func(*Cell) bool) []*Cell {
	var list []*Cell
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Depth == depth && wanted(c) {
			list = append(list, c)
		}
	}
	return list
}

// ratio is that of all wanted cells of a depth to plain decoding in the same settings.
func (r *DecodeReport) ratio(depth int, wanted func(*Cell) bool) measure.Spread {
	cells, plain := r.at(depth, wanted), r.at(0, wanted)
	groups := make([][]float64, len(cells))
	for i, c := range cells {
		groups[i] = ratios(c.Repeats, plain[i].Repeats)
	}
	return measure.Pooled(groups)
}

func (r *DecodeReport) cost(g Group) Cost {
	cells := r.at(g.Depth, func(c *Cell) bool { return c.Context == g.Context && c.Batch == g.Batch })
	of := func(value func(*Cell) float64) float64 {
		list := make([]float64, len(cells))
		for i, c := range cells {
			list[i] = value(c)
		}
		return measure.Median(list)
	}
	c := Cost{
		Context: g.Context, Batch: g.Batch, Depth: g.Depth, Rows: of(func(c *Cell) float64 { return c.Rows }), Beta: of(func(c *Cell) float64 { return c.Beta }),
		Delta: of(func(c *Cell) float64 { return c.Delta }), Gain: of(func(c *Cell) float64 { return c.TokensPerRound }),
	}
	draft := float64(g.Depth) * c.Delta
	c.Acceptance, c.BreakEven = of(func(c *Cell) float64 { return c.Acceptance }), measure.BreakEven(float64(g.Depth), c.Beta, draft)
	c.Time = c.Beta + draft
	return c
}

// distinct are the values that cells have, in the order they come.
func distinct[T comparable](r *DecodeReport, of func(*Cell) T) []T {
	var list []T
	for i := range r.Cells {
		if v := of(&r.Cells[i]); !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

func (r *DecodeReport) contexts() []int { return distinct(r, func(c *Cell) int { return c.Context }) }
func (r *DecodeReport) batches() []int  { return distinct(r, func(c *Cell) int { return c.Batch }) }
func (r *DecodeReport) rules() []string { return distinct(r, func(c *Cell) string { return c.Rule }) }
func (r *DecodeReport) depths() []int   { return distinct(r, func(c *Cell) int { return c.Depth }) }
func (r *DecodeReport) classes() []string {
	return distinct(r, func(c *Cell) string { return c.Class })
}

func (r *DecodeReport) temperatures() []float64 {
	return distinct(r, func(c *Cell) float64 { return c.Temperature })
}

// DepthName is a depth for people.
func DepthName(depth int) string {
	switch depth {
	case 0:
		return "plain"
	case AutoDepth:
		return "auto"
	}
	return fmt.Sprint(depth)
}

// best is the depth that reports look at first: the one that is chosen while it runs, or
// else the deepest.
func (r *DecodeReport) best() int {
	depths := r.depths()
	if slices.Contains(depths, AutoDepth) {
		return AutoDepth
	}
	return slices.Max(depths)
}
