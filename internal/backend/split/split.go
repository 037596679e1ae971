// Package split makes one device of several: each computes some parts of a model, with the same bits. It uses
// them through package backend only, and its users do not see that there are several.
//
// An operation runs where its weights or its state are; one that has neither runs where its
// operands were written. The loader of weights places them, part by part (see
// backend.Part). The state of a sequence is one piece of memory to its owner; here the layers'
// parts of it lie only on the device that computes the layer. Its bytes are those that
// one device has, so that prefixes can be used on any other.
//
// All other memory, mainly activations, may have a copy on each device. Rectangles record which numbers
// of a copy are older than those of another; an operation that reads some has only
// these copied first. A device allocates its copy when it first uses it, or it would have one of values that
// only another computes.
//
// The operations of a pass are collected before any of them runs, so the transfers between the devices
// are known: the pass is cut into segments, each of which is a pass of one of the devices,
// after a copy of its inputs from the others. A device that records passes and replays
// them records segments. The cuts of a pass are reused for all passes of its shape.
//
// An error of any device, and one of a copy between two, is reported by the next blocking call.
package split

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// anywhere is the place of an operation without weights and state.
const anywhere = -1

// Device is several devices. See the package.
type Device struct {
	dev   []backend.Backend
	tick  []backend.Tensor // a number on each, to wait for it
	busy  []bool           // something was queued since the device was last waited for
	count []int            // by device: of use for a moment
	place func(backend.Part) int
	err   error // of an operation or a copy, to be reported
	last  int   // the device of the last operation

	plan    *plan // of the pass whose operations are being collected; nil: none is
	plans   map[backend.Shape]*plan
	bytes   []byte // for copies
	host    []float32
	moved   int64 // copies between the devices so far
	crossed int64 // bytes of them

	turns    *turns
	holds    []bool         // by device: the caller has it
	trips    []*trip        // launched, in order; ended ones are dropped some time later
	number   uint64         // of the last trip
	launched *flight        // of the running Launch; nil: none is running
	prepared []atomic.Int64 // of each device, when it was last used
}

var (
	_ backend.Parted   = (*Device)(nil)
	_ backend.Spreader = (*Device)(nil)
	_ backend.Meter    = (*Device)(nil)
	_ backend.Restorer = (*Device)(nil)
	_ backend.Pipeline = (*Device)(nil)
)

// New returns a device that computes each part of a model on one of several, by its index. Weights of no part are
// on the first device. It closes all.
func New(place func(backend.Part) int, devices ...backend.Backend) (backend.Backend, error) {
	n := len(devices)
	d := &Device{
		dev: devices, tick: make([]backend.Tensor, n), busy: make([]bool, n), count: make([]int, n), place: place,
		plans: map[backend.Shape]*plan{}, turns: newTurns(n), holds: make([]bool, n), prepared: make([]atomic.Int64, n),
	}
	for i, b := range d.dev {
		var err error
		if d.tick[i], err = b.Alloc(dtype.F32, 1, 1); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// queue is a device for work that is queued.
func (d *Device) queue(on int) backend.Backend {
	d.busy[on] = true
	return d.hold(on)
}

// waited is a device for a call that waits for all that is queued there.
func (d *Device) waited(on int) backend.Backend {
	d.busy[on] = false
	return d.hold(on)
}

// Name names all.
func (d *Device) Name() string {
	name := ""
	for i, b := range d.dev {
		switch {
		case i > 0 && i == len(d.dev)-1:
			name += " and "
		case i > 0:
			name += ", "
		}
		name += b.Name()
	}
	return name
}

// FreeMemory is the free memory of the fullest: memory may be needed on all.
func (d *Device) FreeMemory() int64 {
	d.quiet()
	free := d.dev[0].FreeMemory()
	for _, b := range d.dev[1:] {
		free = min(free, b.FreeMemory())
	}
	return free
}

// Usage implements backend.Meter, of each, with different names.
func (d *Device) Usage() (list []backend.Usage) {
	var names []string
	for _, b := range d.dev {
		list = append(list, backend.UsageOf(b)...)
	}
	for i := range list {
		names = append(names, list[i].Device)
	}
	for i, name := range Names(names) {
		list[i].Device = name
	}
	return list
}

// Names are the names of devices, with a number behind the second and later of equal ones.
func Names(list []string) []string {
	list = slices.Clone(list)
	seen := map[string]int{}
	for i, name := range list {
		if seen[name]++; seen[name] > 1 {
			list[i] = fmt.Sprintf("%s (%d)", name, seen[name])
		}
	}
	return list
}

// Prepared implements backend.Preparer, of all.
func (d *Device) Prepared() (n int64) {
	flying := len(d.flying()) > 0
	for s, b := range d.dev {
		if flying {
			n += d.prepared[s].Load()
		} else {
			n += backend.PreparedBy(b)
		}
	}
	return n
}

// NewStream implements backend.Streamer, of the first device.
func (d *Device) NewStream(bytes int) (backend.Stream, error) {
	d.quiet()
	s, ok := d.dev[0].(backend.Streamer)
	if !ok {
		return nil, fmt.Errorf("split: the memory of %s cannot be measured", d.dev[0].Name())
	}
	return s.NewStream(bytes)
}

// Restore implements backend.Restorer, of all.
func (d *Device) Restore() (lost bool, err error) {
	d.quiet()
	for _, b := range d.dev {
		one, e := backend.Restore(b)
		lost, err = lost || one, errors.Join(err, e)
	}
	if lost { // whatever was computed is computed again
		d.err = nil
		clear(d.turns.failed)
	}
	return lost, err
}

// WhenLost implements backend.Restorer, of any.
func (d *Device) WhenLost(ctx context.Context, f func()) {
	for _, b := range d.dev {
		backend.WhenLost(ctx, b, f)
	}
}

// Close closes all devices.
func (d *Device) Close() error {
	d.quiet()
	var all []error
	for _, b := range d.dev {
		all = append(all, b.Close())
	}
	return errors.Join(all...)
}

// Spread implements backend.Spreader, with the threads of the first device that lends some. A device that may be computing a
// launched pass lends none.
func (d *Device) Spread(n int, f func(i int)) {
	var lender backend.Backend
	for _, b := range d.dev {
		if _, ok := b.(backend.Spreader); ok && len(d.flying()) == 0 {
			lender = b
			break
		}
	}
	backend.Spread(lender, n, f)
}

// At implements backend.Parted.
func (d *Device) At(p backend.Part) backend.Backend { return &view{d, d.place(p)} }

// view is the device for what is on one of the devices.
type view struct {
	*Device
	on int
}

// Alloc allocates memory of the view's device only.
func (v *view) Alloc(t dtype.Type, rows, cols int) (backend.Tensor, error) {
	return v.alloc(v.on, t, rows, cols)
}

// Load loads a weight onto the view's device.
func (v *view) Load(c backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	return v.load(v.on, c, stack...)
}

// weight is a weight, and its device.
type weight struct {
	owner *Device
	on    int
	backend.Weight
}

// Load loads a weight of no part: onto the first device.
func (d *Device) Load(c backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	return d.load(0, c, stack...)
}

func (d *Device) load(on int, c backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	defer d.yield()
	w, err := d.hold(on).Load(c, stack...)
	if err != nil {
		return nil, err
	}
	return &weight{d, on, w}, nil
}

// Unload implements backend.Backend.
func (d *Device) Unload(w backend.Weight) {
	x := d.weight(w)
	d.quiet()
	clear(d.plans) // a model is closed: nothing of it is worth a search
	d.dev[x.on].Unload(x.Weight)
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

// wait returns when the work queued on all devices but one is done, with the first error of any. The caller then has that one and waits for
// it itself. A device without work is not asked: over a network that takes as long as a pass.
func (d *Device) wait(but int) error {
	err := d.err
	d.err = nil
	clear(d.count)
	for s, busy := range d.busy {
		if busy && s != but {
			d.count[s]++
		}
	}
	err = cmp.Or(err, d.each(d.count, func(s int) error {
		_, err := d.waited(s).Host(d.tick[s])
		return err
	}))
	if but != anywhere {
		d.hold(but)
	}
	for s := range d.dev {
		err = cmp.Or(err, d.turns.told(s))
	}
	return err
}

// settled brings all of src to one device, which the caller is about to wait for, and waits for the
// others.
func (d *Device) settled(src backend.Tensor) (backend.Backend, backend.Tensor, error) {
	if m := d.mine(src); m.cut != nil { // a layer's part of a state
		p := m.cut.find(src.Offset)
		return d.waited(p.on), m.shift(p, src), d.wait(p.on)
	}
	s := d.fresher(d.last, src)
	err := d.bring(s, src)
	if e := d.wait(s); e != nil {
		err = e // it was first
	}
	if err != nil {
		return nil, src, errors.Join(err, d.wait(anywhere))
	}
	return d.waited(s), d.on(s, src), nil
}

// Host implements backend.Backend.
func (d *Device) Host(src backend.Tensor) ([]float32, error) {
	defer d.yield()
	b, t, err := d.settled(src)
	if err != nil {
		return nil, err
	}
	list, err := b.Host(t)
	if len(d.trips) > 0 { // their calls of the device would end its life
		d.host = append(d.host[:0], list...)
		list = d.host
	}
	return list, err
}

// Top implements backend.Backend.
func (d *Device) Top(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
	defer d.yield()
	b, t, err := d.settled(src)
	if err != nil {
		return nil, err
	}
	list, err := b.Top(t, asks)
	if len(d.trips) > 0 {
		list = slices.Clone(list)
		for i := range list {
			x := &list[i]
			x.IDs, x.Logits, x.Also = slices.Clone(x.IDs), slices.Clone(x.Logits), slices.Clone(x.Also)
		}
	}
	return list, err
}

// ReadBytes implements backend.Backend.
func (d *Device) ReadBytes(dst []byte, src backend.Tensor) error {
	defer d.yield()
	if d.mine(src).cut == nil {
		b, t, err := d.settled(src)
		if err != nil {
			return err
		}
		return b.ReadBytes(dst, t)
	}
	if err := d.wait(anywhere); err != nil {
		return err
	}
	return d.runs(src, len(dst), func(s int, t backend.Tensor, from, to int) error {
		return d.waited(s).ReadBytes(dst[from:to], t)
	})
}

// WriteBytes implements backend.Backend.
func (d *Device) WriteBytes(dst backend.Tensor, src []byte) error {
	defer d.yield()
	if d.mine(dst).cut != nil {
		return d.runs(dst, len(src), func(s int, t backend.Tensor, from, to int) error {
			return d.queue(s).WriteBytes(t, src[from:to])
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
	defer d.yield()
	if m := d.mine(dst); m.cut != nil { // a layer's part of a state
		p := m.cut.find(dst.Offset)
		return write(d.queue(p.on), m.shift(p, dst))
	}
	s := d.fresher(d.last, dst)
	if err := d.memory(dst).reserve(s); err != nil {
		return err
	}
	if err := write(d.queue(s), d.on(s, dst)); err != nil {
		return err
	}
	d.wrote(s, dst)
	return nil
}

// runs calls f for each piece of a row of cut memory that is on one device, with its range in
// the row's n bytes.
func (d *Device) runs(t backend.Tensor, n int, f func(on int, t backend.Tensor, from, to int) error) error {
	m, size := d.memory(t), t.Type.Size()
	if t.Rows != 1 || n != t.Cols*size {
		return fmt.Errorf("split: %d bytes of a tensor of %d×%d numbers of %d", n, t.Rows, t.Cols, size)
	}
	for _, p := range m.cut.pieces {
		from, to := max(p.from, t.Offset), min(p.to, t.Offset+t.Cols)
		if from >= to {
			continue
		}
		x := m.copies[p.on]
		x.Offset, x.Cols = x.Offset+p.at+from-p.from, to-from
		if err := f(p.on, x, (from-t.Offset)*size, (to-t.Offset)*size); err != nil {
			return err
		}
	}
	return nil
}
