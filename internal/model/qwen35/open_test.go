package qwen35

import (
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// rig is a model with a pool for its sequences.
type rig struct {
	*Model
	b    backend.Backend
	pool *state.Pool
}

// open loads a checkpoint folder for a test, which closes it at its end.
func open(tb testing.TB, dir string, threads int, o model.Options) *rig {
	tb.Helper()
	r, err := tryOpen(tb, dir, threads, o)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func tryOpen(tb testing.TB, dir string, threads int, o model.Options) (*rig, error) {
	tb.Helper()
	openAt := checkpoint.Open
	if strings.HasSuffix(dir, ".gguf") {
		openAt = func(path string) (*checkpoint.Checkpoint, error) { return model.OpenGGUF(path, "") }
	}
	c, err := openAt(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	}()
	b := backendtest.Open(tb, backend.Options{Threads: threads})
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m, err := Open(c, b, o)
	checkSurvey(tb, dir, m, err)
	if err != nil {
		return nil, err
	}
	tb.Cleanup(func() { _ = m.Close() })
	return &rig{Model: m, b: b, pool: state.NewPool(b, 1<<30)}, nil
}

// sequence opens an empty memory.
func (r *rig) sequence(tb testing.TB) *state.State {
	tb.Helper()
	s, err := r.pool.Open(r.Layout())
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

// tapped runs one span and returns copies of what entered the first n layers.
func (r *rig) tapped(tb testing.TB, s model.Span, n int) [][]float32 {
	tb.Helper()
	var layers []int
	for i := range n {
		layers = append(layers, i)
	}
	if err := r.Tap(layers...); err != nil {
		tb.Fatal(err)
	}
	out, err := r.Forward([]model.Span{s})
	if err != nil {
		tb.Fatal(err)
	}
	rows := columns(r.host(tb, out.Taps), r.Info().Width, n)
	if err := r.Tap(); err != nil {
		tb.Fatal(err)
	}
	return rows
}

// columns are the columns of rows that n tensors of a width stand in, side by side.
func columns(x []float32, width, n int) [][]float32 {
	parts := make([][]float32, n)
	for i := 0; i < len(x); i += width {
		part := &parts[i/width%n]
		*part = append(*part, x[i:i+width]...)
	}
	return parts
}

func (r *rig) host(tb testing.TB, t backend.Tensor) []float32 {
	tb.Helper()
	x, err := r.b.Host(t)
	if err != nil {
		tb.Fatal(err)
	}
	return slices.Clone(x)
}

// upload brings rows of the model's width to the backend.
func (r *rig) upload(tb testing.TB, x []float32) backend.Tensor {
	tb.Helper()
	n := r.Info().Width
	t, err := r.b.Alloc(dtype.F32, len(x)/n, n)
	if err == nil {
		err = r.b.Write(t, x)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// headLogits runs the head over pairs from an empty memory and returns all its rows.
func (r *rig) headLogits(tb testing.TB, hidden []float32, next []int32) (logits [][]float32, out []float32) {
	tb.Helper()
	s, err := r.pool.Open(r.Head().Layout())
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	return r.feedHead(tb, s, hidden, next)
}

func (r *rig) feedHead(tb testing.TB, s *state.State, hidden []float32, next []int32) (logits [][]float32, out []float32) {
	tb.Helper()
	o, err := r.Head().Forward([]model.Span{{State: s, Tokens: next, Want: len(next), Hidden: r.upload(tb, hidden)}}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return rowsOf(tb, o), r.host(tb, o.Hidden)
}

func argmax(x []float32) int32 { return int32(slices.Index(x, slices.Max(x))) }

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

func fixtureDir(tb testing.TB, name string) string { return golden.Dir(tb, name) }
