//go:build vulkan

package vulkan

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	_ "github.com/foretoken/foretoken/internal/model/qwen35" // the family of the models
)

var atLevel = flag.Int("level", -1, "level of the arithmetic; -1: the first that is exact")

// Break implements backendtest.Breakable.
func (b *Backend) Break(err error) { b.fail(err) }

// present are the checks of what there is.
var present = []string{
	"Host", "Fill and Write", "Alloc", "Free", "Copy", "ReadBytes and WriteBytes", "Load", "Embed", "Embed with a factor", "MatMul", "Gather", "RMSNorm", "LayerNorm", "NormAdd", "GLU", "GELU", "Cap",
	"Rotate", "Mix", "Top", "Attend", "Attend with options", "Attend behind windows", "Attend without keys", "Attend inside blocks", "Convolve", "DeltaNet", "Unload", "errors", "Pass",
}

// open is the backend on the machine's first usable device. That there is none is an error.
func open(tb testing.TB) *Backend {
	tb.Helper()
	var levels []Level
	if *atLevel >= 0 {
		levels = []Level{Level(*atLevel)}
	}
	b, err := Open(Options{Staging: 1 << 20, Slab: 16 << 20}, levels)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Logf("%s, driver %s", b.Name(), b.info.Driver)
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}

// TestConformance holds the kernels to the portable code.
func TestConformance(t *testing.T) { backendtest.Brief(t).Only(present...).Run(t, open(t)) }

// TestExpertsAreRefused checks that an operation that is yet to come is an error that names it.
func TestExpertsAreRefused(t *testing.T) {
	b := open(t)
	x, err := b.Alloc(dtype.F32, 1, 4)
	if err != nil {
		t.Fatal(err)
	}
	b.missing("experts")
	b.Fill(x, 1)
	if _, err := b.Host(x); err == nil || !strings.Contains(err.Error(), "experts: not yet computed") {
		t.Errorf("error %v", err)
	}
	if _, err := b.Host(x); err != nil {
		t.Error(err)
	}
}

// modelCases are the models to compare; more in the long version.
var modelCases = []model.Options{{Quantize: 8, KVBits: 8}}

// TestModelsHaveTheBitsOfTheCPU compares whole models: prompts, drafts that are verified and rolled back, the head's chains, the state.
func TestModelsHaveTheBitsOfTheCPU(t *testing.T) {
	for _, o := range modelCases {
		t.Run(fmt.Sprintf("%d bits, keys of %d bits", o.Quantize, o.KVBits), func(t *testing.T) {
			dir := golden.Dir(t, "dense")
			want := modeltest.Dialog(t, backendtest.CPU(t, backend.Options{Threads: 1}), dir, o, 3)
			got := modeltest.Dialog(t, open(t), dir, o, 3)
			for i, w := range want {
				if i >= len(got) || got[i] != w {
					t.Fatalf("step %d of %d differs", i, len(want))
				}
			}
		})
	}
}
