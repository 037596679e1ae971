package driver

import "fmt"

// A Result is a result of Vulkan, by its number there.
type Result int32

// The results that a backend meets.
const (
	Timeout           Result = 2
	OutOfHostMemory   Result = -1
	OutOfDeviceMemory Result = -2
	InitFailed        Result = -3
	DeviceLost        Result = -4
	MapFailed         Result = -5
	LayerMissing      Result = -6
	ExtensionMissing  Result = -7
	FeatureMissing    Result = -8
	Incompatible      Result = -9
	TooManyObjects    Result = -10
	Fragmented        Result = -12
	Unknown           Result = -13
	InvalidHandle     Result = -1000072003
	InvalidShader     Result = -1000012000
)

var names = map[Result]string{
	Timeout: "TIMEOUT", OutOfHostMemory: "ERROR_OUT_OF_HOST_MEMORY", OutOfDeviceMemory: "ERROR_OUT_OF_DEVICE_MEMORY", InitFailed: "ERROR_INITIALIZATION_FAILED",
	DeviceLost: "ERROR_DEVICE_LOST", MapFailed: "ERROR_MEMORY_MAP_FAILED", LayerMissing: "ERROR_LAYER_NOT_PRESENT", ExtensionMissing: "ERROR_EXTENSION_NOT_PRESENT",
	FeatureMissing: "ERROR_FEATURE_NOT_PRESENT", Incompatible: "ERROR_INCOMPATIBLE_DRIVER", TooManyObjects: "ERROR_TOO_MANY_OBJECTS", Fragmented: "ERROR_FRAGMENTED_POOL",
	Unknown: "ERROR_UNKNOWN", InvalidHandle: "ERROR_INVALID_EXTERNAL_HANDLE", InvalidShader: "ERROR_INVALID_SHADER_NV",
}

// String is the name that Vulkan's documentation has, such as VK_ERROR_DEVICE_LOST.
func (r Result) String() string {
	if name, ok := names[r]; ok {
		return "VK_" + name
	}
	return fmt.Sprintf("VkResult %d", int32(r))
}

// Error makes a result one to compare with: errors.Is(err, driver.OutOfDeviceMemory).
func (r Result) Error() string { return r.String() }

// Remedy is the remedy for a user, or "".
func (r Result) Remedy() string {
	switch r {
	case OutOfDeviceMemory:
		return "GPU memory is full: end other programs that use it, or choose a smaller model or context"
	case OutOfHostMemory:
		return "the memory of this machine is full: end other programs, or choose a smaller model or context"
	case DeviceLost, Timeout:
		return "the GPU no longer works for this process: restart the process, check the system log, and update the GPU driver"
	case Incompatible, InitFailed:
		return "no usable Vulkan driver is installed: install the driver of the GPU (on Linux: mesa-vulkan-drivers, or NVIDIA's driver)"
	case ExtensionMissing, FeatureMissing, InvalidShader:
		return "the driver does not support these kernels: install a newer driver"
	}
	return ""
}

// An Error is a call that failed.
type Error struct {
	Call  string // of Vulkan, such as vkAllocateMemory
	Code  Result
	Cause error // further information, or nil
}

func (e *Error) Error() string {
	text := fmt.Sprintf("vulkan: %s: %v", e.Call, e.Code)
	if e.Cause != nil {
		text += fmt.Sprintf(": %v", e.Cause)
	}
	if remedy := e.Code.Remedy(); remedy != "" {
		text += "; " + remedy
	}
	return text
}

// DeviceLost reports whether the device does nothing more: see backend.Lost.
func (e *Error) DeviceLost() bool { return e.Code == DeviceLost || e.Code == Timeout }

// Unwrap returns the result and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.Cause}
}
