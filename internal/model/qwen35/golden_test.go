package qwen35

import (
	"fmt"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
)

// TestModelEqualsReference holds the float path against the reference: greedy tokens,
// logits, hidden states, layer states, and the head.
func TestModelEqualsReference(t *testing.T) {
	for _, name := range golden.Names {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "tiny" {
				t.Skip("portable kernels take their time: dense and moe have all kinds of layers")
			}
			f := golden.Load(t, name)
			r := open(t, fixtureDir(t, name), 0, model.Options{Compute: backend.Float32})
			var g comparison
			for i := range f.Cases {
				if i%2 == 0 || !testing.Short() {
					g.compare(t, r, f, i)
				}
			}
			g.logits.Check(t, "logits", golden.Tol.Logits)
			g.hidden.Check(t, "hidden states", golden.Tol.Hidden)
			g.state.Check(t, "layer state", golden.Tol.State)
			g.head.Check(t, "head logits", golden.Tol.MTPLogits)
			t.Logf("%d of %d head rows are closer than %g, of which %d differ", g.close, g.rows, golden.Tol.MTPMargin, g.differ)
			if most := golden.Tol.MTPClose * float64(g.rows); float64(g.differ) > most {
				t.Errorf("the drafts of %d of %d head rows differ, which are closer than %g; at most %.1f may", g.differ, g.rows, golden.Tol.MTPMargin, most)
			}
		})
	}
}

// comparison collects the worst errors of a fixture.
type comparison struct {
	logits, hidden, state, head golden.Worst
	rows, close, differ         int // head rows, those within the margin, and those of them that differ
}

// compare feeds a case's whole text at once. Row exactness, tested elsewhere, makes its
// rows those of decoding token by token.
func (g *comparison) compare(t *testing.T, r *rig, f *golden.Fixture, i int) {
	c := &f.Cases[i]
	s := r.sequence(t)
	n := len(c.Prompt)
	prompt, hidden := r.feed(t, model.Span{State: s, Tokens: c.Prompt, Want: n})
	if i == 0 {
		g.layers(t, r, f)
		g.layerState(t, r, s.Seq(0, 0, 0, nil), f)
	}
	rest, more := r.feed(t, model.Span{State: s, Tokens: c.Tokens[n:], Want: len(c.Tokens) - n})
	logits := slices.Concat(prompt, rest)
	hidden = slices.Concat(hidden, more)
	for row, x := range logits {
		if got := argmax(x); got != c.Argmax[row] {
			t.Errorf("case %d row %d: argmax %d, want %d (margin %g)", i, row, got, c.Argmax[row], c.Margin[row])
		}
		if row+1 >= n && row+1 < len(c.Tokens) && argmax(x) != c.Tokens[row+1] {
			t.Errorf("case %d: greedy token %d differs", i, row+1)
		}
	}
	width := r.Info().Width
	head, _ := r.headLogits(t, hidden[:(len(c.Tokens)-1)*width], c.Tokens[1:])
	for row, x := range head {
		g.rows++
		m := margin(x)
		if m <= golden.Tol.MTPMargin {
			g.close++
		}
		if got := argmax(x); got != c.Draft1[row] {
			if m > golden.Tol.MTPMargin {
				t.Errorf("case %d row %d: draft %d, want %d (margin %g)", i, row, got, c.Draft1[row], m)
			}
			g.differ++
		}
	}
	// The logits of tiny were recorded before it got its last rows, those of pictures.
	vocab := f.Array(t, fmt.Sprintf("%d.logits_last", i)).Shape[1]
	for j := range 3 {
		at := n - 3 + j
		what := fmt.Sprintf("case %d row %d", i, at)
		g.logits.Add(what, logits[at][:vocab], f.Array(t, fmt.Sprintf("%d.logits_last", i)).Row(j))
		g.hidden.Add(what, hidden[at*width:(at+1)*width], f.Array(t, fmt.Sprintf("%d.hidden_last", i)).Row(j))
		g.head.Add(what, head[at][:vocab], f.Array(t, fmt.Sprintf("%d.mtp_logits_last", i)).Row(j))
	}
}

// layers compares the residual stream of the last prompt row of case 0 layer by layer.
func (g *comparison) layers(t *testing.T, r *rig, f *golden.Fixture) {
	prompt := f.Cases[0].Prompt
	for layer, x := range r.tapped(t, model.Span{State: r.sequence(t), Tokens: prompt}, r.Info().Layers) {
		what := fmt.Sprintf("input of layer %d", layer)
		g.hidden.Add(what, x[len(x)-r.Info().Width:], f.Array(t, fmt.Sprintf("0.hidden_states.%d", layer)).Data)
	}
}

// layerState compares what layer 0 stores. The reference keeps one input row more.
func (g *comparison) layerState(t *testing.T, r *rig, seq backend.Seq, f *golden.Fixture) {
	mem := seq.Delta[0]
	g.state.Add("recurrent state", r.host(t, mem.State), f.Array(t, "0.state0.recurrent").Data)
	conv := f.Array(t, "0.state0.conv") // [channels, K]
	k := conv.Shape[1]
	for j := range k - 1 {
		want := make([]float32, conv.Shape[0])
		for c := range want {
			want[c] = conv.Data[c*k+j+1]
		}
		g.state.Add(fmt.Sprintf("convolution row %d", j), r.host(t, mem.Tail.RowRange(j, j+1)), want)
	}
}
