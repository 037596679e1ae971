package conformance

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/sampling"
)

// Plain is a draw for package sample.
func Plain(d backend.Draw) sampling.Plain {
	return sampling.Plain{Temperature: d.Temperature, Noise: d.Noise, Vocab: d.Cols, TopK: d.TopK, TopP: d.TopP, Levels: d.Levels}
}

// Numbers is what a device tells of a draw.
func Numbers(d sampling.Drawn) []float32 {
	exact := float32(0)
	if d.Exact {
		exact = 1
	}
	return []float32{float32(d.ID), d.Prob, exact}
}

// Exactly is the id of a draw, -1 if it is not exact.
func Exactly(d sampling.Drawn) int32 {
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

// tokens are rows of ascending ids.
func (r *rig) tokens(rows, cols int) (list []float32) {
	for range rows {
		id := 0
		for range cols {
			id += 1 + r.rng.IntN(5)
			list = append(list, float32(id))
		}
	}
	return list
}

// OwnOf is a row with minus infinity where columns do not count.
func OwnOf(row []float32, d backend.Draw) []float32 {
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

// DrawToken is a draw from a row whose columns stand for ids: from a row of all ids.
func DrawToken(s *sampling.Drawer, d backend.Draw, row, ids []float32) sampling.Drawn {
	row = OwnOf(row, d)
	all := make([]float32, int(ids[len(ids)-1])+1)
	for i := range all {
		all[i] = float32(math.Inf(-1))
	}
	for i := range cmp.Or(d.Cols, len(row)) {
		all[int(ids[i])] = max(all[int(ids[i])], row[i])
	}
	d.Cols = 0
	return s.Draw(Plain(d), all)
}

// CandidatesOf are the columns and numbers of Candidates for one row.
func CandidatesOf(row []float32, d backend.Draw, n int) (columns, numbers []float32) {
	row = OwnOf(row, d)
	var list []int
	for c, x := range row[:cmp.Or(d.Cols, len(row))] {
		if x >= -math.MaxFloat32 {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(min(row[b], math.MaxFloat32), min(row[a], math.MaxFloat32)) })
	list = list[:min(n, len(list))]
	slices.Sort(list)
	for _, c := range list {
		columns, numbers = append(columns, float32(c)), append(numbers, row[c])
	}
	for len(columns) < n {
		columns, numbers = append(columns, append(columns, 0)[0]), append(numbers, float32(math.Inf(-1)))
	}
	return columns, numbers
}

// ScoreOf is the number that Score adds to one number.
func ScoreOf(left, mid, right []float32) (sum float32) {
	for i := range left {
		sum += float32(float32(left[i]*mid[i]) * right[i])
	}
	return sum
}

// draw compares a device that can draw with package sample.
func (c *checker) draw() {
	d, ok := c.b.(backend.Drawer)
	if !ok {
		return
	}
	c.drawWide(d)
	for _, s := range [][2]int{{1, 5000}, {17, 130}, {70, 33}, {2, 1}} {
		for _, views := range []bool{false, true} {
			c.drawRows(d, s[0], s[1], views)
		}
		c.score(d, s[0])
		c.on("EmbedDrawn")
		c.like(fmt.Sprintf("%d×%d", s[0], s[1]), func(r *rig) [][]float32 {
			w := r.load(backend.Int8, r.matrix(s[1], 70))
			ids, drawn := make([]int32, s[0]), make([]float32, 3*s[0])
			for i := range ids {
				ids[i] = int32(r.rng.IntN(s[1]))
				drawn[3*i] = float32(ids[i])
			}
			dst, src, factor := r.random(s[0], 70), r.tensor(s[0], 3, drawn), []float32{0, 39.191836}[s[0]%2]
			if r.b == c.oracle {
				r.b.Embed(dst, w, ids, factor)
			} else {
				d.EmbedDrawn(dst, w, src, factor)
			}
			return [][]float32{r.read(dst)}
		})
	}
}

// drawRows draws from rows of logits, with and without a list of tokens, and selects candidates.
func (c *checker) drawRows(d backend.Drawer, n, cols int, views bool) {
	what := fmt.Sprintf("%d×%d, views %v", n, cols, views)
	c.on("Draw")
	c.holds(what, func(r *rig) (got, want []float32) {
		r.views = views
		logits, draws := r.logits(n, cols), r.howToDraw(n, cols)
		var sampler sampling.Drawer
		for i := range draws {
			want = append(want, Numbers(sampler.Draw(Plain(draws[i]), OwnOf(logits[i*cols:(i+1)*cols], draws[i])))...)
		}
		drawn := r.random(n, 3)
		d.Draw(drawn, r.tensor(n, cols, logits), backend.Tensor{}, draws)
		return r.read(drawn), want
	})
	for _, rows := range []int{1, n} {
		c.holds(fmt.Sprintf("%s, %d rows of tokens", what, rows), func(r *rig) (got, want []float32) {
			r.views = views
			logits, draws, ids := r.logits(n, cols), r.howToDraw(n, cols), r.tokens(rows, cols)
			var sampler sampling.Drawer
			for i := range draws {
				want = append(want, Numbers(DrawToken(&sampler, draws[i], logits[i*cols:(i+1)*cols], ids[i%rows*cols:][:cols]))...)
			}
			drawn := r.random(n, 3)
			d.Draw(drawn, r.tensor(n, cols, logits), r.tensor(rows, cols, ids), draws)
			return r.read(drawn), want
		})
	}
	c.on("Candidates")
	c.holds(what, func(r *rig) (got, want []float32) {
		r.views = views
		logits, draws := r.logits(n, cols), r.howToDraw(n, cols)
		const most = 16
		ids, best := r.random(n, most), r.random(n, most)
		d.Candidates(ids, best, r.tensor(n, cols, logits), draws)
		columns, values := r.read(ids), r.read(best)
		for i := range draws {
			x, y := CandidatesOf(logits[i*cols:(i+1)*cols], draws[i], most)
			got, want = slices.Concat(got, columns[i*most:(i+1)*most], values[i*most:(i+1)*most]), slices.Concat(want, x, y)
		}
		return got, want
	})
}

// drawWide draws from a row of more columns than devices read at once, and selects candidates: only the last ones count.
func (c *checker) drawWide(d backend.Drawer) {
	const without, cols, most = 1 << 17, 1<<17 + 2000, 16
	wide := func(r *rig) []float32 {
		return slices.Concat(slices.Repeat([]float32{float32(math.Inf(-1))}, without), r.list(cols-without))
	}
	c.on("Draw")
	c.holds("many columns", func(r *rig) (got, want []float32) {
		logits, drawn, draw := wide(r), r.random(1, 3), backend.Draw{Temperature: 3, TopK: 2000, TopP: 0.9, Noise: 1}
		d.Draw(drawn, r.tensor(1, cols, logits), backend.Tensor{}, []backend.Draw{draw})
		return r.read(drawn), Numbers(new(sampling.Drawer).Draw(Plain(draw), logits))
	})
	c.on("Candidates")
	c.holds("many columns", func(r *rig) (got, want []float32) {
		logits, ids, best := wide(r), r.random(1, most), r.random(1, most)
		d.Candidates(ids, best, r.tensor(1, cols, logits), make([]backend.Draw, 1))
		columns, values := CandidatesOf(logits, backend.Draw{}, most)
		return slices.Concat(r.read(ids), r.read(best)), slices.Concat(columns, values)
	})
}

// score adds products of three vectors to the numbers of candidates.
func (c *checker) score(d backend.Drawer, rows int) {
	c.on("Score")
	c.holds(fmt.Sprintf("%d rows", rows), func(r *rig) (got, want []float32) {
		const n, cols = 5, 37
		r.views = true
		numbers := [4][]float32{r.list(rows * n), r.list(rows * cols), r.list(rows * cols), r.list(rows * n * cols)}
		for i, x := range numbers[0] {
			at := i / n * cols
			want = append(want, x+ScoreOf(numbers[1][at:at+cols], numbers[2][at:at+cols], numbers[3][i*cols:(i+1)*cols]))
		}
		scores := r.tensor(rows, n, numbers[0])
		d.Score(scores, r.tensor(rows, cols, numbers[1]), r.tensor(rows, cols, numbers[2]), r.tensor(rows*n, cols, numbers[3]))
		return r.read(scores), want
	})
}
