//go:build cuda && (linux || windows)

package driver

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Library opens NVIDIA's library, which comes with the driver: nothing else of CUDA is needed. If
// there is none, the error says so.
func Library() (Driver, error) {
	handle, err := openLibrary()
	if err != nil {
		if err.Error() == "" { // a program without cgo does not get the reason
			return nil, fmt.Errorf("%s not found: install the NVIDIA driver", libraryName)
		}
		return nil, fmt.Errorf("%s not found: install the NVIDIA driver (%w)", libraryName, err)
	}
	l := &library{calls: map[string]uintptr{}}
	for name, symbol := range symbols {
		if l.calls[name], err = findSymbol(handle, symbol); err != nil {
			return nil, fmt.Errorf("%s has no %s: its driver is older than CUDA %s: install a newer driver", libraryName, symbol, Version(MinVersion))
		}
	}
	if err := l.do("cuInit", 0); err != nil {
		return nil, err
	}
	var known int32
	if err := l.do("cuDriverGetVersion", uintptr(unsafe.Pointer(&known))); err != nil {
		return nil, err
	}
	l.version = int(known)
	return l, nil
}

// symbols are the called functions, by the names of the documentation, and the library's
// names of the versions that this was written for.
var symbols = func() map[string]string {
	m := map[string]string{
		"cuStreamBeginCapture": "cuStreamBeginCapture_v2", "cuGraphInstantiate": "cuGraphInstantiateWithFlags",
	}
	for _, name := range []string{
		"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain",
		"cuCtxSetCurrent", "cuCtxSynchronize", "cuMemFreeHost", "cuModuleLoadDataEx", "cuModuleUnload", "cuModuleGetFunction",
		"cuFuncSetAttribute", "cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuStreamCreate", "cuStreamSynchronize", "cuMemsetD8Async",
		"cuLaunchKernelEx", "cuStreamEndCapture", "cuGraphGetNodes", "cuGraphLaunch", "cuGraphExecDestroy", "cuGraphDestroy",
		"cuEventCreate", "cuEventRecordWithFlags", "cuEventElapsedTime",
	} {
		m[name] = name
	}
	for _, name := range []string{
		"cuDeviceTotalMem", "cuDevicePrimaryCtxRelease", "cuMemGetInfo", "cuMemAlloc", "cuMemFree", "cuMemAllocHost", "cuStreamDestroy",
		"cuCtxCreate", "cuCtxDestroy", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuEventDestroy",
	} {
		m[name] = name + "_v2"
	}
	return m
}()

type library struct {
	calls   map[string]uintptr
	version int
}

// do calls a function of the library. Memory behind its arguments does not move until it returns.
//
//go:uintptrescapes
func (l *library) do(call string, args ...uintptr) error { return l.call(call, args) }

// call is do with a slice of arguments.
func (l *library) call(call string, args []uintptr) error {
	if code, _, _ := purego.SyscallN(l.calls[call], args...); int32(code) != 0 {
		return &Error{Call: call, Code: Code(int32(code))}
	}
	return nil
}

// Attributes of devices and functions, by their numbers in the driver API.
const (
	attributeMultiprocessors = 16
	attributeComputeMajor    = 75
	attributeComputeMinor    = 76
	attributeShared          = 97
	functionShared           = 8
	functionCarveout         = 9
)

// Devices implements Driver.
func (l *library) Devices() ([]Info, error) {
	count := new(int32)
	if err := l.do("cuDeviceGetCount", uintptr(unsafe.Pointer(count))); err != nil {
		return nil, err
	}
	var list []Info
	for i := range int(*count) {
		info, err := l.describe(i)
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	return list, nil
}

func (l *library) describe(i int) (Info, error) {
	info := Info{Driver: l.version}
	device, total, name := new(int32), new(uint64), new([256]byte)
	if err := l.do("cuDeviceGet", uintptr(unsafe.Pointer(device)), uintptr(i)); err != nil {
		return info, err
	}
	if err := l.do("cuDeviceGetName", uintptr(unsafe.Pointer(name)), uintptr(len(name)), uintptr(*device)); err != nil {
		return info, err
	}
	if err := l.do("cuDeviceTotalMem", uintptr(unsafe.Pointer(total)), uintptr(*device)); err != nil {
		return info, err
	}
	info.Memory = int64(*total)
	known, _, _ := bytes.Cut(name[:], []byte{0})
	info.Name = string(known)
	for attribute, to := range map[int]*int{
		attributeMultiprocessors: &info.Multiprocessors, attributeShared: &info.Shared,
		attributeComputeMajor: &info.Compute[0], attributeComputeMinor: &info.Compute[1],
	} {
		value := new(int32)
		if err := l.do("cuDeviceGetAttribute", uintptr(unsafe.Pointer(value)), uintptr(attribute), uintptr(*device)); err != nil {
			return info, err
		}
		*to = int(*value)
	}
	return info, nil
}

// Open implements Driver.
func (l *library) Open(i int) (Device, error) {
	device, context := new(int32), new(uintptr)
	if err := l.do("cuDeviceGet", uintptr(unsafe.Pointer(device)), uintptr(i)); err != nil {
		return nil, err
	}
	d := &gpu{l: l, pinned: map[*byte]uintptr{}}
	number := uintptr(*device)
	primary.Lock()
	defer primary.Unlock()
	if primary.used[number] {
		runtime.LockOSThread() // the new context is current in this thread; every call sets its own
		err := l.do("cuCtxCreate", uintptr(unsafe.Pointer(context)), 0, number)
		runtime.UnlockOSThread()
		if err != nil {
			return nil, err
		}
		d.close = func() error { return l.do("cuCtxDestroy", *context) }
	} else {
		if err := l.do("cuDevicePrimaryCtxRetain", uintptr(unsafe.Pointer(context)), number); err != nil {
			return nil, err
		}
		primary.used[number] = true
		d.close = func() error {
			primary.Lock()
			defer primary.Unlock()
			delete(primary.used, number)
			return l.do("cuDevicePrimaryCtxRelease", number)
		}
	}
	d.current = [1]uintptr{*context}
	return d, nil
}

// primary has the GPUs whose primary context a device of this process uses. Another device on the same GPU has a context
// of its own: closing a device frees all that is left in its context.
var primary = struct {
	sync.Mutex
	used map[uintptr]bool
}{used: map[uintptr]bool{}}

// gpu is a device of the library.
type gpu struct {
	l       *library
	current [1]uintptr // the context, as an argument
	close   func() error

	mu     sync.Mutex
	lost   error // a device that has failed fails for ever
	pinned map[*byte]uintptr
	said   *[8 << 10]byte // by the compiler
}

// do calls a function for the device. Memory behind its arguments does not move until it returns.
//
//go:uintptrescapes
func (d *gpu) do(call string, args ...uintptr) error { return d.call(call, args) }

// call is do with a slice of arguments. Contexts belong to threads of the system, and a goroutine may
// be on any.
func (d *gpu) call(call string, args []uintptr) error {
	d.mu.Lock()
	lost := d.lost
	d.mu.Unlock()
	if lost != nil {
		return lost
	}
	runtime.LockOSThread()
	err := d.l.call("cuCtxSetCurrent", d.current[:])
	if err == nil {
		err = d.l.call(call, args)
	}
	runtime.UnlockOSThread()
	if e, ok := err.(*Error); ok && e.Code.Sticky() { //nolint:errorlint // it is what call returns
		d.mu.Lock()
		d.lost = err
		d.mu.Unlock()
	}
	return err
}

// Memory implements Device, as all that follows.
func (d *gpu) Memory() (free, total int64, err error) {
	a, b := new(uint64), new(uint64)
	err = d.do("cuMemGetInfo", uintptr(unsafe.Pointer(a)), uintptr(unsafe.Pointer(b)))
	return int64(*a), int64(*b), err
}

func (d *gpu) Alloc(bytes int64) (Ptr, error) {
	p := new(Ptr)
	err := d.do("cuMemAlloc", uintptr(unsafe.Pointer(p)), uintptr(bytes))
	return *p, err
}

func (d *gpu) Free(p Ptr) error {
	if err := d.do("cuCtxSynchronize"); err != nil {
		return err
	}
	return d.do("cuMemFree", uintptr(p))
}

func (d *gpu) Pin(bytes int64) ([]byte, error) {
	p := new(unsafe.Pointer)
	if err := d.do("cuMemAllocHost", uintptr(unsafe.Pointer(p)), uintptr(bytes)); err != nil {
		return nil, err
	}
	memory := unsafe.Slice((*byte)(*p), bytes)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pinned[&memory[0]] = uintptr(*p)
	return memory, nil
}

func (d *gpu) Unpin(memory []byte) error {
	d.mu.Lock()
	p := uintptr(0)
	if len(memory) > 0 {
		p = d.pinned[&memory[0]]
		delete(d.pinned, &memory[0])
	}
	d.mu.Unlock()
	if p == 0 {
		return &Error{Call: "cuMemFreeHost", Code: InvalidValue}
	}
	return d.do("cuMemFreeHost", p)
}

// Close releases the context, with all remaining resources.
func (d *gpu) Close() error { return d.close() }

// Load compiles a text; the compiler's message about a bad one is part of the error.
func (d *gpu) Load(text string) (Module, error) {
	const logBuffer, logSize = 5, 6
	d.mu.Lock()
	d.said = new([8 << 10]byte)
	said := d.said
	d.mu.Unlock()
	source, options := append([]byte(text), 0), [2]int32{logBuffer, logSize}
	values := [2]uintptr{uintptr(unsafe.Pointer(said)), uintptr(len(said))}
	module := new(uintptr)
	err := d.do("cuModuleLoadDataEx", uintptr(unsafe.Pointer(module)), uintptr(unsafe.Pointer(&source[0])), uintptr(len(options)), uintptr(unsafe.Pointer(&options)), uintptr(unsafe.Pointer(&values)))
	runtime.KeepAlive(said)
	if err != nil {
		if e, ok := err.(*Error); ok { //nolint:errorlint // it is what do returns
			if text, _, _ := bytes.Cut(said[:], []byte{0}); len(text) > 0 {
				err = &Error{Call: e.Call, Code: e.Code, Cause: errors.New(strings.Join(strings.Fields(string(text)), " "))} // in one line
			}
		}
		return nil, err
	}
	return &compiled{d, *module}, nil
}

func (d *gpu) Stream() (Stream, error) {
	const nonBlocking = 1
	handle := new(uintptr)
	if err := d.do("cuStreamCreate", uintptr(unsafe.Pointer(handle)), nonBlocking); err != nil {
		return nil, err
	}
	return &stream{d: d, handle: *handle, call: new(launchCall)}, nil
}
