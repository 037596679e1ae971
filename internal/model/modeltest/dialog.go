package modeltest

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/state"
)

// Dialog has two sequences of a model and of its head, if it has one, go on side by side, and returns all that was
// computed, a line for each step.
func Dialog(t *testing.T, b backend.Backend, dir string, o model.Options, rounds int) (steps []string) {
	t.Helper()
	c := Files(t, dir)
	o.MaxDrafts, o.Log = 3, slog.New(slog.DiscardHandler)
	m, err := model.Open(c, b, o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // what it does not free the device does
	seqs := pairs(t, state.NewPool(b, 1<<26), m)
	for _, s := range seqs {
		defer s.Close()
	}
	next := int32(3)
	tokens := func(n int) []int32 {
		list := make([]int32, n)
		for i := range list {
			next = (next*31 + 7) % int32(min(500, m.Info().Vocab))
			list[i] = next
		}
		return list
	}
	add := func(out model.Output) {
		t.Helper()
		rows, err := out.Rows()
		if err != nil {
			t.Fatal(err)
		}
		var bits []uint32
		for _, row := range rows {
			for _, x := range row {
				bits = append(bits, math.Float32bits(x))
			}
		}
		steps = append(steps, fmt.Sprint(bits))
	}
	forward := func(drafts, first, second int) model.Output {
		t.Helper()
		out, err := m.Forward([]model.Span{
			{State: seqs[0], Tokens: tokens(first), Drafts: drafts, Want: drafts + 1},
			{State: seqs[1], Tokens: tokens(second), Want: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		add(out)
		return out
	}
	forward(0, 7, 3)
	for i := range rounds {
		out := forward(2, 3, 1)
		seqs[0].Commit(i % 3)
		if len(seqs) == 2 {
			continue
		}
		heads := []model.Span{
			{State: seqs[2], Tokens: tokens(2), Want: 1, Hidden: out.Hidden.RowRange(0, 2)},
			{State: seqs[3], Tokens: tokens(1), Want: 1, Hidden: out.Hidden.RowRange(3, 4)},
		}
		draws := slices.Repeat([][]backend.Draw{{{}, {Temperature: 0.8, Noise: uint64(i + 5)}}}, 2)
		steps = append(steps, fmt.Sprint(chain(t, m.Head(), heads, draws)))
	}
	return append(steps, saved(t, seqs)...)
}

// pairs is two states of a model and two of its head, if it has one.
func pairs(t *testing.T, pool *state.Pool, m model.Model) (seqs []*state.State) {
	t.Helper()
	layouts := []state.Layout{m.Layout(), m.Layout()}
	if h := m.Head(); h != nil {
		layouts = append(layouts, h.Layout(), h.Layout())
	}
	for _, l := range layouts {
		s, err := pool.Open(l)
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, s)
	}
	return seqs
}

// saved is the states as they go to disk.
func saved(t *testing.T, seqs []*state.State) (list []string) {
	t.Helper()
	for _, s := range seqs {
		saved, err := s.Save()
		if err != nil {
			t.Fatal(err)
		}
		data, err := saved.AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		saved.Close()
		list = append(list, fmt.Sprintf("%x", data))
	}
	return list
}

// chain is Chain of a head. On a device that does not draw, package sample draws from the rows of each call.
func chain(t *testing.T, head model.Head, spans []model.Span, draws [][]backend.Draw) [][]model.Drawn {
	t.Helper()
	drawn, ok, err := head.(model.Chainer).Chain(spans, nil, draws)
	if err != nil {
		t.Fatal(err)
	}
	if ok {
		return drawn
	}
	spans = slices.Clone(spans)
	for _, draws := range draws {
		out, err := head.Forward(spans, nil)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := out.Rows()
		if err != nil {
			t.Fatal(err)
		}
		var list []model.Drawn
		row := 0
		for i, d := range draws {
			x := new(sampling.Drawer).Draw(sampling.Plain{Temperature: d.Temperature, Noise: d.Noise}, rows[i])
			list = append(list, model.Drawn{ID: x.ID, Prob: x.Prob})
			row += len(spans[i].Tokens)
			spans[i] = model.Span{State: spans[i].State, Tokens: []int32{x.ID}, Want: 1, Hidden: out.Hidden.RowRange(row-1, row)}
		}
		drawn = append(drawn, list)
	}
	return drawn
}
