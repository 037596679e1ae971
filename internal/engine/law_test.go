package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	_ "github.com/foretoken/foretoken/internal/model/qwen35"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/mtp"
	"github.com/foretoken/foretoken/internal/spec/ngram"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// headed is a model with a head that drafts.
type headed struct {
	model.Model
	draftVocab int // frequent tokens that the head drafts from; 0: auto, -1: all
}

// Group implements model.Grouped.
func (m *headed) Group(i int) { m.Model.(model.Grouped).Group(i) }

// Drafter returns a new drafter.
func (m *headed) Drafter() spec.Drafter {
	return mtp.New(m.Head(), mtp.Options{Vocab: m.Info().Vocab, DraftVocab: m.draftVocab})
}

// openModel loads a small model of the family with space for drafts, and ample memory.
func openModel(t testing.TB, dir string, o model.Options) (*headed, *state.Pool) {
	t.Helper()
	m, b := openOn(t, dir, o)
	return m, state.NewPool(b, 1<<30)
}

// openOn is openModel without memory for sequences.
func openOn(t testing.TB, dir string, o model.Options) (*headed, backend.Backend) {
	t.Helper()
	b := backendtest.Open(t, backend.Options{})
	return load(t, dir, o, b), b
}

// load opens a model on a device.
func load(t testing.TB, dir string, o model.Options, b backend.Backend) *headed {
	t.Helper()
	o.MaxDrafts = spec.MaxDepth
	return &headed{Model: modeltest.OpenOn(t, b, dir, o).Model}
}

// oracle drafts from known answers, with scripted errors.
type oracle struct {
	answers [][]int32 // prompt and answer
	wrong   func(position, index int) bool
	vocab   int32
	out     []spec.Draft // used again in every call, as a drafter may
}

func (o *oracle) Name() string         { return "oracle" }
func (o *oracle) Layout() state.Layout { return state.Layout{} }

func (o *oracle) Draft(batch []spec.Run) ([]spec.Draft, error) {
	for len(o.out) < len(batch) {
		o.out = append(o.out, spec.Draft{})
	}
	out := o.out[:len(batch)]
	for i, r := range batch {
		out[i].Tokens = out[i].Tokens[:0]
		for _, a := range o.answers {
			if len(a) < len(r.Text) || !slices.Equal(a[:len(r.Text)], r.Text) {
				continue
			}
			for j, id := range a[len(r.Text):min(len(a), len(r.Text)+r.Depth)] {
				if o.wrong(len(r.Text)+j, j) {
					id = (id + 1) % o.vocab
				}
				out[i].Tokens = append(out[i].Tokens, id)
			}
			break
		}
	}
	return out, nil
}

// samplings are the sampling options that are tested.
func samplings() []sample.Options {
	var list []sample.Options
	for i, temp := range []float64{0, 0.2, 0.6, 1, 1.5} {
		o := sample.Options{Temperature: temp, Seed: uint64(1000 + i)}
		list = append(list, o)
		o.TopK, o.TopP, o.MinP = 20, 0.9, 0.01
		o.XTCProbability, o.XTCThreshold = 0.5, 0.1
		list = append(list, o)
		list = append(list, sample.Options{
			Temperature: temp, Seed: uint64(i), RepetitionPenalty: 1.3, RepetitionWindow: 20,
			PresencePenalty: 0.5, FrequencyPenalty: 0.2, LogitBias: map[int32]float32{7: 2},
		})
	}
	return list
}

// TestSpeculationChangesNothing is the invariant of exactness: with drafts of any drafter, right or wrong, at
// any depth, alone or in a batch, every request gives the tokens and the bits of logits
// that it gives without drafts. Each model and arithmetic has every other depth; in the long version it has all.
func TestSpeculationChangesNothing(t *testing.T) {
	for i, name := range []string{"dense", "moe"} {
		for j, compute := range []backend.Compute{backend.Float32, backend.Int8} {
			if brief(t) && (name == "moe") != (compute == backend.Int8) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%v", name, compute), func(t *testing.T) {
				o := model.Options{Compute: compute}
				if compute == backend.Int8 {
					o.Quantize = 4
				}
				m, pool := openModel(t, golden.Dir(t, name), o)
				f := golden.Load(t, name)
				speculation(t, m, pool, f.Cases[1].Prompt[:20], i+j)
			})
		}
	}
}

// brief asks for a part of the cases: in short mode, and with the generic kernels, which are
// many times slower and tested to be equal to the others elsewhere.
func brief(t *testing.T) bool {
	t.Helper()
	b := backendtest.Open(t, backend.Options{})
	return testing.Short() || strings.Contains(b.Name(), "generic")
}

// speculation leaves out every other depth, which turn says, unless it is the last.
func speculation(t *testing.T, m *headed, pool *state.Pool, prompt []int32, turn int) {
	plain, err := New(m, pool, Options{})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var requests []Request
	var want [][]int32
	var hash []uint64
	truth := &oracle{vocab: int32(m.Info().Vocab)}
	options := samplings()
	if brief(t) {
		options = options[7:9]
	}
	for i, s := range options {
		// Texts with repetitions, for n-gram lookups.
		repeated := slices.Concat(prompt[i%5:5+i%7], prompt[i%5:5+i%7])
		r := Request{Prompt: repeated, MaxTokens: 8 + rng.IntN(8), Sampling: s, Hash: true, IgnoreEnd: i%2 == 0}
		ids, res, err := collect(plain, r)
		if err != nil {
			t.Fatal(err)
		}
		requests, want, hash = append(requests, r), append(want, ids), append(hash, res.LogitsHash)
		truth.answers = append(truth.answers, slices.Concat(r.Prompt, ids))
	}
	plain.Close()
	lookup, err := ngram.New(ngram.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		drafter spec.Drafter
		depths  []spec.Depth
	}{
		{"head", m.Drafter(), []spec.Depth{1, 2, 3, 4, 5, 6, 7, 8, spec.DepthAuto}},
		{"lookup", lookup, []spec.Depth{3, 8, spec.DepthAuto}},
		{"auto", spec.Auto(m.Drafter(), lookup), []spec.Depth{2, 5, spec.DepthAuto}},
		{"two that compute", spec.Auto(m.Drafter(), m.Drafter(), lookup), []spec.Depth{3, spec.DepthAuto}},
		{"one that is wrong", spec.Auto(m.Drafter(), truth.with(func(int, int) bool { return true }), lookup), []spec.Depth{2, spec.DepthAuto}},
		{"always right", truth.with(func(int, int) bool { return false }), []spec.Depth{4, 8, spec.DepthAuto}},
		{"always wrong", truth.with(func(int, int) bool { return true }), []spec.Depth{3}},
		{"wrong at the third", truth.with(func(_, j int) bool { return j == 2 }), []spec.Depth{5}},
		{"at random", truth.with(func(p, j int) bool { return (p*7+j*3)%5 < 2 }), []spec.Depth{6}},
	} {
		if brief(t) {
			c.depths = c.depths[len(c.depths)-1:]
		}
		for i, depth := range c.depths {
			if !long && i < len(c.depths)-1 && (i+turn)%2 == 1 {
				continue
			}
			e, err := New(m, pool, Options{Drafter: c.drafter, RoundTokens: 16 + rng.IntN(60)})
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for i, r := range requests {
				r.Depth = depth
				wg.Go(func() {
					ids, res, err := collect(e, r)
					if err != nil || !slices.Equal(ids, want[i]) || res.LogitsHash != hash[i] {
						t.Errorf("%s, depth %v, request %d: %v %x %v, want %v %x", c.name, depth, i, ids, res.LogitsHash, err, want[i], hash[i])
					}
					if c.name == "always right" && depth > 0 && res.Speculation.Accepted != res.Speculation.Drafted {
						t.Errorf("%d of %d right drafts accepted", res.Speculation.Accepted, res.Speculation.Drafted)
					}
				})
			}
			wg.Wait()
			e.Close()
		}
	}
	if n := pool.Used(); n != 0 {
		t.Errorf("%d bytes still in use", n)
	}
}

func (o *oracle) with(wrong func(position, index int) bool) *oracle {
	return &oracle{answers: o.answers, vocab: o.vocab, wrong: wrong}
}
