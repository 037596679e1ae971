package gemma

import (
	"math"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// ofShape is a released size.
func ofShape(t *testing.T, name string) *shape {
	t.Helper()
	i := slices.IndexFunc(releasedShapes, func(s shape) bool { return s.name == name })
	if i < 0 {
		t.Fatalf("no size %s", name)
	}
	return &releasedShapes[i]
}

// TestGenerateCountsAsPublished counts the parameters of the released sizes: of the text, and of these those that are only
// looked up.
func TestGenerateCountsAsPublished(t *testing.T) {
	for i, want := range []struct{ all, lookedUp int64 }{
		{4_628_569_379, 2_348_810_240}, {7_463_013_418, 2_818_572_288}, {11_907_350_320, 0}, {25_233_141_790, 0}, {30_697_345_340, 0},
	} {
		s := &releasedShapes[i]
		var all, lookedUp int64
		for w := range network.Tables(s.resolved()).Model {
			if all += w.Parameters(); w.Kind == weights.Lookup {
				lookedUp += w.Parameters()
			}
		}
		if all != want.all || lookedUp != want.lookedUp {
			t.Errorf("%s: %d parameters, %d looked up, published are %d and %d", s.name, all, lookedUp, want.all, want.lookedUp)
		}
	}
}

// TestGeneratedModelsCompute makes small models with everything that released sizes have, of more tokens than a generated
// table of layer embeddings has rows.
func TestGeneratedModelsCompute(t *testing.T) {
	for i := range releasedShapes {
		s := releasedShapes[i]
		s.width, s.inner, s.layers, s.shared, s.window = 64, 64, 2*s.every, min(s.shared, s.every), 40
		s.inputs, s.experts, s.expert, s.topK = min(s.inputs, 64), min(s.experts, 4), min(s.expert, 64), min(s.topK, 2)
		c := s.resolved()
		c.Vocab = 4096
		b := backendtest.Open(t, backend.Options{Threads: 1})
		m, err := network.Generate(c, weights.BitsForm(4), b, model.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := rigOf(t, m, b)
		logits, _ := r.Feed(t, model.Span{State: r.Sequence(t), Tokens: []int32{1, 4000, 7}, Want: 3})
		for _, row := range logits {
			for _, x := range row {
				if !(x >= -30 && x <= 30) {
					t.Fatalf("%s: a logit is %v", s.name, x)
				}
			}
		}
		if m.Head() != nil || m.Info().Head {
			t.Errorf("%s has a head", s.name)
		}
	}
}

// TestBoundariesOfReleasedSizes counts the bytes of the KV cache that a prompt of 32k tokens has in files: all pages without a window, and
// those that windows see at each boundary.
func TestBoundariesOfReleasedSizes(t *testing.T) {
	const tokens = 32 << 10
	for i, want := range []struct {
		every int
		gb    float64
	}{{2048, 0.31}, {2048, 0.91}, {8192, 1.96}, {8192, 1.56}, {8192, 6.25}} {
		l := releasedShapes[i].resolved().Layout(model.Options{}, false)
		every := l.Boundary()
		gb := float64(l.PageBytes()*tokens/backend.PageTokens+l.WindowBytes()*int64(tokens/every)) / 1e9
		if before := float64(l.PageBytes()*tokens/backend.PageTokens+l.WindowBytes()*tokens/1024) / 1e9; every != want.every || math.Abs(gb-want.gb) > 0.006 {
			t.Errorf("%s: a boundary every %d tokens, %.2f GB, with one every 1,024 tokens %.2f GB", releasedShapes[i].name, every, gb, before)
		}
	}
}
