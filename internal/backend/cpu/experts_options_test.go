package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// expertsOptions is a mixture of experts with some options, and the bits it gives.
type expertsOptions struct {
	name          string
	sigmoid, bias bool
	groups, best  int
	normalize     bool
	scale         float32
	shared, gated bool
	bits          uint64
}

func expertsVariants() []expertsOptions {
	return []expertsOptions{
		{name: "softmax", bits: 0x161b07381de29259},
		{name: "softmax, normalized and scaled", normalize: true, scale: 2.5, bits: 0xfa9d03229a7e70ca},
		{name: "softmax, shared", normalize: true, shared: true, bits: 0x9e1274e03b082ae4},
		{name: "softmax, shared and gated", normalize: true, shared: true, gated: true, bits: 0x2cc430d3eed46a23},
		{name: "softmax, bias", bias: true, bits: 0xfce98654a2529430},
		{name: "softmax, groups", groups: 4, best: 2, normalize: true, bits: 0x0a7926751f0ae048},
		{name: "sigmoid", sigmoid: true, bits: 0x27daf6c0d5db8156},
		{name: "sigmoid, bias", sigmoid: true, bias: true, normalize: true, bits: 0x3ee784084854b574},
		{name: "sigmoid, groups", sigmoid: true, groups: 2, best: 1, bits: 0x073ec7a7a56210f0},
		{name: "sigmoid, groups of one", sigmoid: true, groups: 8, best: 3, normalize: true, bits: 0xb5fd372f00670646},
		{name: "GLM", sigmoid: true, bias: true, groups: 1, best: 1, normalize: true, scale: 1.8, shared: true, bits: 0x8ff38d0aa5cc218f},
		{name: "DeepSeek", sigmoid: true, bias: true, groups: 4, best: 2, normalize: true, scale: 2.5, shared: true, bits: 0x772ffe3f013cc48a},
	}
}

// expertStacks are float32 matrices, so that definition and result can be compared closely.
func expertStacks(t *testing.T) [8][]dtype.Matrix { return (&expertsCase{}).weights(t) }

// open loads the block on a backend.
func (c *expertsOptions) open(t *testing.T, b *Backend, stacks [8][]dtype.Matrix) *backend.Experts {
	t.Helper()
	var w [8]backend.Weight
	for i, stack := range stacks {
		var err error
		if w[i], err = b.Load(backend.Float32, stack...); err != nil {
			t.Fatal(err)
		}
	}
	e := &backend.Experts{
		TopK: expertTopK, Router: w[0], Gate: w[2], Up: w[3], Down: w[4],
		Sigmoid: c.sigmoid, Groups: c.groups, TopGroups: c.best, Normalize: c.normalize, Scale: c.scale,
	}
	if c.bias {
		e.Bias = randomTensor(t, b, rand.New(rand.NewPCG(7, 7)), 1, expertCount)
	}
	if c.shared {
		e.SharedGate, e.SharedUp, e.SharedDown = w[5], w[6], w[7]
	}
	if c.gated {
		e.SharedRouter = w[1]
	}
	return e
}

// run returns the block's answer for rows of random input, step of them at a time.
func (c *expertsOptions) run(t *testing.T, b *Backend, stacks [8][]dtype.Matrix, step int) []float32 {
	t.Helper()
	e := c.open(t, b, stacks)
	x, dst := expertInput(t, b)
	for i := 0; i < x.Rows; i += step {
		n := min(step, x.Rows-i)
		b.Experts(dst.RowRange(i, i+n), x.RowRange(i, i+n), backend.Tensor{}, e)
	}
	return bits(t, dst)
}

func expertInput(t *testing.T, b *Backend) (x, dst backend.Tensor) {
	t.Helper()
	rng := rand.New(rand.NewPCG(12, 12))
	x, dst = randomTensor(t, b, rng, 13, expertWidth), randomTensor(t, b, rng, 13, expertWidth)
	for r := range x.Rows {
		for i := range expertWidth {
			row(x, r)[i] *= 0.1 // logits about one apart: no expert has all the weight
		}
	}
	return x, dst
}

// TestExpertsOptionsEqualFloat64 compares every option with the definition, in float64.
func TestExpertsOptionsEqualFloat64(t *testing.T) {
	b := openTest(t, Options{Threads: 1})
	stacks := expertStacks(t)
	for _, c := range expertsVariants() {
		got := c.run(t, b, stacks, 100)
		e := c.open(t, b, stacks)
		x, dst := expertInput(t, b)
		worst := 0.0
		for r := range x.Rows {
			for i, want := range c.byDefinition(stacks, e, row(x, r), row(dst, r)) {
				worst = max(worst, math.Abs(want-float64(got[r*expertWidth+i]))/(1+math.Abs(want)))
			}
		}
		t.Logf("%s: worst error %.2g", c.name, worst)
		if !(worst < 1e-4) {
			t.Errorf("%s: worst error %g", c.name, worst)
		}
	}
}

// byDefinition is the answer for one row added to before.
func (c *expertsOptions) byDefinition(stacks [8][]dtype.Matrix, e *backend.Experts, x, before []float32) []float64 {
	times := func(m *dtype.Matrix, x []float64) []float64 {
		y, w := make([]float64, m.Rows), make([]float32, m.Cols)
		for i := range y {
			m.Row(w, i)
			for j, v := range w {
				y[i] += float64(v) * x[j]
			}
		}
		return y
	}
	expert := func(gate, up, down *dtype.Matrix, x []float64) []float64 {
		g, u := times(gate, x), times(up, x)
		for i := range g {
			g[i] *= u[i] / (1 + math.Exp(-g[i]))
		}
		return times(down, g)
	}
	in, out := make([]float64, len(x)), make([]float64, len(x))
	for i := range x {
		in[i], out[i] = float64(x[i]), float64(before[i])
	}
	add := func(y []float64, w float64) {
		for i := range out {
			out[i] += w * y[i]
		}
	}
	scores := times(&stacks[0][0], in)
	total := 0.0
	for i, s := range scores {
		if scores[i] = math.Exp(s); c.sigmoid {
			scores[i] = 1 / (1 + math.Exp(-s))
		}
		total += scores[i]
	}
	keys := slices.Clone(scores)
	for i := range keys {
		if !c.sigmoid {
			scores[i] /= total
			keys[i] = scores[i]
		}
		if c.bias {
			keys[i] += float64(row(e.Bias, 0)[i])
		}
	}
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	if c.groups > 1 {
		order = keptExperts(keys, c.groups, c.best)
	}
	sort.SliceStable(order, func(i, j int) bool { return keys[order[i]] > keys[order[j]] })
	total = 0
	for _, i := range order[:expertTopK] {
		total += scores[i]
	}
	for _, i := range order[:expertTopK] {
		w := scores[i]
		if c.normalize {
			w /= total
		}
		if c.scale != 0 {
			w *= float64(c.scale)
		}
		add(expert(&stacks[2][i], &stacks[3][i], &stacks[4][i], in), w)
	}
	if c.shared {
		w := 1.0
		if c.gated {
			w = 1 / (1 + math.Exp(-times(&stacks[1][0], in)[0]))
		}
		add(expert(&stacks[5][0], &stacks[6][0], &stacks[7][0], in), w)
	}
	return out
}

// keptExperts lists the experts of the best groups.
func keptExperts(keys []float64, groups, best int) []int {
	size := len(keys) / groups
	sums, order := make([]float64, groups), make([]int, groups)
	for g := range groups {
		sorted := slices.Clone(keys[g*size:][:size])
		slices.Sort(sorted)
		for _, x := range sorted[max(0, size-2):] {
			sums[g] += x
		}
		order[g] = g
	}
	sort.SliceStable(order, func(i, j int) bool { return sums[order[i]] > sums[order[j]] })
	kept := order[:best]
	slices.Sort(kept)
	var list []int
	for _, g := range kept {
		for i := range size {
			list = append(list, g*size+i)
		}
	}
	return list
}

// TestExpertsOptionsAreExact checks for every option that neither instruction sets and threads
// nor the other rows of a call change a bit, and that the bits are those that are recorded.
func TestExpertsOptionsAreExact(t *testing.T) {
	list := everyBackend(t)
	stacks := expertStacks(t)
	for _, c := range expertsVariants() {
		var whole [][]float32
		sameEverywhere(t, c.name, list, func(b *Backend) [][]float32 {
			whole = [][]float32{c.run(t, b, stacks, 100)}
			return whole
		})
		for _, step := range []int{1, 5} {
			sameLists(t, fmt.Sprintf("%s by %d rows", c.name, step), [][]float32{c.run(t, list[len(list)-2], stacks, step)}, whole)
		}
		if got := digest(whole); got != c.bits {
			t.Errorf("%s: bits %#016x, recorded are %#016x", c.name, got, c.bits)
		}
	}
}

// TestChooseByScoresBreaksTies has scores that vanish beside their biases: experts and groups
// with equal keys are taken in their order, and the weights are those of the scores.
func TestChooseByScoresBreaksTies(t *testing.T) {
	b := openTest(t, Options{Threads: 1})
	bias := randomTensor(t, b, rand.New(rand.NewPCG(1, 1)), 1, 8)
	for i := range row(bias, 0) {
		row(bias, 0)[i] = 1e9
	}
	e := &backend.Experts{TopK: 3, Sigmoid: true, Bias: bias, Groups: 4, TopGroups: 2}
	chosen, weights := make([]int32, 3), make([]float32, 3)
	logits := []float32{-3, -2, -1, 0, 1, 2, 3, 4}
	var s scratch
	chooseByScores(&s, chosen, weights, slices.Clone(logits), e, &b.isa.Vector)
	if want := []int32{0, 1, 2}; !slices.Equal(chosen, want) {
		t.Errorf("chosen %v, want %v", chosen, want)
	}
	for j, w := range weights {
		if want := 1 / (1 + math.Exp(-float64(logits[j]))); math.Abs(float64(w)-want) > 1e-6 {
			t.Errorf("weight %d is %v, want %v", j, w, want)
		}
	}
	// A negative key in a group that is kept wins over any in one that is not.
	copy(row(bias, 0), []float32{-9, -9, -9, -9, -9, -9, 5, -20})
	e.TopGroups = 1
	e.TopK = 2
	chooseByScores(&s, chosen[:2], weights[:2], slices.Clone(logits), e, &b.isa.Vector)
	if want := []int32{6, 7}; !slices.Equal(chosen[:2], want) {
		t.Errorf("chosen %v, want %v", chosen[:2], want)
	}
	// Scores that are all zero are no reason for what is not a number.
	e.Normalize = true
	zeros := slices.Repeat([]float32{float32(math.Inf(-1))}, 8)
	chooseByScores(&s, chosen[:2], weights[:2], zeros, e, &b.isa.Vector)
	if weights[0] != 0 || weights[1] != 0 {
		t.Errorf("weights %v of scores that are zero", weights[:2])
	}
}

// TestExpertsRefuseWhatCannotBeChosen lists what only a mistake of ours can ask for.
func TestExpertsRefuseWhatCannotBeChosen(t *testing.T) {
	b := openTest(t, Options{Threads: 1})
	stacks := expertStacks(t)
	for name, change := range map[string]func(e *backend.Experts){
		"uneven groups":          func(e *backend.Experts) { e.Groups, e.TopGroups = 3, 2 },
		"more groups than exist": func(e *backend.Experts) { e.Groups, e.TopGroups = 2, 3 },
		"too few experts":        func(e *backend.Experts) { e.Groups, e.TopGroups = 8, 2 },
		"more than all":          func(e *backend.Experts) { e.TopK = expertCount + 1 },
		"a short bias":           func(e *backend.Experts) { e.Bias = e.Bias.ColRange(0, expertCount-1) },
		"a gate of no expert":    func(e *backend.Experts) { e.SharedGate = nil },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			c := expertsOptions{bias: true, shared: true, gated: true}
			e := c.open(t, b, stacks)
			change(e)
			x, dst := expertInput(t, b)
			b.Experts(dst, x, backend.Tensor{}, e)
		}()
	}
}
