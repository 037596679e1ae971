package modeltest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// EqualsReference compares the float path of the model at path with a fixture: greedy tokens, logits, hidden
// rows, the stream between layers, the state, and the head with its chains, if there is one. stored compares the state of layer 0
// after the prompt of case 0.
func EqualsReference(t *testing.T, name, path string, stored func(worst *golden.Worst, r *Rig, s *state.State, f *golden.Fixture)) {
	t.Helper()
	f := golden.Load(t, name)
	g := &comparison{Rig: Open(t, path, 0, model.Options{Compute: backend.Float32}), f: f}
	for i := range f.Cases {
		if i%2 == 0 || !testing.Short() {
			g.compare(t, i, stored)
		}
	}
	g.logits.Check(t, "logits", golden.Tol.Logits)
	g.hidden.Check(t, "hidden rows", golden.Tol.Hidden)
	g.state.Check(t, "state", golden.Tol.State)
	if g.Head() == nil {
		return
	}
	g.head.Check(t, "head logits", golden.Tol.MTPLogits)
	if f.Cases[0].Chain != nil {
		g.headHidden.Check(t, "head rows", golden.Tol.Hidden)
	}
	t.Logf("%d of %d head rows are closer than %g, of which %d differ", g.close, g.rows, golden.Tol.MTPMargin, g.differ)
	if most := golden.Tol.MTPClose * float64(g.rows); float64(g.differ) > most {
		t.Errorf("the drafts of %d of %d head rows differ, which are closer than %g; at most %.1f may", g.differ, g.rows, golden.Tol.MTPMargin, most)
	}
}

// comparison collects the worst errors of a fixture.
type comparison struct {
	*Rig
	f                                       *golden.Fixture
	logits, hidden, state, head, headHidden golden.Worst
	rows, close, differ                     int // head rows, those within the margin, and those of them that differ
}

// compare feeds a prompt and its answer. Row exactness, tested elsewhere, makes the rows those of decoding
// token by token.
func (g *comparison) compare(t *testing.T, i int, stored func(*golden.Worst, *Rig, *state.State, *golden.Fixture)) {
	t.Helper()
	c, s := &g.f.Cases[i], g.Sequence(t)
	n, width := len(c.Prompt), g.Info().Width
	prompt, hidden := g.Feed(t, model.Span{State: s, Tokens: c.Prompt, Want: n})
	if i == 0 {
		for layer, x := range g.Tapped(t, model.Span{State: g.Sequence(t), Tokens: c.Prompt}, g.Info().Layers) {
			g.hidden.Add(fmt.Sprintf("input of layer %d", layer), x[len(x)-width:], g.f.Array(t, fmt.Sprintf("0.hidden_states.%d", layer)).Data)
		}
		stored(&g.state, g.Rig, s, g.f)
	}
	rest, more := g.Feed(t, model.Span{State: s, Tokens: c.Tokens[n:], Want: len(c.Tokens) - n})
	logits := slices.Concat(prompt, rest)
	hidden = slices.Concat(hidden, more)
	for row, x := range logits {
		if got := Argmax(x); got != c.Argmax[row] {
			t.Errorf("case %d row %d: argmax %d, want %d", i, row, got, c.Argmax[row])
		}
		if row+1 >= n && row+1 < len(c.Tokens) && Argmax(x) != c.Tokens[row+1] {
			t.Errorf("case %d: greedy token %d differs", i, row+1)
		}
	}
	var head [][]float32
	var out []float32
	if g.Head() != nil {
		head, out = g.FeedHead(t, g.Pairs(t), hidden[:(len(c.Tokens)-1)*width], c.Tokens[1:])
	}
	for row, x := range head {
		margin := margin(x)
		if c.Draft1Margin != nil {
			margin = float64(c.Draft1Margin[row])
		}
		g.draft(t, fmt.Sprintf("case %d row %d", i, row), Argmax(x), c.Draft1[row], margin)
	}
	// A model may have got rows of its vocabulary after its logits were recorded.
	shape := g.f.Array(t, fmt.Sprintf("%d.logits_last", i)).Shape
	vocab := shape[1]
	for j := range shape[0] {
		at := n - shape[0] + j
		what, last := fmt.Sprintf("case %d row %d", i, at), func(name string) []float32 { return g.f.Array(t, fmt.Sprintf("%d.%s_last", i, name)).Row(j) }
		g.logits.Add(what, logits[at][:vocab], last("logits"))
		g.hidden.Add(what, hidden[at*width:(at+1)*width], last("hidden"))
		if head == nil {
			continue
		}
		g.head.Add(what, head[at][:vocab], last("mtp_logits"))
		if c.Chain != nil {
			g.headHidden.Add(what, out[at*width:(at+1)*width], last("mtp_hidden"))
		}
	}
	if head != nil && (!testing.Short() || i == 0) {
		g.chains(t, c, i, hidden)
	}
}

// draft compares a draft token, and reports whether it is the same.
func (g *comparison) draft(t *testing.T, what string, got, want int32, margin float64) bool {
	t.Helper()
	g.rows++
	if margin <= golden.Tol.MTPMargin {
		g.close++
	}
	if got == want {
		return true
	}
	if margin > golden.Tol.MTPMargin {
		t.Errorf("%s: draft %d, want %d (margin %g)", what, got, want, margin)
	}
	g.differ++
	return false
}

// chains drafts three tokens after every row of the answer, as a drafter does that keeps the true
// pairs only.
func (g *comparison) chains(t *testing.T, c *golden.Case, i int, hidden []float32) {
	t.Helper()
	if c.Chain == nil {
		return
	}
	s, width := g.Pairs(t), g.Info().Width
	g.FeedHead(t, s, hidden[:c.ChainFirst*width], c.Tokens[1:c.ChainFirst+1])
	for j, want := range c.Chain {
		at := c.ChainFirst + j
		logits, out := g.FeedHead(t, s, hidden[at*width:(at+1)*width], c.Tokens[at+1:at+2])
		true1 := s.Len()
		for k := range want {
			if !g.draft(t, fmt.Sprintf("case %d row %d draft %d", i, at, k), Argmax(logits[0]), want[k], float64(c.ChainMargin[j][k])) {
				break // what follows another token is another chain
			}
			if k+1 < len(want) {
				logits, out = g.FeedHead(t, s, out, want[k:k+1])
			}
		}
		s.Truncate(true1)
	}
}

// margin is the distance between the two highest numbers.
func margin(x []float32) float64 {
	first, second := math.Inf(-1), math.Inf(-1)
	for _, v := range x {
		switch v := float64(v); {
		case v > first:
			first, second = v, first
		case v > second:
			second = v
		}
	}
	return first - second
}

// HeadIsLeftOut opens checkpoints without their heads, some of which could not be loaded: they read and keep the
// bytes of the checkpoint at bare, which has no head, and give the same logits. The first is one with a head that can
// be loaded.
func HeadIsLeftOut(t *testing.T, prompt []int32, bare string, names, paths []string) {
	t.Helper()
	read := int64(0)
	without := func(t *testing.T, path string) (*Rig, int64, [][]float32) {
		r := Open(t, path, 1, model.Options{Compute: backend.Float32, NoHead: true, Progress: func(done, _ int64) { read = done }})
		logits, _ := r.Feed(t, model.Span{State: r.Sequence(t), Tokens: prompt, Want: len(prompt)})
		return r, read, logits
	}
	want, bytes, logits := without(t, bare)
	if want.Info().Head {
		t.Fatal("a head was found where there is none")
	}
	for i, path := range paths {
		t.Run(names[i], func(t *testing.T) {
			r, read, got := without(t, path)
			if r.Head() != nil || !r.Info().Head {
				t.Errorf("head %v, in the checkpoint: %t", r.Head(), r.Info().Head)
			}
			if read != bytes || r.Info().Bytes != want.Info().Bytes || r.Info().Parameters != want.Info().Parameters {
				t.Errorf("%d bytes read and %+v, want %d and %+v", read, r.Info(), bytes, want.Info())
			}
			Same(t, "logits", got, logits)
		})
	}
	if whole := Open(t, paths[0], 1, model.Options{Compute: backend.Float32}); whole.Info().Bytes <= want.Info().Bytes {
		t.Errorf("%d bytes with the head, %d without", whole.Info().Bytes, want.Info().Bytes)
	}
}
