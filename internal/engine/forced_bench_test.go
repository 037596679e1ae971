package engine

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/drafter"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/block"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// forced drafts with a real head, for its cost, and then says what a script wants said: the tokens
// of a known answer, as confident and as right as in the recorded rounds, one after the other.
type forced struct {
	spec.Drafter
	answer []int32 // prompt and answer
	rounds []recordedRound
	next   int // the round that comes next
	out    []spec.Draft
	calls  map[[2]int]*times // by the greatest depth and the sum of all
}

func (f *forced) Draft(batch []spec.Run) ([]spec.Draft, error) {
	runs, drawn := slices.Clone(batch), make([]*recordedRound, len(batch))
	for i, r := range batch {
		if r.Depth == 0 {
			continue
		}
		x := &f.rounds[f.next]
		f.next = (f.next + 1) % len(f.rounds)
		if drawn[i] = x; r.More != nil {
			runs[i].More = func(probs []float32) bool { return r.More(x.probs[:len(probs)]) }
		}
	}
	start, key := time.Now(), [2]int{}
	drafts, err := f.Drafter.Draft(runs)
	if err != nil {
		return nil, err
	}
	for _, d := range drafts {
		key[0], key[1] = max(key[0], len(d.Tokens)), key[1]+len(d.Tokens)
	}
	note(f.calls, key, time.Since(start))
	f.out = f.out[:0]
	for i, r := range batch {
		n := min(len(drafts[i].Tokens), len(f.answer)-len(r.Text))
		if n <= 0 {
			f.out = append(f.out, spec.Draft{})
			continue
		}
		d := spec.Draft{Tokens: slices.Clone(f.answer[len(r.Text):][:n]), Probs: drawn[i].probs[:n]}
		if wrong := drawn[i].accepted; wrong < n {
			d.Tokens[wrong]++
		}
		f.out = append(f.out, d)
	}
	return f.out, nil
}

// Taps implements spec.Tapper.
func (f *forced) Taps() []int { return spec.TapsOf(f.Drafter) }

// Drafts implements spec.Blocker: a head has no blocks.
func (f *forced) Drafts() int {
	if b, ok := f.Drafter.(spec.Blocker); ok {
		return b.Drafts()
	}
	return 0
}

// Rehearse implements spec.Rehearser.
func (f *forced) Rehearse(p *state.Pool, hidden backend.Tensor, usual, runs int) error {
	if r, ok := f.Drafter.(spec.Rehearser); ok {
		return r.Rehearse(p, hidden, usual, runs)
	}
	return nil
}

// newForced drafts like the embedded model's head at a temperature.
func newForced(tb testing.TB, m *headed, answer []int32, temperature float64) *forced {
	tb.Helper()
	return &forced{Drafter: m.Drafter(), answer: answer, rounds: roundsAt(tb, temperature)}
}

// confident is a drafter that goes on while the last draft token is more likely than not.
type confident struct{ *forced }

func (c confident) Draft(batch []spec.Run) ([]spec.Draft, error) {
	for i := range batch {
		batch[i].More = func(probs []float32) bool { return probs[len(probs)-1] > 0.5 }
	}
	return c.forced.Draft(batch)
}

// TestRecordedRoundsAreReplayed has a model say a text again with forced drafts. Each is accepted as
// far as the recorded one was, and ends where the recorded probabilities say, unless a device drafts it at once.
func TestRecordedRoundsAreReplayed(t *testing.T) {
	const depth = 3
	m, pool := openModel(t, golden.Dir(t, "tiny"), model.Options{})
	request := Request{Prompt: []int32{1, 2, 3, 4, 5, 6, 7, 8}, MaxTokens: 120, IgnoreEnd: true, Depth: spec.FixedDepth(depth), Sampling: sample.Options{Temperature: 0.6, RepetitionPenalty: 1.1}}
	say := func(o Options) []int32 {
		e, err := New(m, pool, o)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		ids, _, err := collect(e, request)
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	text := say(Options{})
	d := newForced(t, m, slices.Concat(request.Prompt, text), 0.6)
	drafted, other := 0, 0
	again := say(Options{Drafter: confident{d}, Observe: func(r Round) {
		if r.Drafted == 0 {
			return
		}
		x := &d.rounds[drafted]
		want := 1
		for want < depth && x.probs[want-1] > 0.5 {
			want++
		}
		if drafted++; r.Accepted != min(x.accepted, r.Drafted) || r.Drafted != want && r.Drafted != depth {
			other++
			t.Logf("round %d: %d of %d drafts accepted, recorded %+v", drafted, r.Accepted, r.Drafted, x)
		}
	}})
	if !slices.Equal(text, again) || drafted < 40 || other > 1 { // the end of the text cuts the last draft
		t.Errorf("%d of %d rounds differ from the recorded ones, text %d, want %d", other, drafted, again, text)
	}
}

// What BenchmarkForcedBatch decodes with, for machines where more is to be had.
var (
	forcedShapes = flag.String("shapes", "2b", "shapes of the generated models, with commas")
	forcedPrompt = flag.Int("prompt", 8, "tokens of their prompts")
	forcedDepths = flag.String("depths", "auto", "drafts of a round, with commas")
	forcedWidths = flag.String("widths", "1,2,4,8", "sequences at a time, with commas")
	forcedTokens = flag.Int("tokens", 96, "tokens of their answers")
	forcedKinds  = flag.String("drafters", "recorded", "drafters of BenchmarkForcedBatch, with commas: recorded (the head), or head, block and auto with published acceptance")
	forcedLog    = flag.Bool("choices", false, "print what the controller of BenchmarkForcedBatch chose, and what it expects it to take")
	forcedISA    = flag.String("isa", "", "instruction set of the processor; the best one if empty")
	forcedBlock  = flag.Int("block", 8, "rows of the blocks of the block drafter")
	forcedWarmth = flag.Float64("temperature", 0, "temperature of their answers and of the recorded rounds")
)

// openGenerated generates a model of a shape with 4-bit weights.
func openGenerated(tb testing.TB, dev backend.Backend, shape string) (*headed, *state.Pool) {
	tb.Helper()
	m, err := model.Generate(shape, weights.BitsForm(4), dev, model.Options{MaxDrafts: spec.MaxDepth})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { m.Close() }) //nolint:errcheck // frees memory only
	return &headed{Model: m}, state.NewPool(dev, 1<<34)
}

// BenchmarkForced decodes with a generated model of the 2B shape and 4-bit weights. Its
// head's drafts mean nothing, so they are replaced by drafts of recorded rounds; costs are real. Beta and delta are a pass and a draft in steps of
// depth 0, model is the speed-up they predict, speedup the one measured.
func BenchmarkForced(b *testing.B) {
	const tokens = 240
	m, pool := openGenerated(b, backendtest.Open(b, backend.Options{}), "2b")
	prompt := []int32{1, 2, 3, 4, 5, 6, 7, 8}
	plainRate := 0.0
	var answer []int32
	for _, depth := range []int{0, 1, 2, 3, 4, 5} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			e, err := New(m, pool, Options{Drafter: newForced(b, m, answer, 0)})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			var made, seconds float64
			var stats spec.Stats
			for b.Loop() {
				ids, res, err := collect(e, Request{Prompt: prompt, MaxTokens: tokens, IgnoreEnd: true, Depth: spec.FixedDepth(depth)})
				if err != nil {
					b.Fatal(err)
				}
				if depth == 0 {
					answer = append(slices.Clone(prompt), ids...)
				}
				made, seconds = made+float64(res.Tokens-1), seconds+res.Decode.Seconds()
				stats = res.Speculation
			}
			rate := made / seconds
			if depth == 0 {
				plainRate = rate
			} else {
				s := &stats
				perRound := 1 + float64(s.Accepted)/float64(s.Rounds)
				b.ReportMetric(perRound, "tok/round")
				beta, delta := s.Verify.Seconds()/float64(s.Rounds)*plainRate, s.Draft.Seconds()/float64(s.Drafted)*plainRate
				b.ReportMetric(beta, "beta")
				b.ReportMetric(delta, "delta")
				b.ReportMetric(perRound/(beta+s.MeanDepth()*delta), "model")
				b.ReportMetric(rate/plainRate, "speedup")
			}
			b.ReportMetric(rate, "tok/s")
		})
	}
}

// BenchmarkForcedBatch is BenchmarkForced for several equal sequences at a time, alternating between no drafts
// and the controller's choice. The decoding rates of the sequences of one repetition, each after its first token, are
// added up and compared, and the medians are reported. After the first repetition the prompt is in the cache. It also
// reports the phases of a round with drafts, the passes prepared in one repetition, and the time to start
// the engine.
func BenchmarkForcedBatch(b *testing.B) {
	for shape := range strings.SplitSeq(*forcedShapes, ",") {
		b.Run("shape="+shape, func(b *testing.B) { forcedBatch(b, shape) })
	}
}

// forcedBy are the drafters of a benchmark by name.
func forcedBy(b *testing.B, m *headed, pool *state.Pool) map[string][]*forced {
	all := map[string][]*forced{"recorded": {newForced(b, m, nil, *forcedWarmth)}}
	if *forcedKinds == "recorded" {
		return all
	}
	target := m.Model.(model.Lender)
	d, err := drafter.Generate(target, *forcedBlock, weights.BitsForm(4), pool.Device(), model.Options{MaxDrafts: spec.MaxDepth})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() }) //nolint:errcheck // frees memory only
	block := block.New(d.Block, block.Options{Vocab: m.Info().Vocab, Taps: d.Taps})
	all["head"] = []*forced{{Drafter: m.Drafter(), rounds: chained(headLink)}}
	all["block"] = []*forced{{Drafter: block, rounds: chained(blockLink)}}
	all["auto"] = slices.Concat(all["head"], all["block"])
	return all
}

func forcedBatch(b *testing.B, shape string) {
	m, pool := openGenerated(b, backendtest.Open(b, backend.Options{ISA: *forcedISA}), shape)
	kinds := forcedBy(b, m, pool)
	for kind := range strings.SplitSeq(*forcedKinds, ",") {
		b.Run("drafter="+kind, func(b *testing.B) { forcedWith(b, m, pool, kinds[kind]) })
	}
}

func forcedWith(b *testing.B, m *headed, pool *state.Pool, parts []*forced) {
	defer slot()()
	request := Request{
		Prompt: make([]int32, *forcedPrompt), MaxTokens: *forcedTokens, IgnoreEnd: true,
		Sampling: sample.Options{Temperature: *forcedWarmth, TopK: 20, TopP: 0.95}, // the embedded model's filters
	}
	for i := range request.Prompt {
		request.Prompt[i] = int32(i + 1)
	}
	d := spec.Drafter(parts[0])
	if len(parts) > 1 {
		d = spec.Auto(parts[0], parts[1])
	}
	start := time.Now()
	passes := map[int]*times{} // by rows
	var e *Engine
	var err error
	e, err = New(m.Model, pool, Options{Drafter: d, Cache: true, Rehearse: true, Observe: func(r Round) {
		if r.Prompt == 0 {
			note(passes, r.Rows, e.phases.Forward+e.phases.Sample)
		}
	}})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	rehearsed := time.Since(start)
	run := func(width int, depth spec.Depth) (rate, meanDepth float64) {
		r := request
		r.Depth = depth
		var all sync.WaitGroup
		rates, depths := make([]float64, width), make([]float64, width)
		for i := range width {
			all.Go(func() {
				ids, res, err := collect(e, r)
				if err != nil {
					b.Error(err)
				}
				rates[i], depths[i] = float64(res.Tokens-1)/res.Decode.Seconds(), res.Speculation.MeanDepth()
				for _, p := range parts {
					if p.answer == nil {
						p.answer = append(slices.Clone(r.Prompt), ids...)
					}
				}
			})
		}
		all.Wait()
		for _, r := range rates {
			rate += r
		}
		return rate, middle(depths)
	}
	run(1, spec.DepthOff)
	for width := range strings.SplitSeq(*forcedWidths, ",") {
		for depth := range strings.SplitSeq(*forcedDepths, ",") {
			b.Run("batch="+width+"/depth="+depth, func(b *testing.B) {
				n, err := strconv.Atoi(width)
				if err != nil {
					b.Fatal(err)
				}
				how, err := spec.ParseDepth(depth)
				if err != nil {
					b.Fatal(err)
				}
				var plain, drafted, ratio, depths []float64
				var spent Phases
				rounds, prepared := 0.0, 0.0
				run(n, how) // the controller learns
				noted.Lock()
				for _, p := range parts {
					p.calls = map[[2]int]*times{}
				}
				clear(passes)
				noted.Unlock()
				for b.Loop() {
					p, _ := run(n, spec.DepthOff)
					before, made := e.Stats(), backend.PreparedBy(pool.Device())
					g, d := run(n, how)
					after := e.Stats()
					rounds += float64(after.Rounds - before.Rounds)
					prepared += float64(backend.PreparedBy(pool.Device()) - made)
					x := after.Phases
					spent.add(Phases{x.Forward - before.Phases.Forward, x.Sample - before.Phases.Sample, x.Draft - before.Phases.Draft, x.Other - before.Phases.Other})
					plain, drafted, ratio, depths = append(plain, p), append(drafted, g), append(ratio, g/p), append(depths, d)
				}
				if *forcedLog {
					logChoices(b.Name(), &e.drafting.controller, passes, parts)
				}
				b.ReportMetric(middle(plain), "plain-tok/s")
				b.ReportMetric(middle(drafted), "mtp-tok/s")
				b.ReportMetric(middle(ratio), "mtp/plain")
				b.ReportMetric(middle(depths), "depth")
				for name, took := range map[string]time.Duration{"forward": spent.Forward, "sample": spent.Sample, "draft": spent.Draft, "other": spent.Other} {
					b.ReportMetric(float64(took.Microseconds())/rounds, name+"-µs/round")
				}
				b.ReportMetric(rounds/float64(b.N), "rounds")
				b.ReportMetric(prepared/float64(b.N), "prepared")
				b.ReportMetric(rehearsed.Seconds()*1e3, "start-ms")
			})
		}
	}
}

// BenchmarkRejected decodes with a head whose drafts are never accepted, where the controller
// chooses depth 0, alternating with decoding without a drafter: the loss is the time to
// fill the head's KV cache, and trials. Times of one repetition are compared.
func BenchmarkRejected(b *testing.B) {
	const tokens = 128
	for _, shape := range []string{"2b", "4b"} {
		b.Run("shape="+shape, func(b *testing.B) {
			m, pool := openGenerated(b, backendtest.Open(b, backend.Options{}), shape)
			defer slot()()
			vocab := int32(m.Info().Vocab)
			e, err := New(m, pool, Options{Drafter: stubborn{m.Drafter(), vocab}})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			run := func(depth spec.Depth) (rate, meanDepth float64) {
				_, r, err := collect(e, Request{
					Prompt: []int32{1, 2, 3, 4}, MaxTokens: tokens, IgnoreEnd: true, Depth: depth, Sampling: never(vocab),
				})
				if err != nil {
					b.Fatal(err)
				}
				return float64(r.Tokens-1) / r.Decode.Seconds(), r.Speculation.MeanDepth()
			}
			run(spec.DepthAuto) // the controller finds out
			var plain, auto, ratio, depth []float64
			for b.Loop() {
				p, _ := run(spec.DepthOff)
				a, d := run(spec.DepthAuto)
				plain, auto, ratio, depth = append(plain, p), append(auto, a), append(ratio, a/p), append(depth, d)
			}
			b.ReportMetric(middle(plain), "plain-tok/s")
			b.ReportMetric(middle(auto), "auto-tok/s")
			b.ReportMetric(middle(ratio), "auto/plain")
			b.ReportMetric(middle(depth), "depth")
		})
	}
}
