package glm

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
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
	openFolder = modeltest.Files
	same       = modeltest.Same
	argmax     = modeltest.Argmax
)

// answers are the logits of the model at a path for a text, and those of its head if it has one.
func answers(t *testing.T, path string, text []int32) [][]float32 {
	t.Helper()
	logits, head := open(t, path, 1, model.Options{Compute: backend.Float32}).Answers(t, text)
	return slices.Concat(logits, head)
}

// TestLaws holds models of both kinds of attention to the laws of exactness, with a text that crosses two page
// borders.
func TestLaws(t *testing.T) { modeltest.Laws(t, subjects(t)) }

func subjects(t *testing.T) (list []modeltest.Subject) {
	for _, name := range golden.GLM {
		tokens := golden.Load(t, name).Cases[2].Tokens[:136]
		for _, o := range []model.Options{
			{Compute: backend.Float32}, {Compute: backend.Int8, Quantize: 4, KVBits: 4}, {Compute: backend.Int8, Quantize: 8, KVBits: 8},
		} {
			if testing.Short() && (name == "glm4_moe_air" || (o.Compute == backend.Float32) != (name == "deepseek_v3") || o.Quantize == 4) {
				continue // one of each path
			}
			o.MaxDrafts = 8
			list = append(list, modeltest.Subject{Name: fmt.Sprintf("%s/%v/kv=%d", name, o.Compute, o.KVBits), Dir: golden.Dir(t, name), Options: o, Tokens: tokens})
		}
	}
	return list
}

func TestModelEqualsReference(t *testing.T) {
	for _, name := range golden.GLM {
		t.Run(name, func(t *testing.T) { modeltest.EqualsReference(t, name, golden.Dir(t, name), remembered(t)) })
	}
}

// remembered compares what layer 0 has of the prompt in its page.
func remembered(t *testing.T) func(*golden.Worst, *rig, *state.State, *golden.Fixture) {
	return func(worst *golden.Worst, r *rig, s *state.State, f *golden.Fixture) {
		page := s.Seq(0, 0, 0, nil).Pages[0]
		data := make([]byte, page.Cols)
		if err := r.B.ReadBytes(data, page); err != nil {
			t.Fatal(err)
		}
		at := 0
		// part is the next heads of the page, of which the first rows are compared.
		part := func(what string, heads, width int, want []float32) {
			n := len(want) / heads / width
			for h := range heads {
				got := make([]float32, n*width)
				for i := range got {
					got[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[at+4*(h*backend.PageTokens*width+i):]))
				}
				worst.Add(fmt.Sprintf("%s of head %d", what, h), got, want[h*n*width:(h+1)*n*width])
			}
			at += 4 * heads * backend.PageTokens * width
		}
		c := r.Model.(*network.Model).Config.(*config)
		if c.rank == 0 {
			part("keys", c.kvHeads, c.headDim, f.Array(t, "0.state0.key").Data)
			part("values", c.kvHeads, c.headDim, f.Array(t, "0.state0.value").Data)
			return
		}
		part("latent rows", 1, c.rank, f.Array(t, "0.state0.latent").Data)
		// The reference writes the first numbers of all pairs first, we leave them where they are.
		turned := f.Array(t, "0.state0.rope")
		pairs := make([]float32, len(turned.Data))
		for i, x := range turned.Data {
			row, col := i/c.rotary, i%c.rotary
			pairs[row*c.rotary+col%(c.rotary/2)*2+col/(c.rotary/2)] = x
		}
		part("rotated rows", 1, c.rotary, pairs)
	}
}

func TestHeadIsLeftOut(t *testing.T) {
	incomplete := func(_ *testing.T, f *folder) { delete(f.tensors, f.head()+"eh_proj.weight") }
	for _, name := range golden.GLM {
		var paths []string
		for _, edits := range [][]edit{nil, {mlx}, {sidecar}, {uncopied}, {incomplete}} {
			paths = append(paths, fixture(t, name, edits...).write(t))
		}
		t.Run(name, func(t *testing.T) {
			names := []string{"inside", "converted", "beside", "no copies", "incomplete"}
			modeltest.HeadIsLeftOut(t, prompt, fixture(t, name, headless).write(t), names, paths)
		})
	}
}

// parts are the matrices and rows that a model or a head has around its layers.
func parts(of any) *network.Network {
	switch x := of.(type) {
	case *network.Model:
		return &x.Network
	case *network.Head:
		return &x.Network
	}
	return nil
}
