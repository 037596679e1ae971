package cuda

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/cuda/drivertest"
	"github.com/foretoken/foretoken/internal/dtype"
)

// openDriver is a device of the interpreter.
func openDriver(tb testing.TB, o drivertest.Options) (driver.Device, driver.Info) {
	tb.Helper()
	d := drivertest.New(o)
	infos, err := d.Devices()
	if err != nil {
		tb.Fatal(err)
	}
	dev, err := d.Open(0)
	if err != nil {
		tb.Fatal(err)
	}
	return dev, infos[0]
}

// openInterpreted is the backend on a device of the interpreter. Every allocation is one of the
// driver's, so that reading and writing beside it is found.
func openInterpreted(tb testing.TB, device drivertest.Options, o Options) *Backend {
	tb.Helper()
	dev, info := openDriver(tb, device)
	o.Kernels, o.Slab, o.Staging = os.DirFS("kernels"), 1, 1<<20
	b, err := New(dev, info, o)
	if err != nil {
		tb.Fatal(err)
	}
	b.attention.splitBytes = 1 << 20
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}

// Memory that runs out is an error of the call, which takes nothing.
func TestOutOfMemoryIsReported(t *testing.T) {
	dev, info := openDriver(t, drivertest.Options{Devices: []driver.Info{{Name: "small", Compute: [2]int{9, 0}, Memory: 1 << 20, Multiprocessors: 1, Shared: 227 << 10}}})
	b, err := New(dev, info, Options{Slab: 1 << 18, Staging: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	free := b.FreeMemory()
	_, err = b.Alloc(dtype.F32, 1000, 1000)
	const want = "cuda: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: 4.0 MB are needed, 1.0 of the GPU's 1.0 MB are free and this process has 0.0 MB; " +
		"GPU memory is full: end other programs that use it (nvidia-smi lists them), or choose a smaller model or context"
	if !errors.Is(err, driver.OutOfMemory) || err.Error() != want {
		t.Errorf("error %v", err)
	}
	if now := b.FreeMemory(); now != free {
		t.Errorf("%d bytes free, before it were %d", now, free)
	}
	x, err := b.Alloc(dtype.F32, 100, 100)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.Host(x); err != nil || len(got) != 10_000 || got[9999] != 0 {
		t.Errorf("%d numbers: %v", len(got), err)
	}
	if u := b.Usage()[0]; u.Used != 1<<18 || u.Memory != 1<<20 || u.Free != 3<<18 {
		t.Errorf("usage %+v", u)
	}
	b.Free(x)
	if x, err = b.Alloc(dtype.F32, 250, 1000); err != nil { // where the slab was, which nothing lies in
		t.Errorf("what was freed cannot be used: %v", err)
	}
	if u := b.Usage()[0]; u.Used != 1_000_000 {
		t.Errorf("usage %+v", u)
	}
	b.Free(x)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// A device that is lost says so in every call that waits, and can be closed.
func TestLostDeviceIsReported(t *testing.T) {
	lost := false
	dev, info := openDriver(t, drivertest.Options{Fail: func(call string) driver.Code {
		if lost && call == "cuStreamSynchronize" {
			return driver.LaunchFailed
		}
		return 0
	}})
	b, err := New(dev, info, Options{Slab: 1, Staging: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	x, err := b.Alloc(dtype.F32, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	lost = true
	for range 2 {
		if _, err := b.Host(x); !errors.Is(err, driver.LaunchFailed) {
			t.Errorf("error %v", err)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// A stream is all of its memory, read.
func TestStreamReadsEverything(t *testing.T) {
	b := open(t, Options{})
	s, err := b.NewStream(100_000)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Read() <= 0 || s.Bytes() != 100_000 {
		t.Errorf("%d bytes", s.Bytes())
	}
	if err := b.wait(); err != nil {
		t.Error(err)
	}
}

// CopyEach copies what Copy does: tensors of any number of rows, more of them than a launch has, rows of
// several widths and types, and columns of others.
func TestCopyEach(t *testing.T) {
	b := open(t, Options{})
	rng := rand.New(rand.NewPCG(5, 6))
	var dst, src []backend.Tensor
	var want [][]float32
	for range 20 {
		rows, cols := rng.IntN(90), []int{1, 64, 1500}[rng.IntN(3)]
		if cols > 64 {
			rows %= 8
		}
		alloc := func() backend.Tensor {
			x, err := b.Alloc(dtype.F32, rows+1, 2*cols)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		x, y := alloc(), alloc()
		list := make([]float32, x.Rows*x.Cols)
		for i := range list {
			list[i] = rng.Float32()
		}
		if err := b.Write(x, list); err != nil {
			t.Fatal(err)
		}
		b.Fill(y, -1)
		one, other := rng.IntN(2), rng.IntN(2)*cols
		all := make([]float32, len(list))
		for i := range all {
			all[i] = -1
		}
		for r := range rows {
			copy(all[r*2*cols+other:][:cols], list[(r+one)*2*cols+cols:])
		}
		dst, src, want = append(dst, y.RowRange(0, rows).ColRange(other, other+cols)), append(src, x.RowRange(one, one+rows).ColRange(cols, 2*cols)), append(want, all)
	}
	b.CopyEach(dst, src)
	for i := range dst {
		y := dst[i]
		y.Offset, y.Rows, y.Cols = 0, y.Rows+1, y.Stride
		if got, err := b.Host(y); err != nil || !slices.Equal(got, want[i]) {
			t.Fatalf("tensor %d of %d rows: %v", i, dst[i].Rows, err)
		}
	}
}

// failOnce has a call of the driver fail, once, when fails is set.
func failOnce(call string, fails *bool) func(string) driver.Code {
	return func(made string) driver.Code {
		if !*fails || made != call {
			return 0
		}
		*fails = false
		return driver.OutOfResources
	}
}

// Memory that is to be zero is so, or is not there: also when it was asked for after an error, and when the driver does not set it.
func TestZerosAreZero(t *testing.T) {
	fails := false
	dev, info := openDriver(t, drivertest.Options{Fail: failOnce("cuMemsetD8Async", &fails)})
	b, err := New(dev, info, Options{Slab: 1 << 20, Staging: 1 << 18})
	if err != nil {
		t.Fatal(err)
	}
	for i, before := range []func(){func() { b.fail(errors.New("full")) }, func() { fails = true }} {
		used, err := b.Alloc(dtype.I8, 1, 256)
		if err == nil {
			err = b.WriteBytes(used, bytes.Repeat([]byte{1}, 256))
		}
		if err != nil {
			t.Fatal(err)
		}
		b.Free(used) // what is asked for next lies there
		var p piece
		before()
		b.zeros(&p, 256)
		if err := b.wait(); err == nil {
			t.Error("there is no error")
		}
		data, err := b.read(b.zeros(&p, 256), 256)
		if err != nil || !bytes.Equal(data, make([]byte, 256)) {
			t.Errorf("%d: %v, %v", i, data, err)
		}
		b.retire(p.at)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// Where the driver has less than a slab left, there is memory for what is smaller.
func TestLastMemoryIsUsed(t *testing.T) {
	small := driver.Info{Name: "small", Compute: [2]int{9, 0}, Memory: 1 << 20, Multiprocessors: 1, Shared: 227 << 10}
	dev, info := openDriver(t, drivertest.Options{Devices: []driver.Info{small}})
	b, err := New(dev, info, Options{Slab: 512 << 10, Staging: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	large, err := b.Alloc(dtype.I8, 1, 900<<10)
	if err != nil {
		t.Fatal(err)
	}
	x, err := b.Alloc(dtype.I8, 1, 10<<10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Alloc(dtype.I8, 1, 120<<10); !errors.Is(err, driver.OutOfMemory) || !strings.Contains(err.Error(), "0.1 MB are needed") {
		t.Errorf("error %v", err)
	}
	b.Free(x)
	b.Free(large)
	if u := b.Usage()[0]; u.Used != 0 {
		t.Errorf("%d bytes are still taken", u.Used)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// A stream that cannot be made takes nothing.
func TestStreamThatFailsTakesNothing(t *testing.T) {
	fails := false
	dev, info := openDriver(t, drivertest.Options{Fail: failOnce("cuMemsetD8Async", &fails)})
	b, err := New(dev, info, Options{Slab: 1, Staging: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	fails = true
	if _, err := b.NewStream(1 << 20); !errors.Is(err, driver.OutOfResources) {
		t.Errorf("error %v", err)
	}
	if u := b.Usage()[0]; u.Used != 0 {
		t.Errorf("%d bytes are still taken", u.Used)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
