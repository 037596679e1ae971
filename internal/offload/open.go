package offload

import (
	"errors"
	"fmt"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// ErrAlone is wrapped by the error for a device that no part of a model can be put beside.
var ErrAlone = errors.New("no other device is available for a part of the model")

// For opens a device by its name, and the host's processor beside it if the checkpoint's model is too
// large for one, or a part of it is wanted there. The plan is nil where there was nothing to decide.
func For(c *checkpoint.Checkpoint, name string, how backend.Options, want Want, o Options) (backend.Backend, *Plan, error) {
	return open(func() *weights.Survey {
		s, err := model.Survey(c)
		if err != nil || len(s.Errors)+len(s.Missing) > 0 {
			return nil // loading the model reports the error
		}
		return s
	}, name, how, want, o)
}

// ForShape is For of a model that is generated.
func ForShape(shape string, form weights.Form, name string, how backend.Options, want Want, o Options) (backend.Backend, *Plan, error) {
	return open(func() *weights.Survey { return model.SurveyShape(shape, form) }, name, how, want, o)
}

func open(look func() *weights.Survey, name string, how backend.Options, want Want, o Options) (backend.Backend, *Plan, error) {
	if want.Layers < None {
		return nil, nil, fmt.Errorf("offload: %d layers on the device, want a number of layers, %d for auto or %d for none", want.Layers, Auto, None)
	}
	if want.Layers == None {
		name, want = backend.HostName(), Want{}
	}
	b, name, err := backend.OpenNamed(name, how)
	if err != nil {
		return nil, nil, err
	}
	if name == backend.HostName() {
		if want != (Want{}) {
			return nil, nil, errors.Join(fmt.Errorf("%s computes: %w", b.Name(), ErrAlone), b.Close())
		}
		return b, nil, nil
	}
	s := look()
	if s == nil {
		return b, nil, nil
	}
	if o.Context == 0 {
		o.Context = min(s.Context, DefaultContext)
	}
	var size func(m *dtype.Matrix) int64
	if w, ok := b.(backend.Sizer); ok {
		size = w.WeightBytes
	}
	d, plan, err := beside(b, NewNeed(s, o, size), want, how)
	if err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	return d, plan, nil
}

// beside returns a device on which a model fits: b itself if it does, otherwise b and the CPU
// combined, which closes b with it. The plan says which. After an error b is open.
func beside(b backend.Backend, n *Need, want Want, o backend.Options) (_ backend.Backend, _ *Plan, err error) {
	on := Machine{Device: Side{Name: b.Name(), Free: b.FreeMemory()}}
	if want == (Want{}) {
		// All of it: the host is not needed.
		p := &Plan{Layers: n.Layers, Machine: on, need: n, core: true, embed: true, tower: true}
		if p.fits(false) {
			return b, p, nil
		}
	}
	host, err := backend.OpenHost(o)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, host.Close())
		}
	}()
	on.Host = Side{Name: host.Name(), Free: host.FreeMemory()}
	if want.Layers == Auto || n.experts() && !want.CPUExperts { // there is something to choose
		if err := on.measure(b, host); err != nil {
			return nil, nil, err
		}
	}
	p, err := New(n, want, on)
	if err != nil {
		return nil, nil, err
	}
	switch whole, onHost := p.Whole(); {
	case whole && onHost:
		return host, p, b.Close()
	case whole:
		return b, p, host.Close()
	}
	d, err := split.New(func(x backend.Part) int {
		if p.OnHost(x) {
			return 1
		}
		return 0
	}, b, host)
	return d, p, err
}

// Sizes of the reads that measure memory, and of the transfer that measures the border.
const (
	streamBytes = 256 << 20
	borderCols  = 4096
)

// measure fills in how fast the devices are. If the device cannot be measured nothing is.
func (m *Machine) measure(device, host backend.Backend) error {
	err := m.Device.stream(device)
	if err != nil || m.Device.Bandwidth == 0 {
		return err
	}
	if err := m.Host.stream(host); err != nil {
		return err
	}
	m.Border, err = border(device, host)
	return err
}

// stream measures how fast a device reads its memory.
func (s *Side) stream(b backend.Backend) error {
	d, ok := b.(backend.Streamer)
	if !ok || s.Free < 4*streamBytes {
		return nil
	}
	x, err := d.NewStream(streamBytes)
	if err != nil {
		return err
	}
	defer x.Close()
	x.Read()
	best := min(x.Read(), x.Read())
	s.Bandwidth = float64(x.Bytes()) / max(best.Seconds(), 1e-9)
	return nil
}

// border measures the transfer of a row from one device to the other.
func border(device, host backend.Backend) (time.Duration, error) {
	from, err := device.Alloc(dtype.F32, 1, borderCols)
	if err != nil {
		return 0, err
	}
	defer device.Free(from)
	to, err := host.Alloc(dtype.F32, 1, borderCols)
	if err != nil {
		return 0, err
	}
	defer host.Free(to)
	best := time.Duration(0)
	for i := range 5 {
		start := time.Now()
		x, err := device.Host(from)
		if err == nil {
			err = host.Write(to, x)
		}
		if err != nil {
			return 0, err
		}
		if took := time.Since(start); i == 0 || took < best {
			best = took
		}
	}
	return best, nil
}
