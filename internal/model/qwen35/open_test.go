package qwen35

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/state"
)

type rig = modeltest.Rig

var (
	open       = modeltest.Open
	openOn     = modeltest.OpenOn
	openedGGUF = modeltest.Files
	same       = modeltest.Same
	argmax     = modeltest.Argmax
)

func tryOpen(tb testing.TB, dir string, o model.Options) error {
	tb.Helper()
	_, err := modeltest.TryOpen(tb, backendtest.Open(tb, backend.Options{Threads: 1}), dir, o)
	return err
}

// headLogits runs the head over pairs from an empty memory and returns all its rows.
func headLogits(tb testing.TB, r *rig, hidden []float32, next []int32) [][]float32 {
	tb.Helper()
	logits, _ := r.FeedHead(tb, r.Pairs(tb), hidden, next)
	return logits
}

// answers are the logits of every row of the prompt, then those of the head over the
// prompt's pairs, on the float path.
func answers(t *testing.T, dir string, prompt []int32) [][]float32 {
	t.Helper()
	r := open(t, dir, 1, model.Options{Compute: backend.Float32})
	if !r.Info().Head {
		t.Fatal("the head was not found")
	}
	logits, head := r.Answers(t, prompt)
	return slices.Concat(logits, head)
}

// decode feeds tokens in chunks of the given sizes, the last size repeating, and returns
// all logits.
func decode(t *testing.T, r *rig, s *state.State, tokens []int32, chunks ...int) [][]float32 {
	t.Helper()
	var all [][]float32
	for i := 0; len(tokens) > 0; i++ {
		n := min(chunks[min(i, len(chunks)-1)], len(tokens))
		logits, _ := r.Feed(t, model.Span{State: s, Tokens: tokens[:n], Want: n})
		all = append(all, logits...)
		tokens = tokens[n:]
	}
	return all
}

func TestLaws(t *testing.T) { modeltest.Laws(t, subjects(t)) }

// subjects are both compute paths over dense, mixture-of-experts and trained quantized
// weights, keys and values of 8 bits, and weights with rotated inputs. The text crosses a page border for the small models.
func subjects(t *testing.T) (list []modeltest.Subject) {
	for _, name := range golden.Names {
		for _, c := range []backend.Compute{backend.Int8, backend.Float32} {
			if testing.Short() && (name == "tiny" || (name == "moe") != (c == backend.Int8)) {
				continue // one dense, one with experts, one of each path
			}
			f := golden.Load(t, name)
			o := model.Options{Compute: c, MaxDrafts: 8}
			if name != "tiny" && c == backend.Int8 {
				o.Quantize = 4 // the files are bf16, which has no integer products
			}
			n := 80
			if name == "tiny" {
				n = 24
			}
			sub := modeltest.Subject{Name: fmt.Sprintf("%s/%v", name, c), Dir: golden.Dir(t, name), Options: o, Tokens: f.Cases[len(f.Cases)-1].Tokens[:n]}
			list = append(list, sub)
			if name == "moe" {
				for _, bits := range []int{8, 4} {
					by := sub
					by.Name, by.Options.KVBits = fmt.Sprintf("%s/kv=%d", sub.Name, bits), bits
					list = append(list, by)
				}
			}
		}
	}
	if !testing.Short() {
		list = append(list, rotated(t))
	}
	return list
}

func TestModelEqualsReference(t *testing.T) {
	for _, name := range golden.Names {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "tiny" {
				t.Skip("portable kernels take their time: dense and moe have all kinds of layers")
			}
			modeltest.EqualsReference(t, name, golden.Dir(t, name), recurrent(t))
		})
	}
}

// recurrent compares what layer 0 stores. The reference keeps one input row more.
func recurrent(t *testing.T) func(*golden.Worst, *rig, *state.State, *golden.Fixture) {
	return func(worst *golden.Worst, r *rig, s *state.State, f *golden.Fixture) {
		mem := s.Seq(0, 0, 0, nil).Delta[0]
		worst.Add("recurrent state", r.Host(t, mem.State), f.Array(t, "0.state0.recurrent").Data)
		conv := f.Array(t, "0.state0.conv") // [channels, K]
		k := conv.Shape[1]
		for j := range k - 1 {
			want := make([]float32, conv.Shape[0])
			for c := range want {
				want[c] = conv.Data[c*k+j+1]
			}
			worst.Add(fmt.Sprintf("convolution row %d", j), r.Host(t, mem.Tail.RowRange(j, j+1)), want)
		}
	}
}

func TestHeadIsLeftOut(t *testing.T) {
	for _, c := range golden.SpecCases() {
		bare := specFolder(t, c.Config)
		bare.main().take(inHead)
		var names, paths []string
		for _, l := range []layout{
			{"inside", nil},
			{"converted", []edit{mlx}},
			{"in shards", []edit{sharded(2, "model-00003-of-00003.safetensors")}},
			{"beside", []edit{sidecar("mtp.safetensors")}},
			{"inside and beside", []edit{otherHead("mtp.safetensors")}},
			{"incomplete", []edit{without("mtp.fc.weight", "mtp.norm.weight")}},
			{"of two layers", []edit{with(numbers("mtp.layers.1.input_layernorm.weight", dtype.F32, []int{1}, []float32{1}))}},
		} {
			names, paths = append(names, l.name), append(paths, specFolder(t, c.Config, l.edits...).write(t))
		}
		t.Run(c.Config.Name, func(t *testing.T) {
			modeltest.HeadIsLeftOut(t, golden.SpecPrompt, bare.write(t), names, paths)
		})
	}
}

// TestSurveyKnowsMemory compares the surveyed memory with the memory that loading takes. Small
// matrices are padded to tiles, so the smaller the model the more there is besides.
func TestSurveyKnowsMemory(t *testing.T) {
	for name, tolerance := range map[string]float64{"tiny": 0.01, "dense": 0.05, "moe": 0.05} {
		r, s := open(t, golden.Dir(t, name), 1, model.Options{MaxDrafts: 8}), modeltest.Survey(t, golden.Dir(t, name))
		loaded := s.Loaded
		if w, ok := r.B.(backend.Sizer); ok {
			for _, size := range s.Sizes {
				for _, m := range size.Matrices {
					loaded += w.WeightBytes(&m.Form) - m.Bytes
				}
			}
		}
		if ratio := float64(loaded) / float64(r.Info().Bytes); math.Abs(ratio-1) > tolerance {
			t.Errorf("%s: a survey says %d bytes, a model %d", name, loaded, r.Info().Bytes)
		}
		if !s.Layout.Equal(r.Layout()) || !s.HeadLayout.Equal(r.Head().Layout()) || len(s.Head.Norms) != 7 {
			t.Errorf("%s: state of a sequence %+v, want %+v; %d norms of the head", name, s.Layout, r.Layout(), len(s.Head.Norms))
		}
	}
}

func configOf(r *rig) *config { return r.Model.(*network.Model).Config.(*config) }
