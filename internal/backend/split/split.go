// Package split makes one device of two: a fast one with little memory, and the host. The
// parts of a model that do not fit on the first run on the second, with the same bits. It uses both
// through package backend only, and its users do not see that there are two.
//
// An operation runs where its weights or its state are; one that has neither runs where its
// operands were written. The loader of weights places them, part by part (see
// backend.Part). The state of a sequence is one piece of memory to its owner; here the layers'
// parts of it lie only on the device that computes the layer. Its bytes are those that
// one device has, so that prefixes can be used on any other.
//
// All other memory, mainly activations, may have a copy on each side. Rectangles record which numbers
// of a copy are older than those of the other; an operation that reads some has only
// these copied first. Memory of the host is allocated at once (untouched pages cost nothing), that of
// the device when it is first used there, or it would be allocated for values that only the host
// computes.
//
// The operations of a pass are collected before any of them runs, so the transfers between the devices
// are known: the pass is cut into segments, each of which is a pass of one of the two devices,
// after a copy of its inputs from the other. A device that records passes and replays
// them records segments. The cuts of a pass are reused for all passes of its shape.
//
// An error of either device, and one of a copy between them, is reported by the next blocking call.
package split

import (
	"errors"
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// side is one of the two devices.
type side int8

const (
	device side = iota
	host
	either side = -1 // an operation without weights and state
)

func (s side) other() side { return 1 - s }

// Device is two devices. See the package.
type Device struct {
	dev    [2]backend.Backend
	tick   [2]backend.Tensor // a number on each, to wait for it
	onHost func(backend.Part) bool
	err    error // of an operation or a copy, to be reported
	last   side  // of the last operation

	plan  *plan // of the pass whose operations are being collected; nil: none is
	plans map[shape]*plan
	bytes []byte // for copies
	moved int64  // copies between the devices so far
}

var (
	_ backend.Parted   = (*Device)(nil)
	_ backend.Spreader = (*Device)(nil)
	_ backend.Meter    = (*Device)(nil)
)

// New returns a device that computes the parts of a model for which onHost reports true on the
// host and all others on the device. It closes both.
func New(device, host backend.Backend, onHost func(backend.Part) bool) (backend.Backend, error) {
	d := &Device{dev: [2]backend.Backend{device, host}, onHost: onHost, plans: map[shape]*plan{}}
	for i, b := range d.dev {
		var err error
		if d.tick[i], err = b.Alloc(dtype.F32, 1, 1); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// Name names both.
func (d *Device) Name() string { return d.dev[device].Name() + " and " + d.dev[host].Name() }

// FreeMemory is the free memory of the fuller of the two: memory may be needed on both.
func (d *Device) FreeMemory() int64 {
	return min(d.dev[device].FreeMemory(), d.dev[host].FreeMemory())
}

// Usage implements backend.Meter, of both.
func (d *Device) Usage() []backend.Usage {
	return append(backend.UsageOf(d.dev[device]), backend.UsageOf(d.dev[host])...)
}

// Prepared implements backend.Preparer, of both.
func (d *Device) Prepared() int64 {
	return backend.PreparedBy(d.dev[device]) + backend.PreparedBy(d.dev[host])
}

// NewStream implements backend.Streamer, of the faster one.
func (d *Device) NewStream(bytes int) (backend.Stream, error) {
	s, ok := d.dev[device].(backend.Streamer)
	if !ok {
		return nil, fmt.Errorf("split: the memory of %s cannot be measured", d.dev[device].Name())
	}
	return s.NewStream(bytes)
}

// Close closes both devices.
func (d *Device) Close() error { return errors.Join(d.dev[device].Close(), d.dev[host].Close()) }

// Spread implements backend.Spreader, with the threads of the host.
func (d *Device) Spread(n int, f func(i int)) { backend.Spread(d.dev[host], n, f) }

// side is where a part is computed.
func (d *Device) side(p backend.Part) side {
	if d.onHost(p) {
		return host
	}
	return device
}

// At implements backend.Parted.
func (d *Device) At(p backend.Part) backend.Backend { return &view{d, d.side(p)} }

// view is the device for memory on one side.
type view struct {
	*Device
	side side
}

// Alloc allocates memory of the view's side only.
func (v *view) Alloc(t dtype.Type, rows, cols int) (backend.Tensor, error) {
	return v.alloc(v.side, t, rows, cols)
}

// Load loads a weight onto the view's side.
func (v *view) Load(c backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	return v.load(v.side, c, stack...)
}

// weight is a weight, and where it is.
type weight struct {
	owner *Device
	side  side
	backend.Weight
}

// Load loads a weight of no part: onto the device.
func (d *Device) Load(c backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	return d.load(device, c, stack...)
}

func (d *Device) load(s side, c backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	w, err := d.dev[s].Load(c, stack...)
	if err != nil {
		return nil, err
	}
	return &weight{d, s, w}, nil
}

// Unload implements backend.Backend.
func (d *Device) Unload(w backend.Weight) {
	x := d.weight(w)
	clear(d.plans) // a model is closed: nothing of it is worth a search
	d.dev[x.side].Unload(x.Weight)
}

func (d *Device) weight(w backend.Weight) *weight {
	x, ok := w.(*weight)
	if !ok || x.owner != d {
		panic("split: weight of another device")
	}
	return x
}

// fail keeps the first error until it is reported.
func (d *Device) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// wait returns when the work queued on some sides is done, with the first error of any.
func (d *Device) wait(sides ...side) error {
	err := d.err
	d.err = nil
	for _, s := range sides {
		if _, e := d.dev[s].Host(d.tick[s]); err == nil {
			err = e
		}
	}
	return err
}

// settled brings all of src to one side, which the caller is about to wait for, and waits for the
// other.
func (d *Device) settled(src backend.Tensor) (backend.Backend, backend.Tensor, error) {
	s := d.fresher(d.last, src)
	err := d.bring(s, src)
	if e := d.wait(s.other()); e != nil {
		err = e // it was first
	}
	if err != nil {
		return nil, src, errors.Join(err, d.wait(s))
	}
	return d.dev[s], d.on(s, src), nil
}

// Host implements backend.Backend.
func (d *Device) Host(src backend.Tensor) ([]float32, error) {
	b, t, err := d.settled(src)
	if err != nil {
		return nil, err
	}
	return b.Host(t)
}

// Top implements backend.Backend.
func (d *Device) Top(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
	b, t, err := d.settled(src)
	if err != nil {
		return nil, err
	}
	return b.Top(t, asks)
}

// ReadBytes implements backend.Backend.
func (d *Device) ReadBytes(dst []byte, src backend.Tensor) error {
	if d.memory(src).cut == nil {
		b, t, err := d.settled(src)
		if err != nil {
			return err
		}
		return b.ReadBytes(dst, t)
	}
	if err := d.wait(device, host); err != nil {
		return err
	}
	return d.runs(src, len(dst), func(s side, t backend.Tensor, from, to int) error {
		return d.dev[s].ReadBytes(dst[from:to], t)
	})
}

// WriteBytes implements backend.Backend.
func (d *Device) WriteBytes(dst backend.Tensor, src []byte) error {
	if d.memory(dst).cut != nil {
		return d.runs(dst, len(src), func(s side, t backend.Tensor, from, to int) error {
			return d.dev[s].WriteBytes(t, src[from:to])
		})
	}
	return d.store(dst, func(b backend.Backend, t backend.Tensor) error { return b.WriteBytes(t, src) })
}

// Write implements backend.Backend.
func (d *Device) Write(dst backend.Tensor, src []float32) error {
	return d.store(dst, func(b backend.Backend, t backend.Tensor) error { return b.Write(t, src) })
}

// store has numbers of the host written to dst.
func (d *Device) store(dst backend.Tensor, write func(b backend.Backend, t backend.Tensor) error) error {
	s := d.fresher(d.last, dst)
	if err := d.memory(dst).reserve(s); err != nil {
		return err
	}
	if err := write(d.dev[s], d.on(s, dst)); err != nil {
		return err
	}
	d.wrote(s, dst)
	return nil
}

// runs calls f for each piece of a row of cut memory that is on one side, with its range in
// the row's n bytes.
func (d *Device) runs(t backend.Tensor, n int, f func(s side, t backend.Tensor, from, to int) error) error {
	m, size := d.memory(t), t.Type.Size()
	if t.Rows != 1 || n != t.Cols*size {
		return fmt.Errorf("split: %d bytes of a tensor of %d×%d numbers of %d", n, t.Rows, t.Cols, size)
	}
	for _, p := range m.cut.pieces {
		from, to := max(p.from, t.Offset), min(p.to, t.Offset+t.Cols)
		if from >= to {
			continue
		}
		x := m.copies[p.side]
		x.Offset, x.Cols = x.Offset+p.at+from-p.from, to-from
		if err := f(p.side, x, (from-t.Offset)*size, (to-t.Offset)*size); err != nil {
			return err
		}
	}
	return nil
}
