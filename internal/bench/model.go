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
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/mtp"
	"github.com/foretoken/foretoken/internal/state"
)

// ModelOptions say what to measure.
type ModelOptions struct {
	Shape   string
	Form    weights.Form
	KVBits  int   // of the KV cache: 4, 8, 16 or 32; 0: the model's default
	Rows    []int // rows of one sequence in a pass
	Prompts []int // lengths of prompts
	Context int   // tokens before the measured passes and prompts
	Repeats int   // of everything; the median counts
	Blocks  []int // rows of the blocks of a generated drafter

	Images     [][2]int // widths and heights of images
	MaxPixels  int      // of an image as the tower gets it
	VisionBits int      // of the tower's weights: 2, 3, 4, 5, 6, 8, or 16 for bf16

	Machine Machine
	Memory  int // bytes of the plain reads; 0: far more than a cache has
	// Progress, if not nil, is told what comes next.
	Progress func(what string)
}

// ModelReport is what passes cost. Times are medians, interleaved with reads of memory.
type ModelReport struct {
	Machine
	Device     string    `json:"device"`
	Shape      string    `json:"shape"`
	Bits       int       `json:"bits"`
	Format     string    `json:"format"`
	Parameters int64     `json:"parameters"`
	Bytes      int64     `json:"bytes"`     // of weights that a pass reads
	ReadGBs    float64   `json:"read_gb_s"` // plain reading of memory, all threads
	Context    int       `json:"context"`
	KVBits     int       `json:"kv_bits"`
	Passes     []Pass    `json:"passes"`
	Prompts    []Prefill `json:"prompts"`
	Draft      Pass      `json:"draft"`        // one draft token of the head, from the whole vocabulary
	Shares     [][]Share `json:"shares"`       // of the passes, by operation
	DraftShare []Share   `json:"draft_shares"` // of the draft token
	// What the kernels take on a device that queues its work: of the passes, and of the draft token.
	Kernels      [][]backend.Cost `json:"kernels,omitempty"`
	DraftKernels []backend.Cost   `json:"draft_kernels,omitempty"`
	Blocks       []BlockTime      `json:"blocks,omitempty"`
	VisionBits   int              `json:"vision_bits,omitempty"`
	Images       []ImageTime      `json:"images,omitempty"`
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
	GOps         float64 `json:"gop_s"`  // as Pass has it
	Shares       []Share `json:"shares"` // by operation

	Kernels []backend.Cost `json:"kernels,omitempty"` // as ModelReport has them
}

// plenty is far more bytes than a cache has.
const plenty = 512 << 20

// newStream is memory of dev to read plainly: bytes bytes, 0: plenty.
func newStream(dev backend.Backend, bytes int) (backend.Stream, error) {
	s, ok := dev.(backend.Streamer)
	if !ok {
		return nil, fmt.Errorf("bench: the memory of %s cannot be measured", dev.Name())
	}
	return s.NewStream(cmp.Or(bytes, plenty))
}

// Model generates a model and measures it.
func Model(dev backend.Backend, o ModelOptions) (*ModelReport, error) {
	say := o.Progress
	if say == nil {
		say = func(string) {}
	}
	say(fmt.Sprintf("generating a %s model of %s", o.Shape, o.Form))
	b := newTimed(dev)
	how := model.Options{KVBits: o.KVBits, MaxDrafts: max(slices.Max(o.Rows)-1, 1)}
	if len(o.Images) > 0 {
		how.TowerBits = o.VisionBits
	}
	m, err := model.Generate(o.Shape, o.Form, b, how)
	if err != nil {
		return nil, err
	}
	defer m.Close() //nolint:errcheck // frees memory only
	stream, err := newStream(dev, o.Memory)
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
		Machine: o.Machine, Device: dev.Name(), Shape: o.Shape, Bits: o.Form.Bits(), Format: o.Form.String(), Parameters: info.Parameters,
		Bytes: info.PassBytes, Context: o.Context, KVBits: how.CacheBits(), ReadGBs: float64(stream.Bytes()) / measure.Median(reads) / 1e9,
	}
	r.VisionBits = how.TowerBits
	run.report(r)
	if r.Blocks, err = run.measureBlocks(how); err != nil {
		return nil, err
	}
	if p, ok := dev.(backend.Profiler); ok {
		if err := run.profile(p, r); err != nil {
			say(fmt.Sprintf("no profile: %v", err)) // what was measured before it stands
		}
	}
	return r, nil
}

// modelRun is a measurement under way.
type modelRun struct {
	m    model.Model
	b    *timed
	pool *state.Pool
	o    ModelOptions
	say  func(string)

	seq       *measure.Sequence
	passes    []timing // by o.Rows
	prompts   []timing // by o.Prompts
	draft     timing
	imageRuns imageRuns // by o.Images
}

// timing is what one thing took.
type timing struct {
	seconds []float64 // by repetition
	shares  []Share   // of the last one
	ops     float64   // of each
}

// add times one more repetition of what run does.
func (r *modelRun) add(t *timing, run func() (time.Duration, error)) error {
	r.b.reset()
	took, err := run()
	t.seconds = append(t.seconds, took.Seconds())
	t.shares, t.ops = r.b.shares(took), max(t.ops, r.b.ops) // a pass that is replayed has none to count
	return err
}

// steadily is how long a short operation is repeated. Decoding repeats its operations too, and the first run after a
// different operation is slower than the following runs.
const steadily = 20 * time.Millisecond

// steady is add for something short: the median of one run after another.
func (r *modelRun) steady(t *timing, run func() (time.Duration, error)) error {
	var all timing
	for sum := time.Duration(0); sum < steadily; {
		err := r.add(&all, func() (took time.Duration, err error) {
			took, err = run()
			sum += took
			return took, err
		})
		if err != nil {
			return err
		}
	}
	t.seconds = append(t.seconds, measure.Median(all.seconds))
	t.shares, t.ops = all.shares, max(t.ops, all.ops)
	return nil
}

// open fills the context and warms up.
func (r *modelRun) open() (err error) {
	if r.seq, err = measure.Open(r.m, r.drafter(), r.pool, r.m.Info().Vocab); err != nil {
		return err
	}
	r.passes, r.prompts = make([]timing, len(r.o.Rows)), make([]timing, len(r.o.Prompts))
	if n := min(r.o.Context, engine.RoundTokens); n > 0 {
		r.say(fmt.Sprintf("filling the context of %d tokens", r.o.Context))
		if _, err := r.seq.Prefill(r.tokens(n), 0); err != nil {
			return err
		}
		if err := r.seq.Repeat(r.o.Context - n); err != nil {
			return err
		}
	}
	if _, err = r.seq.Prefill(r.tokens(1), 1); err != nil {
		return err
	}
	if err := r.warm(); err != nil {
		return err
	}
	return r.openSights()
}

// warm runs the passes until they are what they are in an engine that has run for a while. Memory for the
// largest is there before the others come, since what a device has recorded goes with memory
// that grows; the first pass of a shape is recorded and the second becomes what is replayed.
func (r *modelRun) warm() error {
	const rounds = 2
	for range rounds {
		for _, rows := range slices.Backward(slices.Sorted(slices.Values(r.o.Rows))) {
			tokens := r.tokens(rows)
			if _, _, err := r.seq.Pass(tokens[0], tokens[1:]...); err != nil {
				return err
			}
		}
		if _, err := r.timeDraft(); err != nil {
			return err
		}
	}
	return nil
}

// drafter drafts from the whole vocabulary with the model's head; nil: it has none.
func (r *modelRun) drafter() spec.Drafter {
	if r.m.Head() == nil {
		return nil
	}
	return mtp.New(r.m.Head(), mtp.Options{Vocab: r.m.Info().Vocab, DraftVocab: -1})
}

// timeDraft is how long the head takes for a draft token, nothing if there is no head.
func (r *modelRun) timeDraft() (time.Duration, error) {
	if r.m.Head() == nil {
		return 0, nil
	}
	return r.seq.TimeDraft(r.tokens(1), 0, 1, 0)
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
		err := r.steady(&r.passes[i], func() (time.Duration, error) {
			_, took, err := r.seq.Pass(tokens[0], tokens[1:]...)
			return took, err
		})
		if err != nil {
			return err
		}
	}
	if r.m.Head() != nil {
		if err := r.steady(&r.draft, r.timeDraft); err != nil {
			return err
		}
	}
	for i, n := range r.o.Prompts {
		s, err := r.begin()
		if err != nil {
			return err
		}
		tokens := r.tokens(n)
		err = r.add(&r.prompts[i], func() (time.Duration, error) { return prefill(s, tokens) })
		s.Close()
		if err != nil {
			return err
		}
	}
	return r.measureImages()
}

// begin is a sequence for a prompt, after the context if there is one.
func (r *modelRun) begin() (*measure.Sequence, error) {
	if r.o.Context > 0 {
		return r.seq.Fork(r.pool)
	}
	return measure.Open(r.m, nil, r.pool, r.m.Info().Vocab)
}

// prefill feeds a prompt as the engine does, in rounds, and wants logits after the last token.
func prefill(s *measure.Sequence, tokens []int32) (took time.Duration, err error) {
	for len(tokens) > 0 && err == nil {
		n, want, round := min(len(tokens), engine.RoundTokens), 0, time.Duration(0)
		if n == len(tokens) {
			want = 1
		}
		round, err = s.Prefill(tokens[:n], want)
		took, tokens = took+round, tokens[n:]
	}
	return took, err
}

// report takes medians.
func (r *modelRun) report(out *ModelReport) {
	one := measure.Median(r.passes[0].seconds)
	for i, t := range r.passes {
		p := Pass{Rows: r.o.Rows[i], Seconds: measure.Median(t.seconds)}
		p.GBs, p.OfOne, p.GOps = float64(out.Bytes)/p.Seconds/1e9, p.Seconds/one, t.ops/p.Seconds/1e9
		p.OfRead = p.GBs / out.ReadGBs
		out.Passes, out.Shares = append(out.Passes, p), append(out.Shares, t.shares)
	}
	if len(r.draft.seconds) > 0 {
		seconds := measure.Median(r.draft.seconds)
		out.Draft, out.DraftShare = Pass{Rows: 1, Seconds: seconds, OfOne: seconds / one}, r.draft.shares
	}
	for i, t := range r.prompts {
		n, seconds := r.o.Prompts[i], measure.Median(t.seconds)
		out.Prompts = append(out.Prompts, Prefill{Tokens: n, Seconds: seconds, TokensPerSec: float64(n) / seconds, GOps: t.ops / seconds / 1e9, Shares: t.shares})
	}
	r.imageRuns.report(out, r.o.Images)
}

var _ backend.Backend = (*timed)(nil)
