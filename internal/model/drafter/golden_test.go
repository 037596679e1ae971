package drafter_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/drafter"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	_ "github.com/foretoken/foretoken/internal/model/qwen35"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/block"
	"github.com/foretoken/foretoken/internal/spec/mtp"
	"github.com/foretoken/foretoken/sample"
)

// rig is a model with a drafter, and memory for sequences.
type rig struct {
	*modeltest.Rig
	d *drafter.Drafter
}

// open loads a model of the golden files and the drafter of a folder, on the float path.
func open(tb testing.TB, name, dir string, o backend.Options) *rig {
	tb.Helper()
	return openWith(tb, name, golden.Open(tb, dir), o)
}

// openWith is open with a drafter that is open.
func openWith(tb testing.TB, name string, c *checkpoint.Checkpoint, o backend.Options) *rig {
	tb.Helper()
	return openOn(tb, name, c, backendtest.Drawing(backendtest.Open(tb, o)), model.Options{Compute: backend.Float32}) // which replays passes
}

// openComputed is openWith, with any arithmetic.
func openComputed(tb testing.TB, name string, c *checkpoint.Checkpoint, compute backend.Compute) *rig {
	tb.Helper()
	return openOn(tb, name, c, backendtest.Open(tb, backend.Options{}), model.Options{Compute: compute})
}

// openOn loads the model and the drafter on a device.
func openOn(tb testing.TB, name string, c *checkpoint.Checkpoint, b backend.Backend, options model.Options) *rig {
	tb.Helper()
	options.MaxDrafts = 8
	r := &rig{Rig: modeltest.OpenOn(tb, b, golden.Dir(tb, name), options)}
	lender := r.Model.(model.Lender)
	var err error
	if r.d, err = drafter.Open(c, lender, b, options); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = r.d.Close() })
	if err := lender.Tap(r.d.Taps...); err != nil {
		tb.Fatal(err)
	}
	return r
}

// drafts is a drafter with a policy.
func (r *rig) drafts(vocab int) spec.Drafter {
	if r.d.Head != nil {
		return mtp.New(r.d.Head, mtp.Options{Vocab: r.Info().Vocab, Taps: r.d.Taps, Tokens: r.d.Tokens, DraftVocab: vocab})
	}
	return block.New(r.d.Block, block.Options{Vocab: r.Info().Vocab, Taps: r.d.Taps, Tokens: r.d.Tokens, DraftVocab: vocab})
}

// taps are the tapped rows of a text, which is fed in chunks.
func (r *rig) taps(tb testing.TB, text []int32, chunk int) backend.Tensor {
	tb.Helper()
	width := len(r.d.Taps) * r.Info().Width
	all, err := r.B.Alloc(dtype.F32, len(text), width)
	if err != nil {
		tb.Fatal(err)
	}
	s := r.Memory(tb, r.Layout())
	for at := 0; at < len(text); at += chunk {
		end := min(at+chunk, len(text))
		out, err := r.Forward([]model.Span{{State: s, Tokens: text[at:end]}})
		if err != nil {
			tb.Fatal(err)
		}
		r.B.Copy(all.RowRange(at, end), out.Taps)
	}
	return all
}

// greedy is a sampler of temperature 0.
func greedy(tb testing.TB) *sampling.Sampler {
	tb.Helper()
	s, err := sampling.New(sample.Options{}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestDraftsAreTheReferences drafts the rounds of all golden files on the device of tests and with every instruction set of the
// processor, and compares rows, drafts and confidences. Portable code is slow; make test-noasm has it.
func TestDraftsAreTheReferences(t *testing.T) {
	sets := []string{""}
	for _, d := range backend.List() {
		if d.Name == "cpu" {
			sets = append(sets, d.Runnable()...)
		}
	}
	sets = slices.DeleteFunc(sets, func(isa string) bool { return isa == "generic" })
	for _, f := range golden.Drafters(t, os.Getenv("FORETOKEN_FIXTURES")) {
		for _, isa := range sets {
			t.Run(f.Name+" "+isa, func(t *testing.T) { draftsAreTheReferences(t, f, 10*f.Drafts*3/4, backend.Options{ISA: isa}) })
		}
	}
}

// TestDraftsOfTheTrainedDrafter drafts the rounds of the trained drafter, whose drafts are all sure.
func TestDraftsOfTheTrainedDrafter(t *testing.T) {
	f, all := golden.TinyDrafter(t), 0
	for i := range f.Cases {
		all += len(f.Cases[i].Rounds) * f.Drafts
	}
	draftsAreTheReferences(t, f, all, backend.Options{})
}

// draftsAreTheReferences drafts the rounds of a fixture, and compares at least the given number of drafts.
func draftsAreTheReferences(t *testing.T, f *golden.DrafterFixture, least int, o backend.Options) {
	t.Helper()
	r := open(t, f.Target, f.Dir, o)
	if !slices.Equal(r.d.Taps, f.Taps) {
		t.Fatalf("taps of layers %v, want %v", r.d.Taps, f.Taps)
	}
	compared := 0
	for i := range f.Cases {
		compared += r.rounds(t, f, i)
	}
	if compared < least {
		t.Errorf("only %d drafts were compared, want %d", compared, least)
	}
}

// rounds drafts the rounds of a case and returns how many drafts were compared.
func (r *rig) rounds(t *testing.T, f *golden.DrafterFixture, i int) (compared int) {
	t.Helper()
	c := &f.Cases[i]
	taps := r.taps(t, c.Tokens, len(c.Tokens))
	d := r.drafts(-1)
	cache, scratch := r.Memory(t, d.Layout()), r.Memory(t, d.Layout())
	var host any
	at := 0
	for j := range c.Rounds {
		x := &c.Rounds[j]
		what := fmt.Sprintf("%d.%d.", i, j)
		run := spec.Run{State: scratch, HostState: &host, Text: c.Tokens[:x.Start+1], Sampler: greedy(t), Hidden: taps.RowRange(at, x.Start)}
		r.compare(t, f, what+"taps", run.Hidden, golden.Tol.Taps)
		if _, err := d.Draft([]spec.Run{run}); err != nil {
			t.Fatal(err)
		}
		r.compare(t, f, what+"fused", r.d.Fused(), golden.Tol.Hidden)
		run.State, run.Depth = cache, f.Drafts
		drafts, err := d.Draft([]spec.Run{run})
		if err != nil {
			t.Fatal(err)
		}
		at = x.Start
		sure := x.Sure()
		compared += len(sure)
		if got := drafts[0].Tokens; len(got) != f.Drafts || !slices.Equal(got[:len(sure)], sure) {
			t.Errorf("%sdrafts %v, want %v", what, got, sure)
		} else if len(sure) == len(got) {
			r.compare(t, f, what+"hidden", r.d.Last(), golden.Tol.Hidden)
			compareConfidences(t, f, what+"confidence", drafts[0].Probs)
		}
		if cache.Len() != at {
			t.Errorf("%sa context of %d rows, want %d", what, cache.Len(), at)
		}
	}
	return compared
}

// compare compares rows with the last rows of an array of the reference, if it has that.
func (r *rig) compare(t *testing.T, f *golden.DrafterFixture, name string, rows backend.Tensor, tolerance float64) {
	t.Helper()
	want, ok := f.Array(name)
	if !ok {
		return
	}
	got := r.Host(t, rows)
	missing := len(want.Data) - len(got)
	if missing < 0 || missing > 0 && r.d.Head == nil {
		t.Fatalf("%s: %d numbers, want %d", name, len(got), len(want.Data))
	}
	for i, x := range got {
		if d := float64(x - want.Data[missing+i]); !(d <= tolerance && d >= -tolerance) {
			t.Fatalf("%s: number %d is %v, want %v", name, missing+i, x, want.Data[missing+i])
		}
	}
}

// compareConfidences compares probabilities with the reference's logits of them, if it has them.
func compareConfidences(t *testing.T, f *golden.DrafterFixture, name string, probs []float32) {
	t.Helper()
	want, ok := f.Array(name)
	for i := 0; ok && i < len(probs); i++ {
		p := 1 / (1 + math.Exp(-float64(want.Data[i])))
		if math.Abs(float64(probs[i])-p) > golden.Tol.Hidden {
			t.Errorf("%s: %v for draft %d, want %v", name, probs[i], i, p)
		}
	}
}
