// Package bench measures: speculative against plain decoding, models of any released size with
// generated weights, their kernels beside the memory bandwidth at that moment, servers under
// load, and peers. What is compared is measured alternately, and what is reported can be worked
// out again from the measurements in the report. It knows ids and prompts but no checkpoints,
// and prints nothing.
package bench

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/qwen35"
	"github.com/foretoken/foretoken/internal/state"
)

// ModelOptions say what to measure.
type ModelOptions struct {
	Shape   string
	Bits    int   // of weights: 2, 3, 4, 5, 6, 8, or 16 for bf16
	Rows    []int // rows of one sequence in a pass
	Prompts []int // lengths of prompts
	Context int   // tokens before the measured passes
	Repeats int   // of everything; the median counts
	Memory  int   // bytes of the plain reads; 0: far more than a cache has
	// Progress, if not nil, is told what comes next.
	Progress func(what string)
}

// ModelReport is what passes cost. Times are medians, interleaved with reads of memory.
type ModelReport struct {
	Device     string    `json:"device"`
	Shape      string    `json:"shape"`
	Bits       int       `json:"bits"`
	Parameters int64     `json:"parameters"`
	Bytes      int64     `json:"bytes"`     // of weights that a pass reads
	ReadGBs    float64   `json:"read_gb_s"` // plain reading of memory, all threads
	Context    int       `json:"context"`
	Passes     []Pass    `json:"passes"`
	Prompts    []Prefill `json:"prompts"`
	Draft      Pass      `json:"draft"`        // one draft token of the head, from the whole vocabulary
	Shares     [][]Share `json:"shares"`       // of the passes, by operation
	DraftShare []Share   `json:"draft_shares"` // of the draft token
}

// Pass is one pass over a few rows of one sequence.
type Pass struct {
	Rows    int     `json:"rows"`
	Seconds float64 `json:"seconds"`
	GBs     float64 `json:"gb_s"`    // weights over time
	OfRead  float64 `json:"of_read"` // that, over ReadGBs
	OfOne   float64 `json:"of_one"`  // time, over that of one row
	GOps    float64 `json:"gop_s"`   // multiplications and additions of matrix products, in thousand millions per second
}

// Prefill is the prefill of a prompt.
type Prefill struct {
	Tokens       int     `json:"tokens"`
	Seconds      float64 `json:"seconds"`
	TokensPerSec float64 `json:"tokens_per_second"`
	GOps         float64 `json:"gop_s"` // as Pass has it
}

// plenty is far more bytes than a cache has.
const plenty = 512 << 20

// Model generates a model and measures it.
func Model(dev *cpu.Backend, o ModelOptions) (*ModelReport, error) {
	say := o.Progress
	if say == nil {
		say = func(string) {}
	}
	say(fmt.Sprintf("generating a %s model of %d bits", o.Shape, o.Bits))
	b := newTimed(dev)
	m, err := qwen35.Generate(o.Shape, o.Bits, b, model.Options{MaxDrafts: max(slices.Max(o.Rows)-1, 1), DraftVocab: -1})
	if err != nil {
		return nil, err
	}
	defer m.Close() //nolint:errcheck // frees memory only
	stream, err := dev.NewStream(cmp.Or(o.Memory, plenty))
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	run := &modelRun{m: m, b: b, pool: state.NewPool(dev, 1<<40), o: o, say: say}
	if err := run.open(); err != nil {
		return nil, err
	}
	defer run.seq.Close()
	reads := make([]float64, 0, o.Repeats)
	for i := range o.Repeats {
		say(fmt.Sprintf("repeat %d of %d", i+1, o.Repeats))
		reads = append(reads, stream.Read().Seconds())
		if err := run.repeat(); err != nil {
			return nil, err
		}
	}
	info := m.Info()
	r := &ModelReport{
		Device: dev.Name(), Shape: o.Shape, Bits: o.Bits, Parameters: info.Parameters,
		Bytes: m.PassBytes(), Context: o.Context, ReadGBs: float64(stream.Bytes()) / measure.Median(reads) / 1e9,
	}
	run.report(r)
	return r, nil
}

// modelRun is a measurement under way.
type modelRun struct {
	m    *qwen35.Model
	b    *timed
	pool *state.Pool
	o    ModelOptions
	say  func(string)

	seq        *measure.Sequence
	passes     [][]float64 // by o.Rows
	shares     [][]Share
	ops        []float64   // of a pass, by o.Rows
	prompts    [][]float64 // by o.Prompts
	promptOps  []float64
	drafts     []float64
	draftShare []Share
}

// open fills the context and warms up.
func (r *modelRun) open() error {
	var err error
	if r.seq, err = measure.Open(r.m, r.m.Drafter(), r.pool, r.m.Info().Vocab); err != nil {
		return err
	}
	r.passes, r.shares = make([][]float64, len(r.o.Rows)), make([][]Share, len(r.o.Rows))
	r.prompts = make([][]float64, len(r.o.Prompts))
	r.ops, r.promptOps = make([]float64, len(r.o.Rows)), make([]float64, len(r.o.Prompts))
	for left := r.o.Context; left > 0; {
		r.say(fmt.Sprintf("filling the context, %d tokens left", left))
		n := min(left, 512)
		if _, err := r.seq.Prefill(r.tokens(n), 0); err != nil {
			return err
		}
		left -= n
	}
	_, err = r.seq.Prefill(r.tokens(1), 1)
	return err
}

// tokens are n ids. Which they are does not matter for the time.
func (r *modelRun) tokens(n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32((i*7919 + r.seq.Len()) % r.m.Info().Vocab)
	}
	return tokens
}

// repeat measures everything once.
func (r *modelRun) repeat() error {
	for i, rows := range r.o.Rows {
		tokens := r.tokens(rows)
		r.b.reset()
		_, took, err := r.seq.Pass(tokens[0], tokens[1:]...)
		if err != nil {
			return err
		}
		r.passes[i] = append(r.passes[i], took.Seconds())
		r.shares[i], r.ops[i] = r.b.shares(took), r.b.ops
	}
	r.b.reset()
	took, err := r.seq.TimeDraft(r.tokens(1), 0, 1)
	if err != nil {
		return err
	}
	r.drafts, r.draftShare = append(r.drafts, took.Seconds()), r.b.shares(took)
	for i, n := range r.o.Prompts {
		s, err := measure.Open(r.m, nil, r.pool, r.m.Info().Vocab)
		if err != nil {
			return err
		}
		r.b.reset()
		took, err := s.Prefill(r.tokens(n), 1)
		s.Close()
		if err != nil {
			return err
		}
		r.promptOps[i] = r.b.ops
		r.prompts[i] = append(r.prompts[i], took.Seconds())
	}
	return nil
}

// report takes medians.
func (r *modelRun) report(out *ModelReport) {
	one := 0.0
	pass := func(rows int, times []float64) Pass {
		p := Pass{Rows: rows, Seconds: measure.Median(times)}
		p.GBs = float64(out.Bytes) / p.Seconds / 1e9
		p.OfRead = p.GBs / out.ReadGBs
		if one == 0 {
			one = p.Seconds
		}
		p.OfOne = p.Seconds / one
		return p
	}
	for i, rows := range r.o.Rows {
		p := pass(rows, r.passes[i])
		p.GOps = r.ops[i] / p.Seconds / 1e9
		out.Passes = append(out.Passes, p)
	}
	out.Draft = pass(1, r.drafts)
	out.Draft.GBs, out.Draft.OfRead = 0, 0
	out.Shares, out.DraftShare = r.shares, r.draftShare
	for i, n := range r.o.Prompts {
		t := measure.Median(r.prompts[i])
		out.Prompts = append(out.Prompts, Prefill{n, t, float64(n) / t, r.promptOps[i] / t / 1e9})
	}
}

var _ backend.Backend = (*timed)(nil)
