package gemma

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
	rigOf      = modeltest.New
)

// answers are the logits of the model at a path for a text.
func answers(t *testing.T, path string, text []int32) [][]float32 {
	t.Helper()
	logits, _ := open(t, path, 1, model.Options{Compute: backend.Float32}).Answers(t, text)
	return logits
}

// TestLaws holds models of all kinds to the laws of exactness, with a text that is longer than the windows and crosses two page
// borders. Rows in place of tokens have the layer embeddings of token 0.
func TestLaws(t *testing.T) { modeltest.Laws(t, subjects(t)) }

func subjects(t *testing.T) (list []modeltest.Subject) {
	for i, name := range golden.Gemma {
		tokens := slices.Clone(golden.Load(t, name).Cases[2].Tokens[:136])
		for at := 3; at < len(tokens); at += 4 {
			tokens[at] = 0
		}
		for j, o := range []model.Options{
			{Compute: backend.Float32}, {Compute: backend.Int8, Quantize: 4, KVBits: 4}, {Compute: backend.Int8, Quantize: 8, KVBits: 8},
		} {
			if testing.Short() && j != i%3 {
				continue // one of each path
			}
			o.MaxDrafts = 8
			sub := modeltest.Subject{Name: fmt.Sprintf("%s/%v/kv=%d", name, o.Compute, o.KVBits), Dir: golden.Dir(t, name), Options: o, Tokens: tokens}
			if name == "gemma4_ple" {
				sub.RowsFor = []int32{0}
			}
			list = append(list, sub)
		}
	}
	return list
}

func TestModelEqualsReference(t *testing.T) {
	for _, name := range golden.Gemma {
		t.Run(name, func(t *testing.T) { modeltest.EqualsReference(t, name, golden.Dir(t, name), remembered(t)) })
	}
}

// remembered compares what the last layers with memory of both kinds have of the prompt.
func remembered(t *testing.T) func(*golden.Worst, *rig, *state.State, *golden.Fixture) {
	return func(worst *golden.Worst, r *rig, s *state.State, f *golden.Fixture) {
		seq := s.Seq(0, 0, 0, nil)
		c := r.Model.(*network.Model).Config.(*config)
		places := r.Layout().Places()
		for k, name := range kindNames {
			layer := len(c.kinds) - c.shared - 1
			for int(c.kinds[layer]) != k {
				layer--
			}
			_, pages := seq.Table(&places[layer])
			data := make([]byte, pages[0].Cols)
			if err := r.B.ReadBytes(data, pages[0]); err != nil {
				t.Fatal(err)
			}
			at := places[layer].Page
			for _, part := range []string{"key", "value"} {
				want := f.Array(t, "0.lent."+name+"."+part)
				heads, rows, width := want.Shape[0], want.Shape[1], want.Shape[2]
				for h := range heads {
					got := make([]float32, rows*width)
					for i := range got {
						got[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[at+4*(h*backend.PageTokens*width+i):]))
					}
					worst.Add(fmt.Sprintf("layer %d: %s of head %d", layer, part, h), got, want.Data[h*rows*width:(h+1)*rows*width])
				}
				at += 4 * heads * backend.PageTokens * width
			}
		}
	}
}
