//go:build vulkan

package vulkan

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	_ "github.com/foretoken/foretoken/internal/model/gemma" // the families of the models
	_ "github.com/foretoken/foretoken/internal/model/glm"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	_ "github.com/foretoken/foretoken/internal/model/qwen35"
)

var atLevel = flag.Int("level", -1, "level of the arithmetic; -1: the first that is exact")

// Break implements conformance.Breakable.
func (b *Backend) Break(err error) { b.fail(err) }

// levels are those to probe.
func levels() []Level {
	if *atLevel < 0 {
		return nil
	}
	return []Level{Level(*atLevel)}
}

// open is the backend on the machine's first usable device. That there is none is an error.
func open(tb testing.TB) *Backend {
	tb.Helper()
	b, err := Open(Options{Staging: 1 << 20, Slab: 16 << 20}, levels())
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

// TestDevice holds the kernels and whole models to the portable code: most of the time is for compiling kernels.
func TestDevice(t *testing.T) {
	b := open(t)
	t.Run("suite", func(t *testing.T) {
		defer b.spoils()()
		backendtest.Brief(t).Run(t, kept{b})
	})
	t.Run("kernels", func(t *testing.T) { suiteRunsKernels(t, b) })
	t.Run("models", func(t *testing.T) { modelsHaveTheBitsOfTheCPU(t, b) })
	t.Run("times", func(t *testing.T) { kernelsAreTimed(t, b) })
	if err := b.Close(); err != nil { // open does it again
		t.Error(err)
	}
}

// kept is a device that the suite does not close, so that its kernels are compiled once.
type kept struct{ *Backend }

// Close implements backend.Backend.
func (kept) Close() error { return nil }

// suiteRunsKernels checks that the suite has run every kernel whose results count, since it is the proof of a device: all but the probes,
// and those that the proof runs when a weight is loaded.
func suiteRunsKernels(t *testing.T, b *Backend) {
	var ran []string
	for name := range b.kernels {
		module, _, _ := strings.Cut(name, ":")
		ran = append(ran, name, module)
	}
	want := []string{"attend:0", "attend:1"}
	for _, keys := range deltaKeys {
		want = append(want, fmt.Sprintf("delta_recur_many:%d,0", keys), fmt.Sprintf("delta_recur_many:%d,1", keys))
	}
	for module := range b.modules {
		if module != "read_all" && !strings.HasPrefix(module, "product_matrix") && !strings.HasPrefix(module, "probe") && !strings.HasSuffix(module, "_codes") {
			want = append(want, module)
		}
	}
	for _, name := range want {
		if !slices.Contains(ran, name) {
			t.Errorf("kernel %s did not run", name)
		}
	}
}

type modelCase struct {
	name string
	o    model.Options
}

// modelCases are models of every family; more in the long version.
var modelCases = []modelCase{
	{"dense", model.Options{Quantize: 8, KVBits: 8}},
	{"moe", model.Options{Quantize: 5, KVBits: 4}},
	{"glm4_moe_lite", model.Options{KVBits: 8}},
	{"deepseek_v3", model.Options{Quantize: 4, KVBits: 8}},
	{"glm4_moe_air", model.Options{}},
	{"glm4_moe", model.Options{}},
	{"gemma4_dense", model.Options{}},
	{"gemma4_moe", model.Options{KVBits: 8}},
	{"gemma4_ple", model.Options{}},
	{"gemma4_unified", model.Options{KVBits: 4}},
	{kFile, model.Options{KVBits: 8}},
}

// kFile stands for golden.KFile.
const kFile = "K file"

// modelsHaveTheBitsOfTheCPU compares whole models: prompts, drafts that are verified and rolled back, the head's chains, the state.
// Passes of a shape that comes again are submitted again.
func modelsHaveTheBitsOfTheCPU(t *testing.T, b *Backend) {
	for _, c := range modelCases {
		t.Run(fmt.Sprintf("%s, %d bits, keys of %d bits", c.name, c.o.Quantize, c.o.KVBits), func(t *testing.T) {
			dir := ""
			if c.name == kFile {
				dir = golden.KFile(t)
			} else {
				dir = golden.Dir(t, c.name)
			}
			want := modeltest.Dialog(t, backendtest.CPU(t, backend.Options{Threads: 1}), dir, c.o, 3)
			before := b.passes.Replayed
			got := modeltest.Dialog(t, b, dir, c.o, 3)
			if u := b.Usage()[0]; u.Replayed != b.passes.Replayed || b.passes.Replayed == before || u.Recorded == 0 {
				t.Errorf("usage %+v, %d passes were submitted again before", u, before)
			}
			if n := len(b.passes.Known); n > 0 {
				t.Errorf("%d recordings of a model that was closed are kept", n)
			}
			for i, w := range want {
				if i >= len(got) || got[i] != w {
					t.Fatalf("step %d of %d differs", i, len(want))
				}
			}
		})
	}
}
