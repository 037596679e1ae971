package conformance

import (
	"fmt"
	"maps"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// attendOption is a layer of attention with other options than those of attendCases.
type attendOption struct {
	name         string
	a            backend.Attention
	qNorm, kNorm bool
	positions    bool // rows have three positions of their own
}

// attendOptions has every option by itself, and some together.
func attendOptions() []attendOption {
	plain := backend.Attention{Heads: 4, KVHeads: 2, HeadDim: 16, Eps: 1e-6, Freqs: []float32{1, 0.3, 0.01}}
	latent := backend.Attention{Heads: 3, KVHeads: 1, HeadDim: 48, Latent: 32, Eps: 1e-6, Scale: 0.2, Freqs: []float32{1, 0.5, 0.25, 0.1}}
	with := func(a backend.Attention, change func(a *backend.Attention)) backend.Attention {
		change(&a)
		return a
	}
	return []attendOption{
		{name: "nothing", a: with(plain, func(a *backend.Attention) { a.Freqs = nil })},
		{name: "rotation", a: plain},
		{name: "query norm", a: plain, qNorm: true},
		{name: "key norm", a: plain, kNorm: true},
		{name: "gate", a: with(plain, func(a *backend.Attention) { a.Gate = true })},
		{name: "scale", a: with(plain, func(a *backend.Attention) { a.Scale = 0.05 })},
		{name: "wide values", a: with(plain, func(a *backend.Attention) { a.ValueDim = 32 })},
		{name: "narrow values and gate", a: with(plain, func(a *backend.Attention) { a.ValueDim, a.Gate = 5, true }), qNorm: true},
		{name: "interleaved", a: with(plain, func(a *backend.Attention) { a.Interleaved = true })},
		{name: "turn", a: with(plain, func(a *backend.Attention) { a.Turn = 1.25 })},
		{name: "positions", a: plain, positions: true},
		{name: "sections", a: with(plain, func(a *backend.Attention) { a.Sections = []uint8{0, 2, 1} }), positions: true},
		{name: "window 1", a: with(plain, func(a *backend.Attention) { a.Window = 1 })},
		{name: "window 20", a: with(plain, func(a *backend.Attention) { a.Window = 20 })},
		{name: "window 64", a: with(plain, func(a *backend.Attention) { a.Window = 64 })},
		{name: "latent", a: latent, kNorm: true},
		{name: "latent turn", a: with(latent, func(a *backend.Attention) { a.Turn, a.Interleaved = 1.25, true }), kNorm: true},
		{name: "latent, window and gate", a: with(latent, func(a *backend.Attention) { a.Window, a.Gate, a.Interleaved = 70, true, true }), qNorm: true},
		{name: "odd latent without rotation", a: with(latent, func(a *backend.Attention) { a.HeadDim, a.Latent, a.Freqs = 13, 7, nil })},
	}
}

// feed has the layer read a text of n rows in two calls, the second of which begins at from.
func (o *attendOption) feed(r *rig, kind dtype.Type, n, from int) [][]float32 {
	a, gain := o.a, o.a.HeadDim
	if a.Latent > 0 {
		gain = a.Latent
	}
	if o.qNorm {
		a.QNorm = r.random(1, gain)
	}
	if o.kNorm {
		a.KNorm = r.random(1, gain)
	}
	const before = 128 // bytes of a page for another layer
	var pages []backend.Tensor
	for range (n + backend.PageTokens - 1) / backend.PageTokens {
		pages = append(pages, r.bare(dtype.I8, 1, before+a.PageBytes(kind)))
	}
	q, k, dst := r.random(n, a.Queries()), r.random(n, a.KVHeads*a.HeadDim), r.random(n, a.Heads*a.Values())
	var v backend.Tensor
	if a.Latent == 0 {
		v = r.random(n, a.KVHeads*a.Values())
	}
	positions := make([][3]int32, n)
	for i := range positions {
		for j := range positions[i] {
			positions[i][j] = int32(r.rng.IntN(100))
		}
	}
	for _, rows := range [][2]int{{0, from}, {from, n}} {
		i, j := rows[0], rows[1]
		seq := backend.Seq{N: j - i, Pos: i, Pages: pages}
		if o.positions {
			seq.Positions = positions[i:j]
		}
		values := v
		if v.Rows > 0 {
			values = v.RowRange(i, j)
		}
		r.b.Attend(dst.RowRange(i, j), &a, backend.Place{Type: kind, Page: before}, q.RowRange(i, j), k.RowRange(i, j), values, []backend.Seq{seq})
	}
	results := [][]float32{r.read(dst)}
	for _, p := range pages {
		results = append(results, r.numbers(p))
	}
	return results
}

// attendOptions checks attention with options.
func (c *checker) attendOptions() {
	c.on("Attend")
	for _, o := range attendOptions() {
		for _, kind := range some(c, []dtype.Type{dtype.F16, dtype.F32, dtype.I8}, 3) {
			c.like(fmt.Sprintf("%s, pages of %v", o.name, kind), func(r *rig) [][]float32 { return o.feed(r, kind, 90, 63) })
		}
	}
}

// expertsOptions are mixtures of experts with other options than those of expertsCase.
var expertsOptions = map[string]func(r *rig, e *backend.Experts){
	"sigmoid scores": func(_ *rig, e *backend.Experts) { e.Sigmoid = true },
	"a bias for choosing": func(r *rig, e *backend.Experts) {
		e.Sigmoid, e.Bias = true, r.random(1, expertCount)
	},
	"groups": func(_ *rig, e *backend.Experts) { e.Groups, e.TopGroups = 4, 2 },
	"scale":  func(_ *rig, e *backend.Experts) { e.Scale = 2.5 },
	"a shared expert without a gate": func(_ *rig, e *backend.Experts) {
		e.SharedRouter = nil
	},
	"no shared expert": func(_ *rig, e *backend.Experts) {
		e.SharedRouter, e.SharedGate, e.SharedUp, e.SharedDown = nil, nil, nil, nil
	},
	"factors of experts": func(r *rig, e *backend.Experts) { e.PerExpert = r.random(1, expertCount) },
	"gates by GELU":      func(_ *rig, e *backend.Experts) { e.Activation = backend.GELUTanh },
	"all of Gemma": func(r *rig, e *backend.Experts) {
		e.Activation, e.PerExpert = backend.GELUTanh, r.random(1, expertCount)
		e.SharedRouter, e.SharedGate, e.SharedUp, e.SharedDown = nil, nil, nil, nil
	},
	"all of GLM": func(r *rig, e *backend.Experts) {
		e.Sigmoid, e.Bias, e.Groups, e.TopGroups, e.Scale, e.SharedRouter = true, r.random(1, expertCount), 2, 1, 1.8, nil
	},
}

// expertsOptions checks mixtures of experts with options.
func (c *checker) expertsOptions() {
	c.on("Experts")
	for _, name := range slices.Sorted(maps.Keys(expertsOptions)) { // in the same order every time
		change := expertsOptions[name]
		c.like(name, func(r *rig) [][]float32 { return expertsOption(r, 7, change, false) })
		if name == "all of Gemma" {
			for _, rows := range some(c, []int{1, 7}, 1) {
				c.like(fmt.Sprintf("%s and a row of the router's own, %d rows", name, rows), func(r *rig) [][]float32 {
					return expertsOption(r, rows, change, true)
				})
			}
		}
	}
	c.like("a row of the router's own", func(r *rig) [][]float32 {
		return expertsOption(r, 5, func(*rig, *backend.Experts) {}, true)
	})
}

func expertsOption(r *rig, rows int, change func(r *rig, e *backend.Experts), routed bool) [][]float32 {
	k := expertsCase{4, 64, true}
	e, x, dst := k.block(r), r.random(rows, expertWidth), r.random(rows, expertWidth)
	change(r, e)
	var router backend.Tensor
	if routed {
		router = r.random(rows, expertWidth)
	}
	r.b.Experts(dst, x, router, e)
	return [][]float32{r.read(dst), r.read(x)}
}

// attendReads checks calls without keys, which read what another layer has appended: rows that see
// themselves, and rows that see only what comes before them, in windows, in any company.
func (c *checker) attendReads() {
	c.on("Attend")
	kinds := []dtype.Type{dtype.F16, dtype.I8, dtype.F32}
	for i, k := range []readCase{{0, 2, 2, 32}, {20, 4, 2, 32}, {0, 2, 1, 512}, {64, 1, 2, 32}, {65, 8, 2, 32}} {
		list := some(c, kinds[i%len(kinds):], 3)
		if k.dim > 256 {
			list = kinds[:2] // pages of F32 need more memory than some devices have for one
		}
		for _, kind := range list {
			for _, before := range []bool{false, true} {
				c.like(fmt.Sprintf("pages of %v, %+v, before %v", kind, k, before), func(r *rig) [][]float32 { return k.read(r, kind, before) })
			}
		}
	}
}

// readCase is a layer that reads: its window, heads of queries for one of keys, heads of keys, and numbers of a head.
type readCase struct{ window, share, kv, dim int }

// read has three sequences of 64, 1 and 130 tokens, or 66 of wide heads, read by queries of another layer.
func (k readCase) read(r *rig, kind dtype.Type, before bool) [][]float32 {
	window, share, kv, dim, long := k.window, k.share, k.kv, k.dim, 130
	if dim > 256 {
		long = 66
	}
	owner := &backend.Attention{Heads: kv, KVHeads: kv, HeadDim: dim, Eps: 1e-6, Freqs: []float32{1, 0.3, 0}, KNorm: r.random(1, dim), Window: window}
	reader := &backend.Attention{
		Heads: kv * share, KVHeads: kv, HeadDim: dim, Eps: 1e-6, Freqs: []float32{1, 0.3, 0}, QNorm: r.random(1, dim), Scale: 1, Window: window, Before: before,
	}
	at := backend.Place{Type: kind, Page: 256}
	var batch []backend.Seq
	rows := 0
	for i, n := range []int{64, 1, long} {
		var pages []backend.Tensor
		for range (n + backend.PageTokens - 1) / backend.PageTokens {
			pages = append(pages, r.bare(dtype.I8, 1, at.Page+owner.PageBytes(kind)))
		}
		none := r.random(1, kv*dim).RowRange(0, 0)
		r.b.Attend(none, owner, at, none, r.random(n, kv*dim), r.random(n, kv*dim), []backend.Seq{{N: n, Pages: pages}})
		s := backend.Seq{First: rows, N: 1, Pos: n, Pages: pages}
		if !before { // the last tokens, which are there
			s.N = min(n, 1+2*i)
			s.Pos = n - s.N
		}
		batch, rows = append(batch, s), rows+s.N
	}
	q, dst := r.random(rows, reader.Queries()), r.random(rows, reader.Heads*dim)
	r.b.Attend(dst, reader, at, q, backend.Tensor{}, backend.Tensor{}, batch)
	results := [][]float32{r.read(dst)}
	for i, s := range batch {
		one := r.random(s.N, reader.Heads*dim)
		alone := s
		alone.First = 0
		r.b.Attend(one, reader, at, q.RowRange(s.First, s.First+s.N), backend.Tensor{}, backend.Tensor{}, []backend.Seq{alone})
		width := len(results[0]) / rows
		must(differ(r.read(one), results[0][s.First*width:(s.First+s.N)*width]))
		for _, p := range batch[i].Pages {
			results = append(results, r.numbers(p))
		}
	}
	return results
}
