package qwen35

import (
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	"github.com/foretoken/foretoken/internal/model/network"
)

// TestTapsChangeNothing compares a model with taps with itself without: its logits, its hidden
// rows, and what the last tap has with what the final norm is computed of.
func TestTapsChangeNothing(t *testing.T) {
	r := open(t, golden.Dir(t, "dense"), 0, model.Options{Quantize: 8})
	m := r.Model.(*network.Model)
	tokens := golden.Load(t, "dense").Cases[0].Tokens
	layers, width := r.Info().Layers, r.Info().Width
	want, wantHidden := r.Feed(t, model.Span{State: r.Sequence(t), Tokens: tokens, Want: len(tokens)})
	if err := m.Tap(layers, 1, layers+1); err != nil {
		t.Fatal(err)
	}
	s := r.Sequence(t)
	var logits [][]float32
	var hidden, last, second []float32
	for from := 0; from < len(tokens); {
		to := min(from+1+from%5, len(tokens))
		out, err := r.Forward([]model.Span{{State: s, Tokens: tokens[from:to], Want: to - from}})
		if err != nil {
			t.Fatal(err)
		}
		rows, err := out.Rows()
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			logits = append(logits, slices.Clone(row))
		}
		before, _ := m.HiddenRows()
		taps := modeltest.Columns(r.Host(t, out.Taps), width, 3)
		hidden, last, second = append(hidden, r.Host(t, out.Hidden)...), append(last, taps[0]...), append(second, taps[1]...)
		if !slices.Equal(taps[2], r.Host(t, out.Hidden)) {
			t.Errorf("rows [%d,%d): the tap behind the last differs from the hidden rows", from, to)
		}
		if !slices.Equal(r.Host(t, before), last[from*width:]) {
			t.Errorf("rows [%d,%d): the last tap is not what is normed", from, to)
		}
		from = to
	}
	same(t, "logits with taps", logits, want)
	if !slices.Equal(hidden, wantHidden) {
		t.Error("hidden rows with taps differ")
	}
	if whole := r.Tapped(t, model.Span{State: r.Sequence(t), Tokens: tokens}, 2); !slices.Equal(second, whole[1]) {
		t.Error("what enters layer 1 depends on how the text was cut")
	}
	if out, err := r.Forward([]model.Span{{State: r.Sequence(t), Tokens: tokens}}); err != nil || out.Taps.Rows != 0 {
		t.Errorf("%v, %d rows of taps after they were taken off", err, out.Taps.Rows)
	}
	for _, bad := range [][]int{{-1}, {layers + 2}, {1, 0, 1}} {
		if err := m.Tap(bad...); err == nil {
			t.Errorf("taps at %v were accepted", bad)
		}
	}
}
