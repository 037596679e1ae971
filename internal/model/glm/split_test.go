package glm

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
// their experts apart: logits, drafts and saved states have the bits of one device.
func TestBordersChangeNothing(t *testing.T) {
	for _, name := range golden.GLM {
		tokens := golden.Load(t, name).Cases[2].Tokens[:70]
		o := model.Options{Quantize: 8, MaxDrafts: 4}
		cpu := backendtest.Open(t, backend.Options{Threads: 1})
		want, drafts, saved := told(t, openOn(t, cpu, golden.Dir(t, name), o), tokens)
		places := map[string]func(p backend.Part) int{
			"in turns": func(p backend.Part) int { return (p.Layer + int(p.Kind)) % 3 },
			"by kind":  func(p backend.Part) int { return int(p.Kind) % 3 },
		}
		for border := range 4 {
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
				rows, head, bytesSaved := told(t, openOn(t, d, golden.Dir(t, name), o), tokens)
				same(t, "logits", rows, want)
				same(t, "drafts", head, drafts)
				if !bytes.Equal(bytesSaved, saved) {
					t.Error("the saved state has other bytes")
				}
			})
		}
	}
}

// told is a text fed in pieces to a model and its head, and its saved states.
func told(t *testing.T, r *rig, tokens []int32) (rows, drafts [][]float32, saved []byte) {
	t.Helper()
	s, h := r.Sequence(t), r.Pairs(t)
	width := r.Info().Width
	for at, n := 0, 62; at < len(tokens)-1; at, n = at+n, 1 {
		out, hidden := r.Feed(t, model.Span{State: s, Tokens: tokens[at : at+n], Want: n})
		rows = append(rows, out...)
		out, _ = r.FeedHead(t, h, hidden[:n*width], tokens[at+1:at+n+1])
		drafts = append(drafts, out...)
	}
	return rows, drafts, modeltest.Saved(t, s)
}
