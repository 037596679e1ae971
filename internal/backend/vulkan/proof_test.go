package vulkan

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/gpu"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
)

// TestProofsHoldForTheirSubject reads proofs of other subjects, and damaged ones: each is made again, with the reason.
func TestProofsHoldForTheirSubject(t *testing.T) {
	folder, of := t.TempDir(), subject{Device: "GPU", Driver: "one 1.0", Version: 1, Kernels: "k", Arithmetic: "a", Suite: "s"}
	p, err := readProof(folder, of)
	if err == nil || !strings.Contains(err.Error(), "not proven before") {
		t.Fatalf("error %v", err)
	}
	p.Level, p.Date, p.Shapes = Guarded, time.Now().UTC().Truncate(time.Second), []string{"one"}
	if err := p.write(); err != nil {
		t.Fatal(err)
	}
	if q, err := readProof(folder, of); err != nil || q.Level != Guarded || !q.Date.Equal(p.Date) || len(q.Shapes) != 1 || q.holds() != nil {
		t.Fatalf("%+v, error %v", q, err)
	}
	for what, change := range map[string]func(s *subject){
		"the driver changed from one 1.0 (1, ) to one 1.0 (2, )":   func(s *subject) { s.Version = 2 },
		"the driver changed from one 1.0 (1, ) to other 1.0 (1, )": func(s *subject) { s.Driver = "other 1.0" },
		"the kernels changed from k to l":                          func(s *subject) { s.Kernels = "l" },
		"the arithmetic changed from a to b":                       func(s *subject) { s.Arithmetic = "b" },
		"the conformance suite changed from s to t":                func(s *subject) { s.Suite = "t" },
	} {
		other := of
		change(&other)
		if q, err := readProof(folder, other); err == nil || err.Error() != what || q.Of != other || q.file != p.file {
			t.Errorf("%s: error %v", what, err)
		}
	}
	whole, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	for what, data := range map[string][]byte{
		"cut off":       whole[:len(whole)/2],
		"another level": bytes.Replace(whole, []byte(`"level": 3`), []byte(`"level": 0`), 1),
		"empty":         nil,
		"too long":      append(whole, bytes.Repeat([]byte(" "), maxProof)...),
	} {
		if err := os.WriteFile(p.file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readProof(folder, of); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("%s: error %v", what, err)
		}
	}
}

// TestProofsHoldForTheCode changes a module, and files of code and of tests: all but tests need another proof.
func TestProofsHoldForTheCode(t *testing.T) {
	of := func(change string) string {
		modules, code := fstest.MapFS{kernelsFile: {Data: []byte("modules")}}, fstest.MapFS{"matmul.go": {Data: []byte("few")}, "driver/device.go": {Data: []byte("d")}, "a_test.go": {}}
		for _, files := range []fstest.MapFS{modules, code} {
			if f := files[change]; f != nil {
				f.Data = append(f.Data, 'x')
			}
		}
		sum, err := kernelsDigest(modules, code)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	for file, other := range map[string]bool{"matmul.go": true, "driver/device.go": true, kernelsFile: true, "a_test.go": false} {
		if (of(file) != of("")) != other {
			t.Errorf("a change of %s: another proof is needed: %v", file, !other)
		}
	}
	for file, files := range map[string]fs.FS{"matmul.go": sources, "driver/device.go": sources, "spirv/spirv.go": sources, "call.go": gpu.Sources} {
		if _, err := fs.Stat(files, file); err != nil {
			t.Error(err)
		}
	}
}

// proveFake opens a fake device that has to prove itself. Its kernels compute nothing, so that only the checks of memory are wrong or not.
func proveFake(t *testing.T, folder string, change func(f *fake), info driver.Info) (log string, err error) {
	t.Helper()
	f, said := newFake(), &bytes.Buffer{}
	change(f)
	b, err := New(f, info, Options{Kernels: os.DirFS("kernels"), Slab: 1 << 16, Staging: 1 << 20, Proofs: folder, Log: slog.New(slog.NewTextHandler(said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil && len(f.fail) == 0 {
			t.Error(err)
		}
	}()
	err = b.prove(nil)
	return said.String(), err
}

// TestDevicesAreProvenByKernels has a device whose single operations are exact and whose kernels are wrong: it is refused with both
// results, and the refusal is kept until the driver changes. A lost device and full memory are no refusals.
func TestDevicesAreProvenByKernels(t *testing.T) {
	folder, exact := t.TempDir(), func(*fake) {}
	info := driver.Info{Name: "fake", Driver: "1", Version: 1}
	log, err := proveFake(t, folder, exact, info)
	if err == nil || !strings.Contains(err.Error(), "level 0: Fill: ") || !strings.Contains(log, "not proven before") || !strings.Contains(log, "not exact\" device=fake level=0 reason=\"Fill: ") {
		t.Fatalf("error %v, log %s", err, log)
	}
	if log, again := proveFake(t, folder, exact, info); again == nil || again.Error() != err.Error() || log != "" {
		t.Errorf("error %v, log %s", again, log)
	}
	if text, refused := described(&info, os.DirFS("kernels"), folder); text != "" || refused == nil || refused.Error() != err.Error() {
		t.Errorf("described as %q, %v", text, refused)
	}
	info.Version = 2
	if log, err := proveFake(t, folder, exact, info); err == nil || !strings.Contains(log, "the driver changed from") {
		t.Errorf("error %v, log %s", err, log)
	}
	info.Version = 3
	lost := func(f *fake) { f.fail["Submit"] = &driver.Error{Call: "vkQueueSubmit", Code: driver.DeviceLost} }
	if _, err := proveFake(t, folder, lost, info); err == nil || strings.Contains(err.Error(), "refused") {
		t.Errorf("error %v", err)
	}
	hangs := func(f *fake) { f.fail["Wait"] = &driver.Error{Call: "vkWaitSemaphores", Code: driver.Timeout} }
	if _, err := proveFake(t, folder, hangs, info); err == nil || !strings.Contains(err.Error(), "VK_TIMEOUT; the GPU no longer works") {
		t.Errorf("error %v", err)
	}
	full := func(f *fake) { f.full = true }
	if _, err := proveFake(t, folder, full, info); err == nil || strings.Contains(err.Error(), "refused") || !strings.Contains(err.Error(), "OUT_OF_DEVICE_MEMORY") {
		t.Errorf("error %v", err)
	}
	if text, refused := described(&info, os.DirFS("kernels"), folder); refused != nil || !strings.Contains(text, "the driver changed from 1 (2,") {
		t.Errorf("described as %q, %v", text, refused)
	}
}

// TestBackendsShareAProof has two backends of a device that computes nothing, and the second cannot be opened a third time: both find
// what is wrong.
func TestBackendsShareAProof(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	host := backendtest.CPU(t, backend.Options{Threads: 1})
	made := 0
	fresh := func() (*Backend, error) {
		if made++; made > 2 {
			return nil, errors.New("no more")
		}
		return New(newFake(), driver.Info{Name: "fake"}, Options{Kernels: os.DirFS("kernels"), Slab: 1 << 20, Staging: 1 << 20})
	}
	b, err := fresh()
	if err != nil {
		t.Fatal(err)
	}
	b.again = fresh
	found, err := b.share(host, []string{"GLU", "Cap", "Gather", "LayerNorm"})
	if err != nil || len(found) == 0 || made != 3 {
		t.Errorf("findings %v, %v, of %d", found, err, made)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestDescribedProofs has the description of a device with a proof.
func TestDescribedProofs(t *testing.T) {
	folder, info := t.TempDir(), driver.Info{Name: "GPU", Driver: "D 1"}
	of, err := subjectOf(&info, os.DirFS("kernels"))
	if err != nil {
		t.Fatal(err)
	}
	p, _ := readProof(folder, of)
	p.Level, p.Date = Doubles, time.Date(2026, 11, 5, 0, 0, 0, 0, time.UTC)
	if err := p.write(); err != nil {
		t.Fatal(err)
	}
	if text, refused := described(&info, os.DirFS("kernels"), folder); refused != nil || text != "bit-identical to the CPU at level 1, proven 2026-11-05 with D 1; products of 0 shapes" {
		t.Errorf("described as %q, %v", text, refused)
	}
	if files, err := filepath.Glob(filepath.Join(folder, "*")); err != nil || len(files) != 1 || !json.Valid(read(t, files[0])) {
		t.Errorf("files %v", files)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
