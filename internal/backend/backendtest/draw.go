package backendtest

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/sample"
)

// draw compares a device that can draw with package sample.
func (c *checker) draw() {
	d, ok := c.b.(backend.Drawer)
	if !ok {
		return
	}
	for _, s := range [][2]int{{1, 5000}, {17, 130}, {40, 33}, {2, 1}} {
		for _, views := range []bool{false, true} {
			what := fmt.Sprintf("%d×%d, views %v", s[0], s[1], views)
			c.on("Draw")
			c.holds(what, func(r *rig) (got, want []float32) {
				r.views = views
				logits, draws := r.logits(s[0], s[1]), make([]backend.Draw, s[0])
				var sampler sample.Drawer
				for i := range draws {
					p := sample.Plain{Temperature: []float64{0, 0.7, 3}[i%3], Noise: r.rng.Uint64(), Vocab: i % 2 * (1 + s[1]/2)}
					draws[i] = backend.Draw{Temperature: p.Temperature, Noise: p.Noise, Cols: p.Vocab}
					want = append(want, float32(sampler.Draw(p, logits[i*s[1]:(i+1)*s[1]])))
				}
				ids := r.random(s[0], 1)
				d.Draw(ids, r.tensor(s[0], s[1], logits), draws)
				return r.read(ids), want
			})
		}
		c.on("EmbedDrawn")
		c.like(fmt.Sprintf("%d×%d", s[0], s[1]), func(r *rig) [][]float32 {
			w := r.load(backend.Int8, r.matrix(s[1], 70))
			ids, drawn := make([]int32, s[0]), make([]float32, s[0])
			for i := range ids {
				ids[i] = int32(r.rng.IntN(s[1]))
				drawn[i] = float32(ids[i])
			}
			dst, src := r.random(s[0], 70), r.tensor(s[0], 1, drawn)
			if r.b == c.oracle {
				r.b.Embed(dst, w, ids)
			} else {
				d.EmbedDrawn(dst, w, src)
			}
			return [][]float32{r.read(dst)}
		})
	}
}
