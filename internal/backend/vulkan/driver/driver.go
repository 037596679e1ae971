// Package driver is the part of Vulkan that the Vulkan backend needs: devices, memory with addresses, compute
// pipelines, command buffers and one queue. It has one implementation, the system's Vulkan library in builds with the tag
// vulkan; tests put their own in front of it, to plant faults. It does not know tensors.
//
// Work of a device begins in the order of its submission. Operations after a fence see the results of those before it, in earlier
// command buffers, too; without a fence between them they may run at the same time. A device that has failed is lost: every later call returns an error, and only Close is useful.
package driver

import (
	"fmt"
	"time"
)

// A Ptr is an address on a device. 0 is null.
type Ptr uint64

// Info describes a device before it is opened.
type Info struct {
	Name    string
	Driver  string // name and version, for people
	Vendor  uint32
	Product uint32
	Version uint32   // of the driver
	UUID    [16]byte // of the driver's build
	API     uint32   // version of Vulkan
	Memory  int64    // of the device, bytes
	Kind    Kind
	Float64 bool     // arithmetic of 64 bits
	Threads int      // of a workgroup, at most
	Matrix  int      // columns of cooperative matrices of signed bytes with 16 rows; 0: there are none that kernels can use
	Keeps   Controls // what the device can promise for float32
	Missing string   // what the kernels need and the device lacks; "": nothing
}

// A Kind is a kind of device, by its number in Vulkan.
type Kind uint32

// The kinds. The last one is a processor that a driver computes on.
const (
	Other Kind = iota
	Integrated
	Discrete
	Virtual
	Processor
)

// Controls are float controls of modules.
type Controls struct {
	Denorms bool // subnormal numbers are kept
	NaN     bool // signs of zero, infinities and NaN are kept
	Nearest bool // results are rounded to nearest, ties to even
}

// APIVersion is a version of Vulkan as people write it.
func APIVersion(v uint32) string { return fmt.Sprintf("%d.%d.%d", v>>22, v>>12&0x3ff, v&0xfff) }

// A Driver has devices.
type Driver interface {
	// Devices are the available ones, maybe none.
	Devices() ([]Info, error)
	// Open makes a device ready for use.
	Open(device int) (Device, error)
}

// A Device has memory and executes kernels. One goroutine at a time may use it, except for Memory.
type Device interface {
	// Memory is how much is free now and how much there is.
	Memory() (free, total int64, err error)
	// Alloc returns memory with any content, aligned to 256 bytes.
	Alloc(bytes int64) (Ptr, error)
	// Free frees memory that no unfinished work uses.
	Free(at Ptr) error
	// Pin returns memory of the host that the device can copy from and to.
	Pin(bytes int64) ([]byte, Ptr, error)
	// Unpin frees the memory of Pin.
	Unpin(at Ptr) error
	// Kernel compiles a module of SPIR-V whose entry is called main, with specialization constants 0, 1, and so on.
	// Subgroups of a module with cooperative matrices are full and have 32 threads.
	Kernel(code, constants []uint32) (Kernel, error)
	// Commands returns an empty command buffer.
	Commands() (Commands, error)
	// Clock returns a clock for as many marks.
	Clock(marks int) (Clock, error)
	// Submit executes a command buffer, and returns the number of the submission. A command buffer may be submitted again.
	Submit(c Commands) (uint64, error)
	// Wait returns when a submission and all before it have ended.
	Wait(submission uint64) error
	// Close frees everything, also of a lost device.
	Close() error
}

// A Kernel is a compiled module.
type Kernel interface{ Close() }

// A Clock has the times at which operations of a device have ended.
type Clock interface {
	// Times are those of the marks, since an unknown moment. The submission that makes them has ended.
	Times() ([]time.Duration, error)
	Close()
}

// PushBytes is the most bytes of arguments of a kernel.
const PushBytes = 128

// Commands is a command buffer. Operations are recorded between Begin and End.
type Commands interface {
	// Begin empties the buffer. No submission of it may be unfinished.
	Begin() error
	// Launch executes a kernel on groups of threads, with arguments of at most PushBytes bytes.
	Launch(k Kernel, groups [3]int, args []byte)
	// Copy copies memory. Each end lies within one allocation.
	Copy(to, from Ptr, bytes int64)
	// Set fills memory with zeros. Both numbers are multiples of four.
	Set(to Ptr, bytes int64)
	// Fence has later operations wait for all before.
	Fence()
	// Mark notes the time when all operations before have ended. Marks of a clock are made in their order, from 0 on.
	Mark(c Clock, mark int)
	End() error
	Close()
}
