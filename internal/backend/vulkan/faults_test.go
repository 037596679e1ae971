package vulkan

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// newOn is a backend on a fake device.
func newOn(t *testing.T, f *fake, float64s bool) *Backend {
	t.Helper()
	b, err := New(f, driver.Info{Name: "fake", Float64: float64s}, Options{Kernels: os.DirFS("kernels"), Slab: 1 << 20, Staging: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestProbeFindsTheLevelOfADevice has devices with faults of every kind. The probe computes over its operands at each level, those
// that no device of the tests can run, too.
func TestProbeFindsTheLevelOfADevice(t *testing.T) {
	flushed := func(a, b, c float32) float32 { return flush(exactmath.FMA32(flush(a), flush(b), flush(c))) }
	for name, c := range map[string]struct {
		change   func(i *instructions)
		float64s bool
		want     Level
		refused  string
	}{
		"exact":                             {func(*instructions) {}, true, Instructions, ""},
		"fused, subnormal numbers are lost": {func(i *instructions) { i.fma = flushed }, true, FewGuards, ""},
		"not fused":                         {func(i *instructions) { i.fma = unfused }, true, Doubles, ""},
		"not fused, without float64":        {func(i *instructions) { i.fma = unfused }, false, Integers, ""},
		"subnormal numbers are lost everywhere": {func(i *instructions) {
			i.fma, i.add, i.mul = flushed, func(a, b float32) float32 { return flush(flush(a) + flush(b)) }, func(a, b float32) float32 { return flush(flush(a) * flush(b)) }
		}, true, AllGuarded, ""},
		"a wrong root": {func(i *instructions) { i.sqrt = func(x float32) float32 { return root(x) * 1.0000001 } }, true, 0, "sqrt(|a|) of 0x"},
		"a wrong product": {func(i *instructions) {
			i.mul = func(a, b float32) float32 { return float32(a*b) * 1.0000001 }
		}, true, 0, "level 2: a*b of 0x"},
	} {
		f := newFake()
		c.change(&f.instructions)
		b := newOn(t, f, c.float64s)
		err := b.Probe(nil)
		switch {
		case c.refused == "" && (err != nil || b.opts.Level != c.want):
			t.Errorf("%s: level %d, want %d: %v", name, b.opts.Level, c.want, err)
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: error %v", name, err)
		}
		if c.want != Instructions { // which says what is wrong
			if err := b.Probe([]Level{Instructions}); err == nil || !strings.Contains(err.Error(), "level 0: ") || !strings.Contains(err.Error(), " of 0x") {
				t.Errorf("%s: error %v at level 0", name, err)
			}
		}
		if err := b.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLostDevicesAreReported checks that the error of a lost device comes out of the next call that waits, and says that it is lost.
func TestLostDevicesAreReported(t *testing.T) {
	f := newFake()
	b := newOn(t, f, true)
	x, err := b.Alloc(dtype.F32, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	f.fail["Submit"] = &driver.Error{Call: "vkQueueSubmit", Code: driver.DeviceLost}
	_, err = b.Host(x)
	if !backend.Lost(err) || !strings.Contains(err.Error(), "restart the process") {
		t.Errorf("error %v", err)
	}
	if err := b.Close(); !backend.Lost(err) {
		t.Errorf("Close returns %v", err)
	}
}

// TestOutOfMemoryIsReported checks the error of an allocation that fails, after which the device goes on.
func TestOutOfMemoryIsReported(t *testing.T) {
	f := newFake()
	f.limit = 4 << 20
	b := newOn(t, f, true)
	_, err := b.Alloc(dtype.F32, 1000, 2000)
	if !errors.Is(err, driver.OutOfDeviceMemory) || !strings.Contains(err.Error(), "8.0 MB are needed, 3.1 of the GPU's 4.2 MB are free") || !strings.Contains(err.Error(), "smaller model") {
		t.Errorf("error %v", err)
	}
	x, err := b.Alloc(dtype.F32, 100, 100)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.Host(x); err != nil || len(got) != 10_000 {
		t.Errorf("%d numbers: %v", len(got), err)
	}
	b.Free(x)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestKernelsThatDoNotCompileAreReported checks that the error names the kernel.
func TestKernelsThatDoNotCompileAreReported(t *testing.T) {
	f := newFake()
	f.fail["Kernel"] = &driver.Error{Call: "vkCreateComputePipelines", Code: driver.InvalidShader}
	b := newOn(t, f, true)
	if err := b.Probe(nil); err == nil || !strings.Contains(err.Error(), "kernel probe: vulkan: vkCreateComputePipelines") {
		t.Errorf("error %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// fakes is a driver with fake devices.
type fakes struct {
	infos  []driver.Info
	err    error
	change func(i int, f *fake) // nil: the devices are exact
}

func (f fakes) Devices() ([]driver.Info, error) { return f.infos, f.err }
func (f fakes) Open(i int) (driver.Device, error) {
	dev := newFake()
	if f.change != nil {
		f.change(i, dev)
	}
	return dev, nil
}

// TestAutoTriesTheNextGPU has two discrete GPUs behind an integrated one: if the first is refused, its reason is logged and the second is
// used. If both are, the error has both reasons.
func TestAutoTriesTheNextGPU(t *testing.T) {
	for refused := 1; refused <= 2; refused++ {
		said := new(bytes.Buffer)
		d := fakes{
			infos: []driver.Info{{Name: "integrated"}, {Name: "first", Kind: driver.Discrete}, {Name: "second", Kind: driver.Discrete}},
			change: func(i int, f *fake) {
				if i <= refused {
					f.sqrt = func(x float32) float32 { return root(x) * 1.0000001 }
				}
			},
		}
		b, err := openOn(d, Options{Kernels: os.DirFS("kernels"), Slab: 1 << 20, Staging: 1 << 20, Auto: true, Log: slog.New(slog.NewTextHandler(said, nil))}, nil)
		if !strings.Contains(said.String(), "the GPU is not used") || !strings.Contains(said.String(), "vulkan: first: the device computes other results") {
			t.Errorf("log %s", said)
		}
		if refused == 2 {
			if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "integrated is none") || !strings.Contains(err.Error(), "second: the device computes") {
				t.Errorf("error %v", err)
			}
			continue
		}
		if err != nil || b.Name() != "vulkan:2 second, level 0" {
			t.Fatalf("error %v", err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestMatricesThatFailAreNotUsed has devices whose cooperative matrices compute nothing, and do not compile.
func TestMatricesThatFailAreNotUsed(t *testing.T) {
	for want, err := range map[string]error{
		"of 256 sums are wrong": nil,
		"kernel probe_matrix:32: vulkan: vkCreateComputePipelines": &driver.Error{Call: "vkCreateComputePipelines", Code: driver.InvalidShader},
	} {
		said := new(bytes.Buffer)
		d := fakes{infos: []driver.Info{{Name: "one", Matrix: 32}}, change: func(_ int, f *fake) { f.fail["Kernel with constants"] = err }}
		b, err := openOn(d, Options{Kernels: os.DirFS("kernels"), Slab: 1 << 20, Staging: 1 << 20, Log: slog.New(slog.NewTextHandler(said, nil))}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b.matrix != 0 || !strings.Contains(said.String(), "cooperative matrices of the device are not used") || !strings.Contains(said.String(), want) {
			t.Errorf("matrices of %d, want %s: %s", b.matrix, want, said)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestPlacesOfMatricesAreThoseOfTheKernel has the places of an NVIDIA GPU, and others in which the kernel does not find every sum once.
func TestPlacesOfMatricesAreThoseOfTheKernel(t *testing.T) {
	for want, place := range map[string]func(thread, sum int) int{
		"":                             func(t, i int) int { return t/4*16 + t%4*2 + i&1 + i>>1&1*128 + i>>2*8 },
		"sum 0 of thread 1 is at 0":    func(_, i int) int { return i&1 + i>>1&1*128 + i>>2*8 },
		"sum 4 of thread 0 is at -1":   func(t, i int) int { return max(-1, 4*t+i-100*(i>>2)) },
		"sum 0 of thread 31 is at 256": func(t, i int) int { return 8*(t+t/31) + i },
		"sum 3 of thread 0 is at 4":    func(t, i int) int { return 8*t + []int{0, 1, 2, 4, 3, 5, 6, 7}[i] },
	} {
		var data []byte
		for i := range 256 {
			data = binary.LittleEndian.AppendUint32(data, uint32(place(i/8, i%8)))
		}
		if places, wrong := placesOf(data); wrong != want || want == "" && places != [3]int{1, 128, 8} {
			t.Errorf("%v, %q, want %q", places, wrong, want)
		}
	}
}

// TestOpenSaysWhatIsWrong has drivers without a usable device, and one whose second device is usable.
func TestOpenSaysWhatIsWrong(t *testing.T) {
	old := driver.Info{Name: "old", Missing: "the driver has no integer dot products"}
	for what, c := range map[string]struct {
		d      fakes
		number int
		want   string
	}{
		"none":          {fakes{}, 0, "vulkan: not available: vulkan: vkEnumeratePhysicalDevices: VK_ERROR_INCOMPATIBLE_DRIVER; no usable Vulkan driver"},
		"an error":      {fakes{err: errReported}, 0, "vulkan: not available: reported"},
		"one too old":   {fakes{infos: []driver.Info{old}}, 0, "vulkan: not available: old: the driver has no integer dot products"},
		"a high number": {fakes{infos: []driver.Info{{}, {}}}, 3, "there is no GPU 2: the last is vulkan:1"},
	} {
		_, err := openOn(c.d, Options{Number: c.number, Kernels: os.DirFS("kernels")}, nil)
		if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	b, err := openOn(fakes{infos: []driver.Info{old, {Name: "new"}}}, Options{Kernels: os.DirFS("kernels"), Slab: 1 << 20, Staging: 1 << 20}, nil)
	if err != nil || b.info.Name != "new" || b.opts.Level != Instructions {
		t.Fatalf("%v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

var errReported = errors.New("reported")
