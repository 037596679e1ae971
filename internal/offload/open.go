package offload

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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

// Devices are the devices for a model.
type Devices struct {
	// Name is a device of this machine, or several with commas between, which all compute some layers. "": the best.
	Name string
	How  backend.Options
	// More open devices elsewhere, such as nodes, which all compute some layers. So does one of this machine, if it has memory for a
	// layer with output and head. The device says how fast it reads its
	// memory (backend.Streamer) and how large weights are there (backend.Sizer); how long a row takes to it is measured.
	More []func() (backend.Backend, error)
}

// For opens devices, and the host's processor beside them if the checkpoint's model is too
// large for them, or a part of it is wanted there. The plan is nil where there was nothing to decide.
func For(c *checkpoint.Checkpoint, on Devices, want Want, o Options) (backend.Backend, *Plan, error) {
	return open(func() *weights.Survey {
		s, err := model.Survey(c)
		if err != nil || len(s.Errors)+len(s.Missing) > 0 {
			return nil // loading the model reports the error
		}
		return s
	}, on, want, o)
}

// ForShape is For of a model that is generated.
func ForShape(shape string, form weights.Form, on Devices, want Want, o Options) (backend.Backend, *Plan, error) {
	return open(func() *weights.Survey { return model.SurveyShape(shape, form) }, on, want, o)
}

// choice is devices that are open, until a placement selects some.
type choice struct {
	on   Devices
	list []opened
}

// opened is a device, with its name as users type it.
type opened struct {
	backend.Backend
	called string
	named  bool // see Side
}

func open(look func() *weights.Survey, on Devices, want Want, o Options) (backend.Backend, *Plan, error) {
	if want.Layers < None {
		return nil, nil, fmt.Errorf("offload: %d layers on the device, want a number of layers, %d for auto or %d for none", want.Layers, Auto, None)
	}
	if want.Layers != Auto && (len(on.More) > 0 || strings.Contains(on.Name, ",")) {
		return nil, nil, errors.New("offload: --gpu-layers is for one device: of several, the plan chooses the layers of each")
	}
	if want.Layers == None {
		on.Name, want = backend.HostName(), Want{}
	}
	if err := backend.Known(on.Name); err != nil {
		return nil, nil, err
	}
	c := &choice{on: on}
	d, plan, err := c.open(look, want, o)
	if err != nil {
		return nil, nil, errors.Join(err, c.close(nil))
	}
	return d, plan, nil
}

// open opens the devices, and those that help if they have too little memory, and returns one that combines those with parts.
func (c *choice) open(look func() *weights.Survey, want Want, o Options) (backend.Backend, *Plan, error) {
	if err := c.openNamed(); err != nil {
		return nil, nil, err
	}
	first := c.list[0]
	if len(c.list) == 1 && first.called == backend.HostName() {
		if want != (Want{}) {
			return nil, nil, fmt.Errorf("%s computes: %w", first.Name(), ErrAlone)
		}
		return first.Backend, nil, nil
	}
	s := look()
	if s == nil { // the error is the same on any device
		return first.Backend, nil, c.close([]int{0})
	}
	if o.Context == 0 {
		o.Context = min(s.Context, DefaultContext)
	}
	return c.beside(NewNeed(s, o), want)
}

// openNamed opens what the user named.
func (c *choice) openNamed() error {
	names := strings.Split(c.on.Name, ",")
	several := len(names)+len(c.on.More) > 1
	for _, name := range names {
		b, called, err := backend.OpenNamed(strings.TrimSpace(name), c.on.How)
		if err != nil {
			return err
		}
		c.list = append(c.list, opened{b, called, several})
	}
	for _, f := range c.on.More {
		b, err := f()
		if err != nil {
			return err
		}
		c.list = append(c.list, opened{b, "", true})
	}
	return nil
}

// beside returns a device on which a model fits: the only one if it does, otherwise several combined, with the other GPUs
// of the machine if auto chose the first, and with the CPU. The plan says which.
func (c *choice) beside(n *Need, want Want) (backend.Backend, *Plan, error) {
	first := c.list[0]
	if !first.named && want == (Want{}) { // all of it: nothing else is needed
		p := &Plan{Layers: n.Layers, Machine: c.machine(), need: n}
		if p.fits(0) {
			return first.Backend, p, nil
		}
	}
	if want.Layers == Auto && (c.on.Name == "" || c.on.Name == backend.Auto) {
		for _, name := range backend.Others(first.called) {
			if err := c.add(backend.OpenNamed(name, c.on.How)); err != nil {
				return nil, nil, err
			}
		}
	}
	if !slices.ContainsFunc(c.list, func(d opened) bool { return d.called == backend.HostName() }) {
		b, err := backend.OpenHost(c.on.How)
		if err := c.add(b, backend.HostName(), err); err != nil {
			return nil, nil, err
		}
	}
	on := c.machine()
	if want.Layers == Auto || n.experts() && !want.CPUExperts { // there is something to choose
		if err := c.measure(on); err != nil {
			return nil, nil, err
		}
	}
	p, err := New(n, want, on)
	if err != nil && len(c.on.More) > 0 && !strings.Contains(c.on.Name, ",") {
		on[0].Named = false // the others may have memory for all layers
		p, err = New(n, want, on)
	}
	if err != nil {
		return nil, nil, err
	}
	return c.combine(p)
}

func (c *choice) add(b backend.Backend, called string, err error) error {
	if err == nil {
		c.list = append(c.list, opened{b, called, false})
	}
	return err
}

// combine is the device of a plan. It closes those without parts.
func (c *choice) combine(p *Plan) (backend.Backend, *Plan, error) {
	var used []backend.Backend
	var keep []int
	number := make([]int, len(c.list))
	for i := range c.list {
		if _, layers := p.parts(i); layers > 0 || p.takes(i) > 0 {
			number[i] = len(used)
			used, keep = append(used, c.list[i].Backend), append(keep, i)
		}
	}
	if err := c.close(keep); err != nil {
		return nil, nil, err
	}
	for _, i := range keep { // others close them now
		c.list[i].Backend = nil
	}
	if len(used) == 1 {
		return used[0], p, nil
	}
	d, err := split.New(func(x backend.Part) int { return number[p.Place(x)] }, used...)
	return d, p, err
}

// close closes all devices but some.
func (c *choice) close(keep []int) error {
	var all []error
	for i := range c.list {
		if !slices.Contains(keep, i) && c.list[i].Backend != nil {
			all = append(all, c.list[i].Close())
			c.list[i].Backend = nil
		}
	}
	return errors.Join(all...)
}

// machine is the devices, with their memory: one that is in the list twice has half of it for each.
func (c *choice) machine() Machine {
	var on Machine
	var names []string
	for i := range c.list {
		names = append(names, c.list[i].Name())
	}
	for i, name := range split.Names(names) {
		d := &c.list[i]
		same := 0
		for j := range c.list {
			if c.list[j].called == d.called && d.called != "" {
				same++
			}
		}
		s := Side{Name: name, Free: d.FreeMemory() / int64(max(same, 1)), Host: d.called == backend.HostName(), Named: d.named}
		if z, ok := d.Backend.(backend.Sizer); ok {
			s.Size = z.WeightBytes
		}
		on = append(on, s)
	}
	return on
}

// Sizes of the reads that measure memory, and of the row that measures the way to a device.
const (
	streamBytes   = 256 << 20
	roundTripCols = 4096
)

// measure fills in how fast devices are. If one cannot be measured none after it is.
func (c *choice) measure(on Machine) error {
	for i := range on {
		err := on[i].stream(c.list[i].Backend)
		if err != nil || on[i].Bandwidth == 0 {
			return err
		}
		if on[i].RoundTrip, err = roundTrip(c.list[i].Backend); err != nil {
			return err
		}
	}
	return nil
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

// roundTrip measures the way of a row to a device and back.
func roundTrip(b backend.Backend) (best time.Duration, err error) {
	x, err := b.Alloc(dtype.F32, 1, roundTripCols)
	if err != nil {
		return 0, err
	}
	defer b.Free(x)
	row := make([]float32, roundTripCols)
	for i := range 5 {
		start := time.Now()
		if err := b.Write(x, row); err != nil {
			return 0, err
		}
		if _, err := b.Host(x); err != nil {
			return 0, err
		}
		if took := time.Since(start); i == 0 || took < best {
			best = took
		}
	}
	return best, nil
}
