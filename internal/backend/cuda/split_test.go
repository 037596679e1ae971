package cuda

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
)

// TestModelsOnTheGPUAndTheCPU has the first layers of a model, or all of its experts, on the CPU and
// the rest on the GPU: the bits are those of the CPU alone, and the GPU's part of a pass is replayed.
func TestModelsOnTheGPUAndTheCPU(t *testing.T) {
	for name, c := range map[string]struct {
		model  string
		onHost func(p backend.Part) bool
	}{
		"layers":  {"dense", func(p backend.Part) bool { return p.Kind == backend.LayerPart && p.Layer < 2 }},
		"experts": {"moe", func(p backend.Part) bool { return p.Kind == backend.ExpertsPart }},
	} {
		t.Run(name, func(t *testing.T) {
			o := model.Options{Quantize: 8}
			want := dialog(t, backendtest.CPU(t, backend.Options{Threads: 1}), golden.Dir(t, c.model), o, 3)
			b := open(t, Options{})
			d, err := split.New(b, backendtest.CPU(t, backend.Options{Threads: 1}), c.onHost)
			if err != nil {
				t.Fatal(err)
			}
			for i, got := range dialog(t, d, golden.Dir(t, c.model), o, 3) {
				if got != want[i] {
					t.Fatalf("step %d differs", i)
				}
			}
			if b.passes.replayed == 0 {
				t.Error("no part of a pass was replayed")
			}
		})
	}
}
