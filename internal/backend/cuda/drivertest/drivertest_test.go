package drivertest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/cuda/drivertest/ptx"
)

// double doubles n words, one thread each, and one chosen thread reads beyond them.
const double = `.version 7.8
.target sm_90
.address_size 64
.visible .entry double(.param .u64 p, .param .u32 n, .param .u32 astray)
{
	.reg .pred %p<3>;
	.reg .b32 %r<9>;
	.reg .b64 %rd<4>;
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %ntid.x;
	mov.u32 %r3, %tid.x;
	mad.lo.s32 %r4, %r1, %r2, %r3;
	ld.param.u32 %r5, [n];
	setp.ge.u32 %p1, %r4, %r5;
	@%p1 ret;
	ld.param.u32 %r6, [astray];
	add.s32 %r4, %r4, %r6;
	ld.param.u64 %rd1, [p];
	mul.wide.u32 %rd2, %r4, 4;
	add.s64 %rd3, %rd1, %rd2;
	griddepcontrol.wait;
	ld.global.u32 %r7, [%rd3];
	shl.b32 %r7, %r7, 1;
	st.global.u32 [%rd3], %r7;
	ret;
}
`

func must[T any](t *testing.T) func(v T, err error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bench is a device with the kernel and four words.
type bench struct {
	dev    driver.Device
	s      driver.Stream
	double driver.Function
	p      driver.Ptr
}

func newBench(t *testing.T, o Options) *bench {
	t.Helper()
	b := &bench{dev: must[driver.Device](t)(New(o).Open(0))}
	m := must[driver.Module](t)(b.dev.Load(double))
	b.double = must[driver.Function](t)(m.Function("double"))
	b.s = must[driver.Stream](t)(b.dev.Stream())
	b.p = must[driver.Ptr](t)(b.dev.Alloc(16))
	return b
}

func (b *bench) launch(astray uint32) driver.Launch {
	params := binary.LittleEndian.AppendUint64(nil, uint64(b.p))
	params = binary.LittleEndian.AppendUint32(params, 4)
	params = binary.LittleEndian.AppendUint32(params, astray)
	return driver.Launch{Function: b.double, Grid: [3]int{2, 1, 1}, Block: [3]int{32, 1, 1}, Params: params, Dependent: true}
}

func TestStreamRunsInOrder(t *testing.T) {
	b := newBench(t, Options{})
	in := must[[]byte](t)(b.dev.Pin(16))
	copy(in, []byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0})
	out := make([]byte, 16)
	ok(t, b.s.Set(b.p, 0xff, 16))
	ok(t, b.s.Write(b.p, in))
	ok(t, b.s.Launch(b.launch(0)))
	ok(t, b.s.Launch(b.launch(0)))
	ok(t, b.s.Read(out, b.p))
	if !bytes.Equal(out, make([]byte, 16)) {
		t.Error("the host sees results before it waits")
	}
	in[0] = 9 // too early: the copy has not been made
	ok(t, b.s.Wait())
	if want := []byte{36, 0, 0, 0, 8, 0, 0, 0, 12, 0, 0, 0, 16, 0, 0, 0}; !bytes.Equal(out, want) {
		t.Errorf("%v, want %v", out, want)
	}
	if err := b.dev.Close(); err == nil || !strings.Contains(err.Error(), "were not freed") {
		t.Errorf("memory that was not freed: %v", err)
	}
}

func TestGraphsReplay(t *testing.T) {
	b := newBench(t, Options{})
	in, out := []byte{1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}, make([]byte, 16)
	g := must[driver.Graph](t)(b.s.Capture(func() error {
		if err := b.s.Wait(); !errors.Is(err, driver.CaptureUnsupported) {
			t.Errorf("waiting while recording: %v", err)
		}
		if _, err := b.dev.Alloc(4); !errors.Is(err, driver.CaptureUnsupported) {
			t.Errorf("allocating while recording: %v", err)
		}
		return errors.Join(b.s.Write(b.p, in), b.s.Launch(b.launch(0)), b.s.Launch(b.launch(0)), b.s.Read(out, b.p))
	}))
	ok(t, b.s.Wait())
	if out[0] != 0 || g.Nodes() != 4 {
		t.Errorf("recording ran, or is not of 4 nodes: %v, %d", out, g.Nodes())
	}
	for i := range byte(3) {
		in[0] = i
		ok(t, g.Launch())
		ok(t, b.s.Wait())
		if out[0] != 4*i || out[4] != 4 {
			t.Errorf("replay %d: %v", i, out)
		}
	}
	broken := errors.New("broken")
	if _, err := b.s.Capture(func() error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
	ok(t, g.Close())
	if err := g.Launch(); !errors.Is(err, driver.InvalidHandle) {
		t.Error(err)
	}
	ok(t, b.dev.Free(b.p))
	ok(t, b.s.Close())
	ok(t, b.dev.Close())
}

// A faulty kernel loses the device; the error names the kernel and the line.
func TestFaultLosesTheDevice(t *testing.T) {
	b := newBench(t, Options{})
	ok(t, b.s.Set(b.p, 0, 16))
	ok(t, b.s.Launch(b.launch(1)))
	err := b.s.Wait()
	var fault *ptx.Fault
	if !errors.Is(err, driver.LaunchFailed) || !errors.As(err, &fault) || fault.Thread != [3]int{3, 0, 0} || fault.Kernel != "double" {
		t.Errorf("%v", err)
	}
	if _, again := b.dev.Alloc(4); !errors.Is(again, driver.LaunchFailed) {
		t.Errorf("after it: %v", again)
	}
	ok(t, b.dev.Close())
}

func TestErrorsHaveTheDriversNames(t *testing.T) {
	b := newBench(t, Options{Devices: []driver.Info{{Name: "old", Compute: [2]int{9, 0}, Memory: 1 << 10, Shared: 100 << 10}}})
	large := b.launch(0)
	large.Shared = 64 << 10
	short := b.launch(0)
	short.Params = short.Params[:8]
	_, noDevice := New(Options{}).Open(1)
	_, noMemory := b.dev.Alloc(1 << 20)
	_, noText := b.dev.Load(strings.Replace(double, "shl.b32", "frob.b32", 1))
	_, newText := b.dev.Load(strings.Replace(double, "sm_90", "sm_100", 1))
	m := must[driver.Module](t)(b.dev.Load(double))
	_, noKernel := m.Function("treble")
	for _, c := range []struct {
		err  error
		want driver.Code
		text string
	}{
		{noDevice, driver.InvalidDevice, "cuda: cuDeviceGet: CUDA_ERROR_INVALID_DEVICE"},
		{noMemory, driver.OutOfMemory, "cuda: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"},
		{noText, driver.InvalidPTX, "line 23: frob.b32"},
		{newText, driver.InvalidPTX, "sm_100 on compute capability 9.0"},
		{noKernel, driver.NotFound, "treble"},
		{b.s.Launch(large), driver.InvalidValue, "AllowShared"},
		{b.s.Launch(short), driver.InvalidValue, "8 bytes of parameters, the kernel has 16"},
		{b.double.AllowShared(1 << 20), driver.InvalidValue, "cuFuncSetAttribute"},
		{b.dev.Free(b.p + 4), driver.InvalidValue, "not the address of an allocation"},
		{b.dev.Unpin(make([]byte, 4)), driver.InvalidValue, "cuMemFreeHost"},
	} {
		if !errors.Is(c.err, c.want) || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("%v, want %v and %q", c.err, c.want, c.text)
		}
	}
	ok(t, b.double.AllowShared(64<<10))
	ok(t, b.s.Launch(large))
	if n, err := b.double.Occupancy(256, 40<<10); err != nil || n != 2 {
		t.Errorf("%d blocks, %v", n, err)
	}
	if free, total, err := b.dev.Memory(); err != nil || free != 1<<10-16 || total != 1<<10 {
		t.Error(free, total, err)
	}
}

// Calls fail as a test sets them to, and only failures that a GPU would not survive lose the device.
func TestInjectedFailures(t *testing.T) {
	code := driver.Code(0)
	b := newBench(t, Options{Fail: func(call string) driver.Code {
		if call == "cuLaunchKernelEx" {
			return code
		}
		return 0
	}})
	ok(t, b.s.Set(b.p, 0, 16))
	code = driver.OutOfResources
	if err := b.s.Launch(b.launch(0)); !errors.Is(err, driver.OutOfResources) {
		t.Error(err)
	}
	code = 0
	ok(t, b.s.Launch(b.launch(0)))
	ok(t, b.s.Wait())
	code = driver.ECC
	if err := b.s.Launch(b.launch(0)); !errors.Is(err, driver.ECC) {
		t.Error(err)
	}
	if err := b.s.Wait(); !errors.Is(err, driver.ECC) {
		t.Error(err)
	}
}
