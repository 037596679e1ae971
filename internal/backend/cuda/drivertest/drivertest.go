// Package drivertest is a driver without a GPU: package ptx behind the interface of package driver.
//
// It is as adverse as a driver may be. Queued work runs only when Stream.Wait or Free needs it,
// so host memory that changes too early or is read too early shows.
// Every fault of a kernel loses the device. Calls can be made to fail.
package drivertest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/cuda/drivertest/ptx"
)

// Options of the devices; the zero value is one device like an H200 with the memory of
// ptx.Options.
type Options struct {
	PTX     ptx.Options
	Devices []driver.Info

	// Fail returns the code with which a call of the driver API fails, or 0. It may be called by
	// several goroutines.
	Fail func(call string) driver.Code
}

// New returns a driver.
func New(o Options) driver.Driver {
	if o.PTX.Memory == 0 {
		o.PTX.Memory = 4 << 30
	}
	if o.Devices == nil {
		o.Devices = []driver.Info{{Name: "PTX interpreter", Compute: [2]int{9, 0}, Memory: o.PTX.Memory, Multiprocessors: 4, Shared: 227 << 10, Driver: 13000}}
	}
	return &library{o}
}

type library struct{ Options }

func (l *library) Devices() ([]driver.Info, error) {
	if err := l.fail("cuDeviceGetCount"); err != nil {
		return nil, err
	}
	return append([]driver.Info(nil), l.Options.Devices...), nil
}

func (l *library) Open(i int) (driver.Device, error) {
	if err := l.fail("cuDevicePrimaryCtxRetain"); err != nil {
		return nil, err
	}
	if i < 0 || i >= len(l.Options.Devices) {
		return nil, &driver.Error{Call: "cuDeviceGet", Code: driver.InvalidDevice}
	}
	o := l.PTX
	o.Memory = l.Options.Devices[i].Memory
	return &device{l: l, info: l.Options.Devices[i], m: ptx.NewMachine(o), pinned: map[*byte]bool{}, sizes: map[driver.Ptr]int64{}}, nil
}

func (l *library) fail(call string) error {
	if l.Fail != nil {
		if code := l.Fail(call); code != 0 {
			return &driver.Error{Call: call, Code: code}
		}
	}
	return nil
}

type device struct {
	l    *library
	info driver.Info

	mu        sync.Mutex
	m         *ptx.Machine
	lost      error // a device that has failed fails for ever
	closed    bool
	capturing int
	used      int64
	sizes     map[driver.Ptr]int64
	pinned    map[*byte]bool
	streams   []*stream
}

// begin locks d for a call, if it can be made.
func (d *device) begin(call string) (end func(), err error) {
	d.mu.Lock()
	switch {
	case d.closed:
		err = &driver.Error{Call: call, Code: driver.InvalidContext}
	case d.lost != nil:
		err = d.lost
	default:
		err = d.fault(d.l.fail(call))
	}
	if err != nil {
		d.mu.Unlock()
		return nil, err
	}
	return d.mu.Unlock, nil
}

// fault keeps an error that loses the device.
func (d *device) fault(err error) error {
	var e *driver.Error
	if errors.As(err, &e) && e.Code.Sticky() {
		d.lost = err
	}
	return err
}

func (d *device) Memory() (free, total int64, err error) {
	end, err := d.begin("cuMemGetInfo")
	if err != nil {
		return 0, 0, err
	}
	defer end()
	return d.info.Memory - d.used, d.info.Memory, nil
}

func (d *device) Alloc(bytes int64) (driver.Ptr, error) {
	end, err := d.begin("cuMemAlloc")
	if err != nil {
		return 0, err
	}
	defer end()
	if d.capturing > 0 {
		return 0, &driver.Error{Call: "cuMemAlloc", Code: driver.CaptureUnsupported}
	}
	if bytes <= 0 {
		return 0, &driver.Error{Call: "cuMemAlloc", Code: driver.InvalidValue}
	}
	p, err := d.m.Alloc(bytes)
	if err != nil {
		return 0, &driver.Error{Call: "cuMemAlloc", Code: driver.OutOfMemory, Cause: err}
	}
	d.used += bytes
	d.sizes[driver.Ptr(p)] = bytes
	return driver.Ptr(p), nil
}

func (d *device) Free(p driver.Ptr) error {
	end, err := d.begin("cuMemFree")
	if err != nil {
		return err
	}
	defer end()
	if d.capturing > 0 {
		return &driver.Error{Call: "cuMemFree", Code: driver.CaptureUnsupported}
	}
	for _, s := range d.streams {
		if err := s.drain(); err != nil {
			return err
		}
	}
	if err := d.m.Free(uint64(p)); err != nil {
		return &driver.Error{Call: "cuMemFree", Code: driver.InvalidValue, Cause: err}
	}
	d.used -= d.sizes[p]
	delete(d.sizes, p)
	return nil
}

func (d *device) Pin(bytes int64) ([]byte, error) {
	end, err := d.begin("cuMemAllocHost")
	if err != nil {
		return nil, err
	}
	defer end()
	if bytes <= 0 {
		return nil, &driver.Error{Call: "cuMemAllocHost", Code: driver.InvalidValue}
	}
	b := make([]byte, bytes)
	d.pinned[&b[0]] = true
	return b, nil
}

func (d *device) Unpin(memory []byte) error {
	end, err := d.begin("cuMemFreeHost")
	if err != nil {
		return err
	}
	defer end()
	if len(memory) == 0 || !d.pinned[&memory[0]] {
		return &driver.Error{Call: "cuMemFreeHost", Code: driver.InvalidValue}
	}
	delete(d.pinned, &memory[0])
	return nil
}

// parsed are modules of this process by text: most tests open a device of their own, with the same modules.
var parsed = struct {
	sync.Mutex
	modules map[string]*ptx.Module
}{modules: map[string]*ptx.Module{}}

// maxParsed is more modules than the backend has, and few enough to remember texts that tests have changed.
const maxParsed = 48

func parse(text string) (*ptx.Module, error) {
	parsed.Lock()
	defer parsed.Unlock()
	if m := parsed.modules[text]; m != nil {
		return m, nil
	}
	m, err := ptx.Parse(text)
	if err == nil {
		if len(parsed.modules) == maxParsed {
			clear(parsed.modules)
		}
		parsed.modules[text] = m
	}
	return m, err
}

func (d *device) Load(text string) (driver.Module, error) {
	end, err := d.begin("cuModuleLoadDataEx")
	if err != nil {
		return nil, err
	}
	defer end()
	m, err := parse(text)
	if err != nil {
		return nil, &driver.Error{Call: "cuModuleLoadDataEx", Code: driver.InvalidPTX, Cause: err}
	}
	var sm int
	if _, err := fmt.Sscanf(m.Target, "sm_%d", &sm); err != nil || sm > d.info.Compute[0]*10+d.info.Compute[1] {
		return nil, &driver.Error{Call: "cuModuleLoadDataEx", Code: driver.InvalidPTX, Cause: fmt.Errorf("text for %s on compute capability %d.%d", m.Target, d.info.Compute[0], d.info.Compute[1])}
	}
	return &module{d, m}, nil
}

func (d *device) Stream() (driver.Stream, error) {
	end, err := d.begin("cuStreamCreate")
	if err != nil {
		return nil, err
	}
	defer end()
	s := &stream{d: d}
	d.streams = append(d.streams, s)
	return s, nil
}

// Close reports memory that was not freed.
func (d *device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return &driver.Error{Call: "cuDevicePrimaryCtxRelease", Code: driver.InvalidContext}
	}
	d.closed = true
	if d.lost == nil && (len(d.sizes) > 0 || len(d.pinned) > 0) {
		return fmt.Errorf("drivertest: %d allocations of %d bytes and %d of pinned memory were not freed", len(d.sizes), d.used, len(d.pinned))
	}
	return nil
}

type module struct {
	d *device
	m *ptx.Module
}

func (m *module) Function(name string) (driver.Function, error) {
	end, err := m.d.begin("cuModuleGetFunction")
	if err != nil {
		return nil, err
	}
	defer end()
	k := m.m.Kernel(name)
	if k == nil {
		return nil, &driver.Error{Call: "cuModuleGetFunction", Code: driver.NotFound, Cause: errors.New(name)}
	}
	return &function{d: m.d, k: k, shared: 48<<10 - k.SharedBytes}, nil
}

func (m *module) Close() error { return nil }

type function struct {
	d      *device
	k      *ptx.Kernel
	shared int // that a launch may ask for
}

func (f *function) Name() string { return f.k.Name }

func (f *function) AllowShared(bytes int) error {
	end, err := f.d.begin("cuFuncSetAttribute")
	if err != nil {
		return err
	}
	defer end()
	if bytes < 0 || bytes+f.k.SharedBytes > f.d.info.Shared {
		return &driver.Error{Call: "cuFuncSetAttribute", Code: driver.InvalidValue}
	}
	f.shared = bytes
	return nil
}

// PreferShared changes nothing here.
func (f *function) PreferShared() error {
	end, err := f.d.begin("cuFuncSetAttribute")
	if err == nil {
		end()
	}
	return err
}

// Occupancy counts threads and shared memory; registers are not known.
func (f *function) Occupancy(threads, shared int) (int, error) {
	end, err := f.d.begin("cuOccupancyMaxActiveBlocksPerMultiprocessor")
	if err != nil {
		return 0, err
	}
	defer end()
	if threads <= 0 || threads > f.k.MaxThreads || shared < 0 {
		return 0, &driver.Error{Call: "cuOccupancyMaxActiveBlocksPerMultiprocessor", Code: driver.InvalidValue}
	}
	return min(2048/threads, f.d.info.Shared/max(1, f.k.SharedBytes+shared+1024), 32), nil
}
