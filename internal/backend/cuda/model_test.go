package cuda

import (
	"fmt"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	_ "github.com/foretoken/foretoken/internal/model/qwen35" // the family of the models
)

type modelCase struct {
	name   string
	o      model.Options
	rounds int
}

// modelCases are models of every kind of layer, and ways to compute. That of trained weights takes the
// interpreter as long as all others: it is among them on a GPU, and in the long version.
var modelCases = []modelCase{
	{"dense", model.Options{Quantize: 4}, 4},
	{"dense", model.Options{Quantize: 8, KVBits: 8}, 3},
	{"moe", model.Options{Quantize: 5, KVBits: 32}, 3},
	{"dense", model.Options{Quantize: 8, KVBits: 4}, 3},
}

// Whole models have the CPU's bits: prompts, drafts that are verified and rolled back, the head's
// chains, the state as it goes to disk. Passes of a shape that comes again are replayed.
func TestModelsHaveTheBitsOfTheCPU(t *testing.T) {
	for _, c := range modelCases {
		t.Run(fmt.Sprintf("%s, %d bits, keys of %d bits, %v", c.name, c.o.Quantize, c.o.KVBits, c.o.Compute), func(t *testing.T) {
			dir := golden.Dir(t, c.name)
			want := modeltest.Dialog(t, backendtest.CPU(t, backend.Options{Threads: 1}), dir, c.o, c.rounds)
			b := open(t, Options{})
			got := modeltest.Dialog(t, b, dir, c.o, c.rounds)
			for i, w := range want {
				if i >= len(got) || got[i] != w {
					t.Fatalf("step %d differs", i)
				}
			}
			u := b.Usage()[0]
			if (u.Replayed == 0 || u.Recordings == 0) && c.rounds > 1 || u.Replayed != b.passes.Replayed || u.Recorded < int64(u.Recordings) {
				t.Errorf("usage %+v", u)
			}
		})
	}
}
