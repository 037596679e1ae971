package glm

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// TestModelEqualsReference holds the float path against the reference: greedy tokens, logits,
// hidden rows, the stream between layers, what layer 0 remembers, and the head with its chains.
func TestModelEqualsReference(t *testing.T) {
	for _, name := range golden.GLM {
		t.Run(name, func(t *testing.T) {
			equalsReference(t, name, golden.Dir(t, name))
		})
	}
}

// equalsReference compares what the model at path computes with a fixture.
func equalsReference(t *testing.T, name, path string) {
	t.Helper()
	f := golden.Load(t, name)
	r := open(t, path, 1, model.Options{Compute: backend.Float32})
	var g comparison
	for i := range f.Cases {
		g.compare(t, r, f, i)
	}
	g.logits.Check(t, "logits", golden.Tol.Logits)
	g.hidden.Check(t, "hidden rows", golden.Tol.Hidden)
	g.state.Check(t, "state", golden.Tol.State)
	g.head.Check(t, "head logits", golden.Tol.MTPLogits)
	g.headHidden.Check(t, "head rows", golden.Tol.Hidden)
	t.Logf("%d of %d chained drafts are closer than %g", g.close, g.drafts, golden.Tol.MTPMargin)
}

// comparison collects the worst errors of a fixture.
type comparison struct {
	logits, hidden, state, head, headHidden golden.Worst
	drafts, close                           int // of chains
}

func (g *comparison) compare(t *testing.T, r *rig, f *golden.Fixture, i int) {
	t.Helper()
	c := &f.Cases[i]
	s := r.sequence(t)
	n := len(c.Prompt)
	prompt, hidden := r.feed(t, model.Span{State: s, Tokens: c.Prompt, Want: n})
	if i == 0 {
		g.layers(t, r, f)
		g.remembered(t, r, s, f)
	}
	rest, more := r.feed(t, model.Span{State: s, Tokens: c.Tokens[n:], Want: len(c.Tokens) - n})
	logits := slices.Concat(prompt, rest)
	hidden = slices.Concat(hidden, more)
	for row, x := range logits {
		if got := argmax(x); got != c.Argmax[row] {
			t.Errorf("case %d row %d: argmax %d, want %d", i, row, got, c.Argmax[row])
		}
	}
	width := r.Info().Width
	head, out := r.feedHead(t, r.pairs(t), hidden[:(len(c.Tokens)-1)*width], c.Tokens[1:])
	for row, x := range head {
		if got := argmax(x); got != c.Draft1[row] && float64(c.Draft1Margin[row]) > golden.Tol.MTPMargin {
			t.Errorf("case %d row %d: draft %d, want %d (margin %g)", i, row, got, c.Draft1[row], c.Draft1Margin[row])
		}
	}
	for j := range 3 {
		at := n - 3 + j
		what := fmt.Sprintf("case %d row %d", i, at)
		g.logits.Add(what, logits[at], f.Array(t, fmt.Sprintf("%d.logits_last", i)).Row(j))
		g.hidden.Add(what, hidden[at*width:(at+1)*width], f.Array(t, fmt.Sprintf("%d.hidden_last", i)).Row(j))
		g.head.Add(what, head[at], f.Array(t, fmt.Sprintf("%d.mtp_logits_last", i)).Row(j))
		g.headHidden.Add(what, out[at*width:(at+1)*width], f.Array(t, fmt.Sprintf("%d.mtp_hidden_last", i)).Row(j))
	}
	if !testing.Short() || i == 0 {
		g.chains(t, r, c, i, hidden)
	}
}

// chains drafts three tokens after every row of the answer, as a drafter does that keeps the true
// pairs only.
func (g *comparison) chains(t *testing.T, r *rig, c *golden.Case, i int, hidden []float32) {
	t.Helper()
	s, width := r.pairs(t), r.Info().Width
	row := func(j int) []float32 { return hidden[j*width : (j+1)*width] }
	r.feedHead(t, s, hidden[:c.ChainFirst*width], c.Tokens[1:c.ChainFirst+1])
	for j, want := range c.Chain {
		at := c.ChainFirst + j
		logits, out := r.feedHead(t, s, row(at), c.Tokens[at+1:at+2])
		true1 := s.Len()
		for k := range want {
			g.drafts++
			close := float64(c.ChainMargin[j][k]) <= golden.Tol.MTPMargin
			if close {
				g.close++
			}
			got := argmax(logits[0])
			if got != want[k] {
				if !close {
					t.Errorf("case %d row %d: draft %d is %d, want %d (margin %g)", i, at, k, got, want[k], c.ChainMargin[j][k])
				}
				break // what follows another token is another chain
			}
			if k+1 < len(want) {
				logits, out = r.feedHead(t, s, out, []int32{got})
			}
		}
		s.Truncate(true1)
	}
}

// layers compares the residual stream of the last prompt row of case 0 layer by layer.
func (g *comparison) layers(t *testing.T, r *rig, f *golden.Fixture) {
	t.Helper()
	var layers []int
	for i := range r.Info().Layers {
		layers = append(layers, i)
	}
	if err := r.Tap(layers...); err != nil {
		t.Fatal(err)
	}
	out, err := r.Forward([]model.Span{{State: r.sequence(t), Tokens: f.Cases[0].Prompt}})
	if err != nil {
		t.Fatal(err)
	}
	x, width := r.host(t, out.Taps), r.Info().Width
	x = x[len(x)-len(layers)*width:] // the last row
	for i := range layers {
		g.hidden.Add(fmt.Sprintf("input of layer %d", i), x[i*width:(i+1)*width], f.Array(t, fmt.Sprintf("0.hidden_states.%d", i)).Data)
	}
	if err := r.Tap(); err != nil {
		t.Fatal(err)
	}
}

// remembered compares what layer 0 has of the prompt in its page.
func (g *comparison) remembered(t *testing.T, r *rig, s *state.State, f *golden.Fixture) {
	t.Helper()
	page := s.Seq(0, 0, 0, nil).Pages[0]
	data := make([]byte, page.Cols)
	if err := r.b.ReadBytes(data, page); err != nil {
		t.Fatal(err)
	}
	at := 0
	// part is the next heads of the page, of which the first rows are compared.
	part := func(what string, heads, width int, want []float32) {
		n := len(want) / heads / width
		for h := range heads {
			got := make([]float32, n*width)
			for i := range got {
				got[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[at+4*(h*backend.PageTokens*width+i):]))
			}
			g.state.Add(fmt.Sprintf("%s of head %d", what, h), got, want[h*n*width:(h+1)*n*width])
		}
		at += 4 * heads * backend.PageTokens * width
	}
	c := r.cfg
	if c.rank == 0 {
		part("keys", c.kvHeads, c.headDim, f.Array(t, "0.state0.key").Data)
		part("values", c.kvHeads, c.headDim, f.Array(t, "0.state0.value").Data)
		return
	}
	part("latent rows", 1, c.rank, f.Array(t, "0.state0.latent").Data)
	// The reference writes the first numbers of all pairs first, we leave them where they are.
	turned := f.Array(t, "0.state0.rope")
	pairs := make([]float32, len(turned.Data))
	for i, x := range turned.Data {
		row, col := i/c.rotary, i%c.rotary
		pairs[row*c.rotary+col%(c.rotary/2)*2+col/(c.rotary/2)] = x
	}
	part("rotated rows", 1, c.rotary, pairs)
}
