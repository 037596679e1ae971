//go:build cuda && (linux || windows)

package driver

import (
	"errors"
	"runtime"
	"unsafe"
)

// compiled is a module of the library.
type compiled struct {
	d      *gpu
	handle uintptr
}

func (m *compiled) Function(name string) (Function, error) {
	text, handle := append([]byte(name), 0), new(uintptr)
	if err := m.d.do("cuModuleGetFunction", uintptr(unsafe.Pointer(handle)), m.handle, uintptr(unsafe.Pointer(&text[0]))); err != nil {
		return nil, err
	}
	return &function{m.d, name, *handle}, nil
}

func (m *compiled) Close() error { return m.d.do("cuModuleUnload", m.handle) }

type function struct {
	d      *gpu
	name   string
	handle uintptr
}

func (f *function) Name() string { return f.name }

func (f *function) AllowShared(bytes int) error {
	return f.d.do("cuFuncSetAttribute", f.handle, functionShared, uintptr(bytes))
}

func (f *function) PreferShared() error {
	const percent = 100
	return f.d.do("cuFuncSetAttribute", f.handle, functionCarveout, percent)
}

func (f *function) Occupancy(threads, shared int) (int, error) {
	n := new(int32)
	err := f.d.do("cuOccupancyMaxActiveBlocksPerMultiprocessor", uintptr(unsafe.Pointer(n)), f.handle, uintptr(threads), uintptr(shared))
	return int(*n), err
}

// stream is a queue of the library.
type stream struct {
	d      *gpu
	handle uintptr
	call   *launchCall // in memory that does not move
	args   [4]uintptr  // of the call that is being made

	capturing bool
}

// do is gpu.do for the calls of every pass: it allocates nothing. Memory behind an argument does not move
// until it returns. A function with fewer parameters ignores the rest.
//
//go:uintptrescapes
func (s *stream) do(call string, a, b, c, d uintptr) error {
	s.args = [4]uintptr{a, b, c, d}
	return s.d.call(call, s.args[:])
}

// launchCall is the input of cuLaunchKernelEx. The layouts are those of CUlaunchConfig and
// CUlaunchAttribute.
type launchCall struct {
	config struct {
		grid, block [3]uint32
		shared      uint32
		stream      uintptr
		attributes  uintptr
		count       uint32
	}
	attribute struct {
		id      uint32
		_       uint32
		allowed int32
		_       [15]uint32
	}
	extra [5]uintptr
	size  uint64
	data  [4096]byte // the parameters
}

// Numbers of the driver API.
const (
	attributeDependent = 6 // programmatic stream serialization
	extraEnd           = 0
	extraBuffer        = 1
	extraSize          = 2
	captureRelaxed     = 2
)

func (s *stream) Launch(l Launch) error {
	const call = "cuLaunchKernelEx"
	f, ok := l.Function.(*function)
	if !ok || f.d != s.d {
		return &Error{Call: call, Code: InvalidHandle}
	}
	c := s.call
	if len(l.Params) > len(c.data) {
		return &Error{Call: call, Code: InvalidValue, Cause: errors.New("too many parameters")}
	}
	for i := range 3 {
		c.config.grid[i], c.config.block[i] = uint32(l.Grid[i]), uint32(l.Block[i])
	}
	c.config.shared, c.config.stream = uint32(l.Shared), s.handle
	c.config.attributes, c.config.count = uintptr(unsafe.Pointer(&c.attribute)), 0
	if l.Dependent {
		c.attribute.id, c.attribute.allowed, c.config.count = attributeDependent, 1, 1
	}
	copy(c.data[:], l.Params)
	c.size = uint64(len(l.Params))
	c.extra = [5]uintptr{extraBuffer, uintptr(unsafe.Pointer(&c.data)), extraSize, uintptr(unsafe.Pointer(&c.size)), extraEnd}
	err := s.do(call, uintptr(unsafe.Pointer(&c.config)), f.handle, 0, uintptr(unsafe.Pointer(&c.extra)))
	runtime.KeepAlive(c)
	return err
}

func (s *stream) Write(to Ptr, from []byte) error {
	if len(from) == 0 {
		return nil
	}
	return s.do("cuMemcpyHtoDAsync", uintptr(to), uintptr(unsafe.Pointer(&from[0])), uintptr(len(from)), s.handle)
}

func (s *stream) Read(to []byte, from Ptr) error {
	if len(to) == 0 {
		return nil
	}
	return s.do("cuMemcpyDtoHAsync", uintptr(unsafe.Pointer(&to[0])), uintptr(from), uintptr(len(to)), s.handle)
}

func (s *stream) Copy(to, from Ptr, bytes int64) error {
	return s.do("cuMemcpyDtoDAsync", uintptr(to), uintptr(from), uintptr(bytes), s.handle)
}

func (s *stream) Set(to Ptr, value byte, bytes int64) error {
	return s.do("cuMemsetD8Async", uintptr(to), uintptr(value), uintptr(bytes), s.handle)
}

func (s *stream) Wait() error { return s.do("cuStreamSynchronize", s.handle, 0, 0, 0) }

func (s *stream) Close() error { return s.d.do("cuStreamDestroy", s.handle) }

// Capture records on the stream itself. A graph is ended whatever queue returns, so that the stream
// can be used again.
func (s *stream) Capture(queue func() error) (Graph, error) {
	if err := s.d.do("cuStreamBeginCapture", s.handle, captureRelaxed); err != nil {
		return nil, err
	}
	s.capturing = true
	queued := queue()
	s.capturing = false
	captured := new(uintptr)
	err := s.d.do("cuStreamEndCapture", s.handle, uintptr(unsafe.Pointer(captured)))
	if queued != nil || err != nil {
		if *captured != 0 {
			err = errors.Join(err, s.d.do("cuGraphDestroy", *captured))
		}
		return nil, errors.Join(queued, err)
	}
	g, nodes := &graph{s: s}, new(uint64)
	handle := new(uintptr)
	err = s.d.do("cuGraphGetNodes", *captured, 0, uintptr(unsafe.Pointer(nodes)))
	if err == nil {
		err = s.d.do("cuGraphInstantiate", uintptr(unsafe.Pointer(handle)), *captured, 0)
	}
	g.handle, g.nodes = *handle, int(*nodes)
	if err := errors.Join(err, s.d.do("cuGraphDestroy", *captured)); err != nil {
		return nil, err
	}
	return g, nil
}

// graph is one that can be launched.
type graph struct {
	s      *stream
	handle uintptr
	nodes  int
}

func (g *graph) Launch() error { return g.s.do("cuGraphLaunch", g.handle, g.s.handle, 0, 0) }

func (g *graph) Nodes() int { return g.nodes }

func (g *graph) Close() error { return g.s.d.do("cuGraphExecDestroy", g.handle) }
