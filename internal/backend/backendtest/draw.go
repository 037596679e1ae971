package backendtest

import (
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/sampling"
)

// plain is a draw for package sample.
func plain(d backend.Draw) sampling.Plain {
	return sampling.Plain{Temperature: d.Temperature, Noise: d.Noise, Vocab: d.Cols, TopK: d.TopK, TopP: d.TopP, Levels: d.Levels}
}

// numbers is what a device tells of a draw.
func numbers(d sampling.Drawn) []float32 {
	exact := float32(0)
	if d.Exact {
		exact = 1
	}
	return []float32{float32(d.ID), d.Prob, exact}
}

// exactly is the id of a draw, -1 if it is not exact.
func exactly(d sampling.Drawn) int32 {
	if !d.Exact {
		return -1
	}
	return d.ID
}

// howToDraw are draws, no two neighbors alike, with and without each filter.
func (r *rig) howToDraw(rows, cols int) []backend.Draw {
	draws := make([]backend.Draw, rows)
	for i := range draws {
		draws[i] = backend.Draw{
			Temperature: []float64{0.7, 0, 3}[i%3], Noise: r.rng.Uint64(), Cols: i % 2 * (1 + cols/2),
			TopK: []int{0, 0, 1, 7, 50}[i%5], TopP: []float64{0, 0.9, 0.3, 1}[i%4], Levels: []int{0, 0, 0, 40, 1, 0, 200}[i%7],
		}
	}
	for i := 2; i < rows; i += 3 {
		d := &draws[i]
		blocks := (cols + backend.RowBlock - 1) / backend.RowBlock
		d.First = r.rng.IntN(blocks + 1)
		for b := d.First; b < blocks; b += 1 + r.rng.IntN(3) {
			d.Own = append(d.Own, int32(b))
		}
	}
	return draws
}

// ownOf is a row with minus infinity where columns do not count.
func ownOf(row []float32, d backend.Draw) []float32 {
	row = slices.Clone(row)
	if d.First == 0 {
		return row
	}
	for c := d.First * backend.RowBlock; c < len(row); c++ {
		if !slices.Contains(d.Own, int32(c/backend.RowBlock)) {
			row[c] = float32(math.Inf(-1))
		}
	}
	return row
}

// draw compares a device that can draw with package sample.
func (c *checker) draw() {
	d, ok := c.b.(backend.Drawer)
	if !ok {
		return
	}
	for _, s := range [][2]int{{1, 5000}, {17, 130}, {70, 33}, {2, 1}} {
		for _, views := range []bool{false, true} {
			what := fmt.Sprintf("%d×%d, views %v", s[0], s[1], views)
			c.on("Draw")
			c.holds(what, func(r *rig) (got, want []float32) {
				r.views = views
				logits, draws := r.logits(s[0], s[1]), r.howToDraw(s[0], s[1])
				var sampler sampling.Drawer
				for i := range draws {
					want = append(want, numbers(sampler.Draw(plain(draws[i]), ownOf(logits[i*s[1]:(i+1)*s[1]], draws[i])))...)
				}
				drawn := r.random(s[0], 3)
				d.Draw(drawn, r.tensor(s[0], s[1], logits), draws)
				return r.read(drawn), want
			})
		}
		c.on("EmbedDrawn")
		c.like(fmt.Sprintf("%d×%d", s[0], s[1]), func(r *rig) [][]float32 {
			w := r.load(backend.Int8, r.matrix(s[1], 70))
			ids, drawn := make([]int32, s[0]), make([]float32, 3*s[0])
			for i := range ids {
				ids[i] = int32(r.rng.IntN(s[1]))
				drawn[3*i] = float32(ids[i])
			}
			dst, src := r.random(s[0], 70), r.tensor(s[0], 3, drawn)
			if r.b == c.oracle {
				r.b.Embed(dst, w, ids)
			} else {
				d.EmbedDrawn(dst, w, src)
			}
			return [][]float32{r.read(dst)}
		})
	}
}
