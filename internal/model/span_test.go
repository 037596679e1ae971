package model_test

import (
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
)

// TestSpanCheck finds one mistake at a time.
func TestSpanCheck(t *testing.T) {
	rows := func(at, n int) backend.Input {
		return backend.Input{At: at, Rows: backend.Tensor{Type: dtype.F32, Rows: n, Cols: 8, Stride: 8}}
	}
	sound := func() model.Span {
		return model.Span{
			Tokens: []int32{0, -1, -1, 99, -1, 5}, Drafts: 1, Want: 2, Positions: make([][3]int32, 6),
			Inputs: []backend.Input{rows(1, 2), rows(4, 1)},
		}
	}
	if s := sound(); s.Check(100, 8) != nil {
		t.Fatal(s.Check(100, 8))
	}
	for _, c := range []struct {
		damage func(s *model.Span)
		want   string
	}{
		{func(s *model.Span) { s.Tokens = nil }, "0 tokens"},
		{func(s *model.Span) { s.Drafts = 7 }, "7 draft tokens"},
		{func(s *model.Span) { s.Want = -1 }, "-1 wanted rows"},
		{func(s *model.Span) { s.Tokens[3] = 100 }, "token id 100 is outside"},
		{func(s *model.Span) { s.Tokens[5] = -1 }, "token id -1 is outside"},
		{func(s *model.Span) { s.Tokens[2] = 7 }, "token id 7 at the position of a row"},
		{func(s *model.Span) { s.Inputs = s.Inputs[:1] }, "token id -1 is outside"},
		{func(s *model.Span) { s.Inputs[1] = rows(2, 1) }, "1 rows at position 2"},
		{func(s *model.Span) { s.Inputs[0].At, s.Inputs[1].At = 3, 1 }, "token id 99 at the position"},
		{func(s *model.Span) { s.Inputs[1] = rows(4, 3) }, "3 rows at position 4"},
		{func(s *model.Span) { s.Inputs[1] = rows(4, 0) }, "0 rows at position 4"},
		{func(s *model.Span) { s.Inputs[0] = rows(-1, 2) }, "2 rows at position -1"},
		{func(s *model.Span) { s.Inputs[0].Rows.Cols = 9 }, "rows of 9 numbers"},
		{func(s *model.Span) { s.Inputs[0].Rows.Type = dtype.F16 }, "of 8 of type"},
		{func(s *model.Span) { s.Positions = s.Positions[:5] }, "5 positions for 6 tokens"},
		{func(s *model.Span) { s.Positions[3][1] = -2 }, "position [0 -2 0]"},
	} {
		s := sound()
		c.damage(&s)
		if err := s.Check(100, 8); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
