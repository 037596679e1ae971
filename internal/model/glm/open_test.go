package glm

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// rig is a model with a pool for its sequences.
type rig struct {
	*Model
	b    backend.Backend
	pool *state.Pool
}

// open loads a checkpoint folder or a GGUF file for a test, which closes it at its end.
func open(tb testing.TB, dir string, threads int, o model.Options) *rig {
	tb.Helper()
	return openOn(tb, backendtest.Open(tb, backend.Options{Threads: threads}), dir, o)
}

func openOn(tb testing.TB, b backend.Backend, dir string, o model.Options) *rig {
	tb.Helper()
	m, err := tryOpen(tb, b, dir, o)
	if err != nil {
		tb.Fatal(err)
	}
	return &rig{Model: m, b: b, pool: state.NewPool(b, 1<<28)}
}

func tryOpen(tb testing.TB, b backend.Backend, dir string, o model.Options) (*Model, error) {
	tb.Helper()
	c := openFolder(tb, dir)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m, err := Open(c, b, o)
	checkSurvey(tb, c, m, err)
	if err == nil {
		tb.Cleanup(func() { _ = m.Close() })
	}
	return m, err
}

// openFolder opens the files of a checkpoint.
func openFolder(tb testing.TB, dir string) *checkpoint.Checkpoint {
	tb.Helper()
	var c *checkpoint.Checkpoint
	var err error
	if strings.HasSuffix(dir, ".gguf") {
		c, err = model.OpenGGUF(dir, "")
	} else {
		c, err = checkpoint.Open(dir)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// checkSurvey holds that a survey finds what opening refuses, and counts what it loads.
func checkSurvey(tb testing.TB, c *checkpoint.Checkpoint, m *Model, opened error) {
	tb.Helper()
	s, err := survey(c)
	if err != nil {
		if opened == nil {
			tb.Errorf("survey of a model that can be opened: %v", err)
		}
		return
	}
	sound := len(s.Missing)+len(s.Unknown)+len(s.Errors) == 0
	if sound != (opened == nil) {
		tb.Errorf("opening: %v; survey: missing %v, unknown %v, errors %v", opened, s.Missing, s.Unknown, s.Errors)
	}
	if opened == nil && (s.Parameters != m.Info().Parameters || s.Head.Present != m.Info().Head) {
		tb.Errorf("survey of %d parameters, head %t; loaded %d, %t", s.Parameters, s.Head.Present, m.Info().Parameters, m.Info().Head)
	}
}

// sequence opens an empty memory.
func (r *rig) sequence(tb testing.TB) *state.State { return r.memory(tb, r.Layout()) }

// pairs opens an empty memory for the head.
func (r *rig) pairs(tb testing.TB) *state.State { return r.memory(tb, r.head.Layout()) }

func (r *rig) memory(tb testing.TB, l state.Layout) *state.State {
	tb.Helper()
	s, err := r.pool.Open(l)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// feed runs one span and returns copies of its wanted logits and of its hidden rows.
func (r *rig) feed(tb testing.TB, s model.Span) (logits [][]float32, hidden []float32) {
	tb.Helper()
	out, err := r.Forward([]model.Span{s})
	if err != nil {
		tb.Fatal(err)
	}
	return rowsOf(tb, out), r.host(tb, out.Hidden)
}

// feedHead feeds pairs to the head and returns copies of all its logits and hidden rows.
func (r *rig) feedHead(tb testing.TB, s *state.State, hidden []float32, next []int32) (logits [][]float32, out []float32) {
	tb.Helper()
	x, err := r.b.Alloc(dtype.F32, len(next), r.Info().Width)
	if err != nil {
		tb.Fatal(err)
	}
	defer r.b.Free(x)
	if err := r.b.Write(x, hidden); err != nil {
		tb.Fatal(err)
	}
	o, err := r.head.Forward([]model.Span{{State: s, Tokens: next, Want: len(next), Hidden: x}}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return rowsOf(tb, o), r.host(tb, o.Hidden)
}

// rowsOf are copies of the logits of all spans.
func rowsOf(tb testing.TB, out model.Output) [][]float32 {
	tb.Helper()
	rows, err := out.Rows()
	if err != nil {
		tb.Fatal(err)
	}
	for i, row := range rows {
		rows[i] = slices.Clone(row)
	}
	return rows
}

func (r *rig) host(tb testing.TB, t backend.Tensor) []float32 {
	tb.Helper()
	x, err := r.b.Host(t)
	if err != nil {
		tb.Fatal(err)
	}
	return slices.Clone(x)
}

func argmax(x []float32) int32 { return int32(slices.Index(x, slices.Max(x))) }
