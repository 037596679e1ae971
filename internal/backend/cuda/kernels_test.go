package cuda

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/cuda/drivertest/ptx"
	"github.com/foretoken/foretoken/internal/filetest"
)

// kernelFiles are the files of kernels with one of the endings.
func kernelFiles(t *testing.T, endings ...string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, ending := range endings {
		names, err := filepath.Glob("kernels/*" + ending)
		if err != nil || len(names) == 0 {
			t.Fatalf("no *%s: %v", ending, err)
		}
		for _, name := range names {
			if files[filepath.Base(name)], err = os.ReadFile(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	return files
}

// The PTX is what the sources were compiled to.
func TestKernelsAreCompiled(t *testing.T) {
	text := filetest.Read(t, "kernels/kernels.sum")
	recorded := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		recorded[name] = sum
	}
	files := kernelFiles(t, ".cu", ".cuh", ".ptx.pack")
	for name, data := range files {
		if sum := fmt.Sprintf("%x", sha256.Sum256(data)); sum != recorded[name] {
			t.Errorf("%s is not what kernels.sum says: run make kernels", name)
		}
		if module, ok := strings.CutSuffix(name, ".cu"); ok && files[module+".ptx.pack"] == nil {
			t.Errorf("%s was not compiled: run make kernels", name)
		}
	}
	for name := range recorded {
		if files[name] == nil {
			t.Errorf("kernels.sum has %s, which is not there: run make kernels", name)
		}
	}
}

// A launch whose parameters are not those of the kernel's PTX is refused before the driver sees it.
func TestLaunchComparesParametersWithPTX(t *testing.T) {
	b, p := open(t, Options{}), driver.Ptr(0)
	for name, args := range map[string][]any{
		"one too few":        {p, 1, 1},
		"one too many":       {p, 1, 1, float32(0), 0},
		"another size":       {p, 1, int64(1), float32(0)},
		"another order":      {1, p, 1, float32(0)},
		"structure too long": {raw(askParam{}), 1, 1, float32(0)},
	} {
		message := func() (message any) {
			defer func() { message = recover() }()
			b.launch("rowwise.fill", pieces(1, 1), args...)
			return nil
		}()
		if text, _ := message.(string); !strings.Contains(text, "parameters of rowwise.fill end at bytes") {
			t.Errorf("%s: %v", name, message)
		}
	}
}

// The compiler of the driver may change nothing that the bits depend on.
func TestKernelsRoundToNearest(t *testing.T) {
	for name := range kernelFiles(t, ".ptx.pack") {
		text, err := readText(os.DirFS("kernels"), strings.TrimSuffix(name, ".ptx.pack"))
		if err != nil {
			t.Fatal(err)
		}
		if older := textFor(text, [2]int{8, 6}); !strings.Contains(older, "\n.target sm_80\n") || strings.Contains(older, "griddepcontrol") {
			t.Errorf("%s: not for compute capability 8.0", name)
		}
		findings, err := ptx.Scan(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, f := range findings {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
