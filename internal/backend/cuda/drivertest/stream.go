package drivertest

import (
	"errors"
	"fmt"

	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/cuda/drivertest/ptx"
)

// operation is a queued call, with its name.
type operation struct {
	call string
	run  func() error
}

type stream struct {
	d       *device
	queue   []operation
	capture *graph // the graph being recorded
}

// push runs the immediate checks of a driver and queues the rest.
func (s *stream) push(call string, check func() error, run func() error) error {
	end, err := s.d.begin(call)
	if err != nil {
		return err
	}
	defer end()
	if check != nil {
		if err := check(); err != nil {
			return err
		}
	}
	if s.capture != nil {
		s.capture.nodes = append(s.capture.nodes, operation{call, run})
		return nil
	}
	s.queue = append(s.queue, operation{call, run})
	return nil
}

// drain runs the queued operations. The device is locked.
func (s *stream) drain() error {
	queue := s.queue
	s.queue = nil
	for _, op := range queue {
		if s.d.lost != nil {
			return s.d.lost
		}
		if err := op.run(); err != nil {
			return s.d.fault(wrap(op.call, err))
		}
	}
	return nil
}

// wrap gives an error of the machine the code of a GPU.
func wrap(call string, err error) error {
	var fault *ptx.Fault
	var address *ptx.AddressError
	switch {
	case errors.As(err, &fault):
		return &driver.Error{Call: call, Code: driver.LaunchFailed, Cause: err}
	case errors.As(err, &address):
		return &driver.Error{Call: call, Code: driver.IllegalAddress, Cause: err}
	}
	return &driver.Error{Call: call, Code: driver.InvalidValue, Cause: err}
}

func (s *stream) Write(to driver.Ptr, from []byte) error {
	return s.push("cuMemcpyHtoDAsync", nil, func() error { return s.d.m.Write(uint64(to), from) })
}

func (s *stream) Read(to []byte, from driver.Ptr) error {
	return s.push("cuMemcpyDtoHAsync", nil, func() error { return s.d.m.Read(to, uint64(from)) })
}

func (s *stream) Copy(to, from driver.Ptr, bytes int64) error {
	return s.push("cuMemcpyDtoDAsync", nil, func() error { return s.d.m.Copy(uint64(to), uint64(from), bytes) })
}

func (s *stream) Set(to driver.Ptr, value byte, bytes int64) error {
	return s.push("cuMemsetD8Async", nil, func() error { return s.d.m.Set(uint64(to), value, bytes) })
}

func (s *stream) Launch(l driver.Launch) error {
	const call = "cuLaunchKernelEx"
	f, ok := l.Function.(*function)
	if !ok || f.d != s.d {
		return &driver.Error{Call: call, Code: driver.InvalidHandle}
	}
	launch := ptx.Launch{Kernel: f.k, Grid: l.Grid, Block: l.Block, Shared: l.Shared, Params: append([]byte(nil), l.Params...), Dependent: l.Dependent}
	check := func() error {
		if l.Dependent && s.d.info.Compute[0] < 9 {
			return &driver.Error{Call: call, Code: driver.NotSupported, Cause: errors.New("dependent launches need compute capability 9.0")}
		}
		if l.Shared > f.shared {
			return &driver.Error{Call: call, Code: driver.InvalidValue, Cause: fmt.Errorf("%s: %d bytes of shared memory, AllowShared said %d", f.k.Name, l.Shared, f.shared)}
		}
		if err := launch.Check(); err != nil {
			return &driver.Error{Call: call, Code: driver.InvalidValue, Cause: err}
		}
		return nil
	}
	return s.push(call, check, func() error { return s.d.m.Launch(launch) })
}

func (s *stream) Wait() error {
	end, err := s.d.begin("cuStreamSynchronize")
	if err != nil {
		return err
	}
	defer end()
	if s.capture != nil {
		return &driver.Error{Call: "cuStreamSynchronize", Code: driver.CaptureUnsupported}
	}
	return s.drain()
}

func (s *stream) Capture(queue func() error) (driver.Graph, error) {
	end, err := s.d.begin("cuStreamBeginCapture")
	if err != nil {
		return nil, err
	}
	if s.capture != nil {
		end()
		return nil, &driver.Error{Call: "cuStreamBeginCapture", Code: driver.CaptureInvalidated}
	}
	g := &graph{s: s}
	s.capture = g
	s.d.capturing++
	end()
	defer func() {
		s.d.mu.Lock()
		s.capture = nil
		s.d.capturing--
		s.d.mu.Unlock()
	}()
	if err := queue(); err != nil {
		return nil, err
	}
	end, err = s.d.begin("cuGraphInstantiate")
	if err != nil {
		return nil, err
	}
	end()
	return g, nil
}

// Close ends the stream when all that was queued has ended.
func (s *stream) Close() error {
	end, err := s.d.begin("cuStreamDestroy")
	if err != nil {
		return err
	}
	defer end()
	err = s.drain()
	for i, x := range s.d.streams {
		if x == s {
			s.d.streams = append(s.d.streams[:i], s.d.streams[i+1:]...)
			break
		}
	}
	return err
}

type graph struct {
	s      *stream
	nodes  []operation
	closed bool
}

func (g *graph) Launch() error {
	end, err := g.s.d.begin("cuGraphLaunch")
	if err != nil {
		return err
	}
	defer end()
	switch {
	case g.closed:
		return &driver.Error{Call: "cuGraphLaunch", Code: driver.InvalidHandle}
	case g.s.capture != nil:
		return &driver.Error{Call: "cuGraphLaunch", Code: driver.CaptureUnsupported}
	}
	g.s.queue = append(g.s.queue, g.nodes...)
	return nil
}

func (g *graph) Nodes() int { return len(g.nodes) }

func (g *graph) Close() error {
	g.closed = true
	return nil
}
