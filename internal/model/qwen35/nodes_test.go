package qwen35

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
)

// leading is a device of the CPU and nodes, of which each has a connection with its own delay.
func leading(t *testing.T, place func(backend.Part) int, delays ...time.Duration) backend.Backend {
	t.Helper()
	list := []backend.Backend{backendtest.CPU(t, backend.Options{Threads: 1})}
	for _, delay := range delays {
		n := backendtest.StartNode(t, backend.Options{Threads: 1})
		list = append(list, backendtest.Remote(t, backend.Options{}, remote.Options{Dial: n.Dial(delay)}))
	}
	d, err := split.New(func(p backend.Part) int { return place(p) % len(list) }, list...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestNodesChangeNothing puts a model on a leader and one to three nodes behind connections that delay everything by 0 to 5 ms:
// logits, drafts, rollbacks and saved states have the bits of one device, and each goes on with what the other has saved. The
// long version has every placement with every delay.
func TestNodesChangeNothing(t *testing.T) {
	const fast, lan, slow = 100 * time.Microsecond, 800 * time.Microsecond, 5 * time.Millisecond
	inTurns := func(p backend.Part) int { return p.Layer + int(p.Kind) }
	places := map[string]func(p backend.Part) int{
		"in turns": inTurns,
		"layers": func(p backend.Part) int {
			if p.Kind == backend.LayerPart || p.Kind == backend.ExpertsPart {
				return 1 + p.Layer
			}
			return 0
		},
		"all but the embedding": func(p backend.Part) int { return min(1, int(p.Kind^backend.EmbeddingPart)) * (1 + p.Layer%2) },
		"experts and head": func(p backend.Part) int {
			return map[backend.PartKind]int{backend.ExpertsPart: 1, backend.HeadPart: 2}[p.Kind]
		},
	}
	type nodes struct {
		model, place string
		delays       []time.Duration
	}
	cases := []nodes{
		{"dense", "layers", []time.Duration{0}},
		{"dense", "all but the embedding", []time.Duration{fast, slow}},
		{"moe", "experts and head", []time.Duration{0, fast}},
		{"moe", "in turns", []time.Duration{0, fast, lan}},
	}
	if long {
		cases = nil
		for _, name := range []string{"dense", "moe"} {
			for place := range places {
				for n := 1; n <= 3; n++ {
					for _, delay := range []time.Duration{0, fast, lan, slow} {
						cases = append(cases, nodes{name, place, []time.Duration{delay, delay, delay}[:n]})
					}
				}
			}
		}
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s/%s/%v", c.model, c.place, c.delays), func(t *testing.T) {
			f := golden.Load(t, c.model)
			tokens, o := f.Cases[len(f.Cases)-1].Tokens[:74], model.Options{Quantize: 8, MaxDrafts: 4, KVBits: 4}
			one := openSplit(t, golden.Dir(t, c.model), backendtest.CPU(t, backend.Options{Threads: 1}), o)
			r := openSplit(t, golden.Dir(t, c.model), leading(t, places[c.place], c.delays...), o)
			want, got := live(t, one, tokens), live(t, r, tokens)
			same(t, "logits", got.rows, want.rows)
			if !bytes.Equal(got.saved, want.saved) {
				t.Error("the saved state has other bytes")
			}
			same(t, "what another has saved", resume(t, r, want.saved, tokens), resume(t, one, got.saved, tokens))
		})
	}
}
