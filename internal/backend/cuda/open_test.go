package cuda

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/cuda/drivertest"
)

// described is a device of a driver.
func described(name string, major, version int) driver.Info {
	return driver.Info{Name: name, Compute: [2]int{major, 0}, Memory: 1 << 20, Multiprocessors: 1, Shared: 227 << 10, Driver: version}
}

// TestOpenSaysWhatIsWrong has everything a user may meet that keeps a GPU from being used: each is one
// line that says what to do, and whether there is no GPU, so that the processor may compute, or one
// that cannot be used.
func TestOpenSaysWhatIsWrong(t *testing.T) {
	fail := func(name string, code driver.Code) func(string) driver.Code {
		return func(call string) driver.Code {
			if call == name {
				return code
			}
			return 0
		}
	}
	const held = "GPU memory is full: end other programs that use it (nvidia-smi lists them), or choose a smaller model or context"
	for name, c := range map[string]struct {
		o       drivertest.Options
		missing bool
		want    string
	}{
		"no device":                       {drivertest.Options{Devices: []driver.Info{}}, true, "cuda: not available: cuda: cuDeviceGetCount: CUDA_ERROR_NO_DEVICE; no NVIDIA GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES"},
		"driver too old":                  {drivertest.Options{Devices: []driver.Info{described("A", 9, 11040)}}, true, "cuda: not available: the NVIDIA driver supports CUDA 11.4, but the kernels need 11.8: install a newer driver"},
		"GPU too old":                     {drivertest.Options{Devices: []driver.Info{described("A", 7, 12000), described("B", 6, 12000)}}, true, "cuda: not available: A: compute capability 7.0; the kernels need 8.0, which Ampere and later GPUs have"},
		"library and module":              {drivertest.Options{Fail: fail("cuDeviceGetCount", driver.DriverMismatch)}, true, "cuda: not available: cuda: cuDeviceGetCount: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH; the library and the kernel module of the driver have different versions: reboot"},
		"another process uses it":         {drivertest.Options{Fail: fail("cuDevicePrimaryCtxRetain", driver.Unavailable)}, false, "PTX interpreter: cuda: cuDevicePrimaryCtxRetain: CUDA_ERROR_DEVICE_UNAVAILABLE; another process uses the GPU exclusively: end it, or set the compute mode to default"},
		"another process uses its memory": {drivertest.Options{Fail: fail("cuDevicePrimaryCtxRetain", driver.OutOfMemory)}, false, "PTX interpreter: cuda: cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY; " + held},
		"permissions":                     {drivertest.Options{Fail: fail("cuDevicePrimaryCtxRetain", driver.NotPermitted)}, false, "PTX interpreter: cuda: cuDevicePrimaryCtxRetain: CUDA_ERROR_NOT_PERMITTED; the process may not use the GPU: check the permissions of /dev/nvidia* and the GPU options of the container"},
		"no pinned memory":                {drivertest.Options{Fail: fail("cuMemAllocHost", driver.OutOfMemory)}, false, "PTX interpreter: cuda: cuMemAllocHost: CUDA_ERROR_OUT_OF_MEMORY; " + held},
		"kernels too new":                 {drivertest.Options{Fail: fail("cuModuleLoadDataEx", driver.UnsupportedPTX)}, false, "PTX interpreter: kernels of attend: cuda: cuModuleLoadDataEx: CUDA_ERROR_UNSUPPORTED_PTX_VERSION; the driver does not support these kernels: install a newer driver"},
	} {
		b, err := openOn(drivertest.New(c.o), Options{Kernels: os.DirFS("kernels")})
		if b != nil || err == nil || errors.Is(err, backend.ErrUnavailable) != c.missing || err.Error() != c.want || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	// The second GPU is taken where the first is too old.
	d := drivertest.New(drivertest.Options{Devices: []driver.Info{described("A", 7, 12000), described("B", 9, 12000)}})
	for number, want := range map[int]string{0: "1 B <nil>", 2: "1 B <nil>", 1: "0 A A: compute capability 7.0; the kernels need 8.0, which Ampere and later GPUs have", 3: "0  there is no GPU 2: the last is cuda:1"} {
		i, info, err := choose(d, number)
		if got := fmt.Sprintf("%d %s %v", i, info.Name, err); got != want {
			t.Errorf("GPU %d: %s, want %s", number, got, want)
		}
	}
	if list := describe(d); len(list) != 2 || list[0].Missing == "" || list[1].Missing != "" || list[1].Memory != 1<<20 {
		t.Errorf("described as %+v", list)
	}
}

// TestErrorsSayWhatIsLost has every code: those after which a device is lost say so to backend.Lost,
// however they are wrapped, and their line says what to do.
func TestErrorsSayWhatIsLost(t *testing.T) {
	for code, lost := range map[driver.Code]bool{
		driver.OutOfMemory: false, driver.InvalidValue: false, driver.OutOfResources: false, driver.NotSupported: false, driver.Unavailable: false,
		driver.ECC: true, driver.IllegalAddress: true, driver.LaunchTimeout: true, driver.MisalignedAddress: true, driver.LaunchFailed: true,
	} {
		err := errors.Join(errors.New("x"), &driver.Error{Call: "cuStreamSynchronize", Code: code})
		if backend.Lost(err) != lost || strings.Contains(err.Error(), "the GPU no longer works for this process: restart the process") != lost {
			t.Errorf("%v: lost is %v", err, backend.Lost(err))
		}
	}
}
