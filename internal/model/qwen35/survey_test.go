package qwen35

import (
	"math"
	"runtime"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
)

// checkSurvey holds a look at the headers against what Open made of the checkpoint: it must
// find fault if and only if Open did, and count the same. Every test that opens a folder
// comes through here, so every layout and every damage of theirs is looked at too.
func checkSurvey(tb testing.TB, dir string, m *Model, opened error) {
	tb.Helper()
	c, err := checkpoint.Open(dir)
	if err != nil {
		return
	}
	defer c.Close() //nolint:errcheck // read only
	s, err := Look(c)
	faulty := err != nil || len(s.Missing)+len(s.Unknown)+len(s.Errors) > 0
	if faulty != (opened != nil) {
		tb.Errorf("Open says %v, a look %v, %+v", opened, err, s)
	}
	if opened != nil || m.loaded.Bits != nil {
		return
	}
	i := m.Info()
	if s.Parameters != i.Parameters || s.Vocab != i.Vocab || s.AttentionLayers+s.DeltaLayers != i.Layers || s.Head.Present != i.Head {
		tb.Errorf("a look says %+v, a model %+v", s, i)
	}
	if len(s.Head.Norms) != 7 && s.Head.Present {
		tb.Errorf("%d norms of the head", len(s.Head.Norms))
	}
}

// TestLookKnowsMemory compares what loading is said to take with what it takes. Small
// matrices are padded to tiles, so the smaller the model the more there is besides.
func TestLookKnowsMemory(t *testing.T) {
	for name, tolerance := range map[string]float64{"tiny": 0.01, "dense": 0.05, "moe": 0.05} {
		r := open(t, golden.Dir(t, name), 1, model.Options{MaxDrafts: 8})
		c, err := checkpoint.Open(golden.Dir(t, name))
		if err != nil {
			t.Fatal(err)
		}
		s, err := Look(c)
		if err != nil {
			t.Fatal(err)
		}
		loaded := s.Loaded
		if w, ok := r.b.(backend.Sizer); ok {
			for _, size := range s.Sizes {
				for _, m := range size.Matrices {
					loaded += w.WeightBytes(&m.Form) - m.Bytes
				}
			}
		}
		if ratio := float64(loaded) / float64(r.Info().Bytes); math.Abs(ratio-1) > tolerance {
			t.Errorf("%s: a look says %d bytes, a model %d", name, loaded, r.Info().Bytes)
		}
		if !s.Layout.Equal(r.Layout()) || !s.HeadLayout.Equal(r.Head().Layout()) {
			t.Errorf("%s: state of a sequence %+v, want %+v", name, s.Layout, r.Layout())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLookAtGGUFDecodesNothing: the tensors of such a file are made when they are asked for,
// and a look must not ask.
func TestLookAtGGUFDecodesNothing(t *testing.T) {
	path, _ := convertGGUF(t, golden.Dir(t, "tiny"), "qwen35", oneType("Q8_0"), 1)
	c := openedGGUF(t, path)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, err := Look(c)
	runtime.ReadMemStats(&after)
	if err != nil || len(s.Missing)+len(s.Unknown)+len(s.Errors) > 0 || s.Parameters != 18_950_320 || !s.Head.Present {
		t.Errorf("%v, %+v", err, s)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
		t.Errorf("a look allocated %d bytes", n)
	}
}
