package gemma

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
)

// TestBordersChangeNothing puts models on two and three devices, with a border before each layer, and with
// their experts apart: logits and saved states have the bits of one device. Layers that share may be on another device than
// the memory that they read.
func TestBordersChangeNothing(t *testing.T) {
	for _, name := range golden.Gemma {
		tokens := golden.Load(t, name).Cases[2].Tokens[:70]
		o := model.Options{Quantize: 8, MaxDrafts: 4}
		cpu := backendtest.Open(t, backend.Options{Threads: 1})
		r := openOn(t, cpu, golden.Dir(t, name), o)
		want, saved := told(t, r, tokens)
		places := map[string]func(p backend.Part) int{
			"in turns": func(p backend.Part) int { return (p.Layer + int(p.Kind)) % 3 },
			"by kind":  func(p backend.Part) int { return int(p.Kind) % 3 },
		}
		for border := range r.Info().Layers + 1 {
			places[fmt.Sprintf("border at %d", border)] = func(p backend.Part) int {
				if (p.Kind == backend.LayerPart || p.Kind == backend.ExpertsPart) && p.Layer < border {
					return 1 + p.Layer%2
				}
				return 0
			}
		}
		for where, place := range places {
			t.Run(name+"/"+where, func(t *testing.T) {
				o1 := backendtest.NewOpaque
				d, err := split.New(place, o1(cpu), o1(cpu), o1(cpu))
				if err != nil {
					t.Fatal(err)
				}
				rows, bytesSaved := told(t, openOn(t, d, golden.Dir(t, name), o), tokens)
				same(t, "logits", rows, want)
				if !bytes.Equal(bytesSaved, saved) {
					t.Error("the saved state has other bytes")
				}
			})
		}
	}
}

// told is a text fed in pieces to a model, and its saved state.
func told(t *testing.T, r *rig, tokens []int32) (rows [][]float32, saved []byte) {
	t.Helper()
	s := r.Sequence(t)
	for at, n := 0, 62; at < len(tokens); at, n = at+n, 1 {
		out, _ := r.Feed(t, model.Span{State: s, Tokens: tokens[at : at+n], Want: n})
		rows = append(rows, out...)
	}
	return rows, modeltest.Saved(t, s)
}
