package driver

import "fmt"

// A Code is a result of the driver API, by its number there.
type Code int

// The codes that a backend meets.
const (
	InvalidValue       Code = 1
	OutOfMemory        Code = 2
	NotInitialized     Code = 3
	StubLibrary        Code = 34
	Unavailable        Code = 46
	NoDevice           Code = 100
	InvalidDevice      Code = 101
	InvalidContext     Code = 201
	ECC                Code = 214
	InvalidPTX         Code = 218
	UnsupportedPTX     Code = 222
	FileNotFound       Code = 301
	InvalidHandle      Code = 400
	NotFound           Code = 500
	IllegalAddress     Code = 700
	OutOfResources     Code = 701
	LaunchTimeout      Code = 702
	MisalignedAddress  Code = 716
	LaunchFailed       Code = 719
	NotPermitted       Code = 800
	NotSupported       Code = 801
	DriverMismatch     Code = 803
	CaptureUnsupported Code = 900
	CaptureInvalidated Code = 901
	Unknown            Code = 999
)

var names = map[Code]string{
	InvalidValue: "INVALID_VALUE", OutOfMemory: "OUT_OF_MEMORY", NotInitialized: "NOT_INITIALIZED", StubLibrary: "STUB_LIBRARY", Unavailable: "DEVICE_UNAVAILABLE", NoDevice: "NO_DEVICE",
	InvalidDevice: "INVALID_DEVICE", InvalidContext: "INVALID_CONTEXT", ECC: "ECC_UNCORRECTABLE", InvalidPTX: "INVALID_PTX", UnsupportedPTX: "UNSUPPORTED_PTX_VERSION",
	FileNotFound: "FILE_NOT_FOUND", InvalidHandle: "INVALID_HANDLE", NotFound: "NOT_FOUND", IllegalAddress: "ILLEGAL_ADDRESS", OutOfResources: "LAUNCH_OUT_OF_RESOURCES",
	LaunchTimeout: "LAUNCH_TIMEOUT", MisalignedAddress: "MISALIGNED_ADDRESS", LaunchFailed: "LAUNCH_FAILED", NotPermitted: "NOT_PERMITTED", NotSupported: "NOT_SUPPORTED",
	DriverMismatch: "SYSTEM_DRIVER_MISMATCH", CaptureUnsupported: "STREAM_CAPTURE_UNSUPPORTED", CaptureInvalidated: "STREAM_CAPTURE_INVALIDATED", Unknown: "UNKNOWN",
}

// String is the name that the driver's documentation has, such as CUDA_ERROR_OUT_OF_MEMORY.
func (c Code) String() string {
	if name, ok := names[c]; ok {
		return "CUDA_ERROR_" + name
	}
	return fmt.Sprintf("CUDA_ERROR_%d", int(c))
}

// Remedy is the remedy for a user, or "".
func (c Code) Remedy() string {
	switch c {
	case OutOfMemory:
		return "GPU memory is full: end other programs that use it (nvidia-smi lists them), or choose a smaller model or context"
	case StubLibrary:
		return "this libcuda is a stub for building: put the driver's library before it in the library path"
	case Unavailable:
		return "another process uses the GPU exclusively: end it, or set the compute mode to default"
	case NoDevice, InvalidDevice:
		return "no NVIDIA GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES"
	case NotPermitted, Unknown:
		return "the process may not use the GPU: check the permissions of /dev/nvidia* and the GPU options of the container"
	case DriverMismatch:
		return "the library and the kernel module of the driver have different versions: reboot"
	case InvalidPTX, UnsupportedPTX:
		return "the driver does not support these kernels: install a newer driver"
	}
	if c.Sticky() {
		return "the GPU no longer works for this process: restart the process, and check the system log"
	}
	return ""
}

// Error makes a code one to compare with: errors.Is(err, driver.OutOfMemory).
func (c Code) Error() string { return c.String() }

// Sticky reports whether a device that returned the code is lost.
func (c Code) Sticky() bool {
	return c == ECC || c >= IllegalAddress && c <= LaunchFailed && c != OutOfResources
}

// An Error is a call that failed.
type Error struct {
	Call  string // of the driver API, such as cuMemAlloc
	Code  Code
	Cause error // further information, or nil
}

func (e *Error) Error() string {
	text := fmt.Sprintf("cuda: %s: %v", e.Call, e.Code)
	if e.Cause != nil {
		text += fmt.Sprintf(": %v", e.Cause)
	}
	if remedy := e.Code.Remedy(); remedy != "" {
		text += "; " + remedy
	}
	return text
}

// DeviceLost reports whether the device does nothing more: see backend.Lost.
func (e *Error) DeviceLost() bool { return e.Code.Sticky() }

// Unwrap returns the code and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.Cause}
}
