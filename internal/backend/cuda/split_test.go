package cuda

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
)

// TestModelsOnTheGPUAndTheCPU has the first layers of a model, or all of its experts, on the CPU, and the rest on the
// GPU or on two: the bits are those of the CPU alone, and each GPU's part of a pass is replayed.
func TestModelsOnTheGPUAndTheCPU(t *testing.T) {
	for name, c := range map[string]struct {
		model string
		gpus  int
		place func(p backend.Part) int
	}{
		"layers":   {"dense", 1, func(p backend.Part) int { return []int{1, 0}[min(p.Layer/2+int(p.Kind), 1)] }},
		"experts":  {"moe", 1, func(p backend.Part) int { return []int{0, 1, 0, 0, 0, 0}[p.Kind] }},
		"two GPUs": {"dense", 2, func(p backend.Part) int { return []int{2, 1, 0}[min(p.Layer+2*int(p.Kind), 2)] }},
	} {
		t.Run(name, func(t *testing.T) {
			o := model.Options{Quantize: 8}
			want := modeltest.Dialog(t, backendtest.CPU(t, backend.Options{Threads: 1}), golden.Dir(t, c.model), o, 3)
			var gpus []*Backend
			var list []backend.Backend
			for range c.gpus {
				b := open(t, Options{})
				gpus, list = append(gpus, b), append(list, b)
			}
			d, err := split.New(c.place, append(list, backendtest.CPU(t, backend.Options{Threads: 1}))...)
			if err != nil {
				t.Fatal(err)
			}
			for i, got := range modeltest.Dialog(t, d, golden.Dir(t, c.model), o, 3) {
				if got != want[i] {
					t.Fatalf("step %d differs", i)
				}
			}
			for i, b := range gpus {
				if b.passes.Replayed == 0 {
					t.Errorf("no part of a pass was replayed on GPU %d", i)
				}
			}
		})
	}
}
