// Package modeltest opens models for tests and holds models of every family to the same laws. It is
// for tests only.
package modeltest

import (
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/state"
)

func init() { backendtest.Divide = split.New }

// Rig is a model with memory for its sequences.
type Rig struct {
	model.Model
	B    backend.Backend
	Pool *state.Pool
}

// New is the rig of a model on b. The test closes the model at its end.
func New(tb testing.TB, m model.Model, b backend.Backend) *Rig {
	tb.Cleanup(func() { _ = m.Close() })
	return &Rig{Model: m, B: b, Pool: state.NewPool(b, 1<<40)}
}

// Open loads a checkpoint folder or a GGUF file.
func Open(tb testing.TB, path string, threads int, o model.Options) *Rig {
	tb.Helper()
	return OpenOn(tb, backendtest.Open(tb, backend.Options{Threads: threads}), path, o)
}

// OpenOn is Open on a device.
func OpenOn(tb testing.TB, b backend.Backend, path string, o model.Options) *Rig {
	tb.Helper()
	r, err := TryOpen(tb, b, path, o)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// TryOpen is OpenOn for a model that may be refused.
func TryOpen(tb testing.TB, b backend.Backend, path string, o model.Options) (*Rig, error) {
	tb.Helper()
	c, err := tryFiles(tb, path)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m, err := model.Open(c, b, o)
	if !o.NoHead {
		checkSurvey(tb, path, m, o, err)
	}
	if err != nil {
		return nil, err
	}
	return New(tb, m, b), nil
}

// Files opens a checkpoint folder or a GGUF file. The test closes it at its end.
func Files(tb testing.TB, path string) *checkpoint.Checkpoint {
	tb.Helper()
	c, err := tryFiles(tb, path)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func tryFiles(tb testing.TB, path string) (c *checkpoint.Checkpoint, err error) {
	if strings.HasSuffix(path, ".gguf") {
		c, err = model.OpenGGUF(path, "")
	} else {
		c, err = checkpoint.Open(path)
	}
	if err == nil {
		tb.Cleanup(func() {
			if err := c.Close(); err != nil {
				tb.Error(err)
			}
		})
	}
	return c, err
}

// Survey is the survey of a path by the headers, which is that of the config alone where it is not one of
// a family.
func Survey(tb testing.TB, path string) *weights.Survey {
	tb.Helper()
	s, err := model.Survey(Files(tb, path))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// checkSurvey compares the survey of a checkpoint with the result of opening it: it must find fault if and
// only if opening did, and count the same. Every test that opens a path comes through here, so every layout
// and every damage of theirs is surveyed too.
func checkSurvey(tb testing.TB, path string, m model.Model, o model.Options, opened error) {
	tb.Helper()
	s, err := model.Survey(Files(tb, path))
	if faulty := err != nil || len(s.Missing)+len(s.Unknown)+len(s.Errors) > 0; faulty != (opened != nil) {
		tb.Errorf("opening: %v; survey: %v, %+v", opened, err, s)
	}
	if opened != nil || o.Quantize > 0 {
		return
	}
	i := m.Info()
	if s.Parameters != i.Parameters || s.Vocab != i.Vocab || s.AttentionLayers+s.DeltaLayers != i.Layers || s.Head.Present != i.Head {
		tb.Errorf("the survey has %+v, the model %+v", s, i)
	}
}

// Sequence opens an empty state.
func (r *Rig) Sequence(tb testing.TB) *state.State { return r.Memory(tb, r.Layout()) }

// Pairs opens an empty state of the head.
func (r *Rig) Pairs(tb testing.TB) *state.State { return r.Memory(tb, r.Head().Layout()) }

// Memory opens an empty state of a layout.
func (r *Rig) Memory(tb testing.TB, l state.Layout) *state.State {
	tb.Helper()
	s, err := r.Pool.Open(l)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// Feed runs one span and returns copies of its wanted logits and of its hidden rows.
func (r *Rig) Feed(tb testing.TB, s model.Span) (logits [][]float32, hidden []float32) {
	tb.Helper()
	out, err := r.Forward([]model.Span{s})
	if err != nil {
		tb.Fatal(err)
	}
	return Rows(tb, out), r.Host(tb, out.Hidden)
}

// FeedHead feeds pairs to the head and returns copies of all its logits and hidden rows.
func (r *Rig) FeedHead(tb testing.TB, s *state.State, hidden []float32, next []int32) (logits [][]float32, out []float32) {
	tb.Helper()
	return r.FeedTo(tb, r.Head(), s, hidden, next)
}

// FeedTo is FeedHead for another head of the model.
func (r *Rig) FeedTo(tb testing.TB, h model.Head, s *state.State, hidden []float32, next []int32) (logits [][]float32, out []float32) {
	tb.Helper()
	x := r.Upload(tb, hidden)
	defer r.B.Free(x)
	o, err := h.Forward([]model.Span{{State: s, Tokens: next, Want: len(next), Hidden: x}}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return Rows(tb, o), r.Host(tb, o.Hidden)
}

// Answers are the logits for a text, and those of the head over its pairs if there is a head.
func (r *Rig) Answers(tb testing.TB, text []int32) (target, head [][]float32) {
	tb.Helper()
	target, hidden := r.Feed(tb, model.Span{State: r.Sequence(tb), Tokens: text, Want: len(text)})
	if r.Head() != nil {
		head, _ = r.FeedHead(tb, r.Pairs(tb), hidden[:(len(text)-1)*r.Info().Width], text[1:])
	}
	return target, head
}

// Tower is the vision tower, see model.Multimodal.
func (r *Rig) Tower() (model.Tower, error) { return r.Model.(model.Multimodal).Tower() }

// Tapped runs one span and returns copies of what entered the first n layers.
func (r *Rig) Tapped(tb testing.TB, s model.Span, n int) [][]float32 {
	tb.Helper()
	var layers []int
	for i := range n {
		layers = append(layers, i)
	}
	m := r.Model.(model.Tappable)
	if err := m.Tap(layers...); err != nil {
		tb.Fatal(err)
	}
	out, err := r.Forward([]model.Span{s})
	if err != nil {
		tb.Fatal(err)
	}
	rows := Columns(r.Host(tb, out.Taps), r.Info().Width, n)
	if err := m.Tap(); err != nil {
		tb.Fatal(err)
	}
	return rows
}

// Columns are the columns of rows that n tensors of a width stand in, side by side.
func Columns(x []float32, width, n int) [][]float32 {
	parts := make([][]float32, n)
	for i := 0; i < len(x); i += width {
		part := &parts[i/width%n]
		*part = append(*part, x[i:i+width]...)
	}
	return parts
}

// Upload brings rows of the model's width to the backend.
func (r *Rig) Upload(tb testing.TB, x []float32) backend.Tensor {
	tb.Helper()
	n := r.Info().Width
	t, err := r.B.Alloc(dtype.F32, len(x)/n, n)
	if err == nil {
		err = r.B.Write(t, x)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// Host is a copy of a tensor's numbers.
func (r *Rig) Host(tb testing.TB, t backend.Tensor) []float32 {
	tb.Helper()
	x, err := r.B.Host(t)
	if err != nil {
		tb.Fatal(err)
	}
	return slices.Clone(x)
}

// Saved is a state as it goes to disk.
func Saved(tb testing.TB, s *state.State) []byte {
	tb.Helper()
	x, err := s.Save()
	if err != nil {
		tb.Fatal(err)
	}
	defer x.Close()
	b, err := x.AppendTo(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// Rows are copies of the logits of all spans.
func Rows(tb testing.TB, out model.Output) [][]float32 {
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

// Argmax is the id of the highest logit.
func Argmax(x []float32) int32 { return int32(slices.Index(x, slices.Max(x))) }

// Same fails the test where two lists of rows differ in any bit.
func Same(tb testing.TB, what string, got, want [][]float32) {
	tb.Helper()
	if len(got) != len(want) {
		tb.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
	}
	for i := range want {
		for j := range want[i] {
			if math.Float32bits(got[i][j]) != math.Float32bits(want[i][j]) {
				tb.Fatalf("%s: row %d, logit %d: %v, want %v", what, i, j, got[i][j], want[i][j])
			}
		}
	}
}

// Numbers returns the numbers of every listed weight, by name.
func Numbers(tb testing.TB, v *weights.Inventory) map[string][]float32 {
	tb.Helper()
	list := map[string][]float32{}
	for i := range v.Weights {
		w := &v.Weights[i]
		if list[w.Name] != nil {
			tb.Errorf("%s is listed twice", w.Name)
		}
		x := make([]float32, 0, w.Parameters())
		var err error
		if w.IsMatrix() {
			var ms []dtype.Matrix
			ms, err = w.Matrices()
			row := make([]float32, w.Cols)
			for j := range ms {
				for r := range ms[j].Rows {
					ms[j].Row(row, r)
					x = append(x, row...)
				}
			}
		} else {
			x, err = w.Values()
		}
		if err != nil {
			tb.Fatal(err)
		}
		if int64(len(x)) != w.Parameters() {
			tb.Errorf("%s has %d numbers, not %d", w.Name, len(x), w.Parameters())
		}
		list[w.Name] = x
	}
	return list
}
