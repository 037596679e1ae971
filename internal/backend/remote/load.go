package remote

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Load names matrices by their digests, and sends those that the node has not. It waits.
func (d *Device) Load(k backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	if err := d.broken(); err != nil {
		return nil, err
	}
	if len(stack) == 0 || len(stack) > maxStack {
		return nil, fmt.Errorf("remote: a weight of %d matrices", len(stack))
	}
	w := &weight{own: d, number: d.next(), compute: k}
	for i := range stack {
		if err := stack[i].Validate(); err != nil {
			return nil, err
		}
		w.heads = append(w.heads, headOf(&stack[i]))
		w.digests = append(w.digests, DigestOf(&stack[i]))
	}
	if err := d.load(w, func(i int) (*dtype.Matrix, error) { return &stack[i], nil }); err != nil {
		return nil, err
	}
	d.weights[w.number] = w
	d.order = append(d.order, w)
	d.used.Add(max(w.bytes, handleBytes))
	return w, nil
}

// load has the node load a weight, with the matrices that it lacks.
func (d *Device) load(w *weight, matrix func(i int) (*dtype.Matrix, error)) error {
	at := d.out.begin(frameLoad, w.number)
	d.out.load(&w.compute, &w.heads, &w.digests)
	missing, part := []int32{}, 0
	err := d.ask(at, func(c *coder) {
		if part++; part == 1 {
			c.ints(&missing)
		} else {
			w.shape(c)
		}
	})
	if err != nil || len(missing) == 0 {
		return err
	}
	last := int32(-1)
	for _, i := range missing {
		if i <= last || int(i) >= len(w.heads) {
			d.link.fail(errFrame)
			return d.broken()
		}
		last = i
		m, err := matrix(int(i))
		if err != nil {
			return err
		}
		for _, data := range parts(m) {
			for piece := range slices.Chunk(data, pieceBytes) {
				d.out.finish(d.out.begin(frameData, uint64(i)), len(piece))
				d.flush()
				if d.link.ended() == nil {
					d.send(piece)
				}
			}
		}
	}
	return d.ask(d.out.begin(frameBuild, w.number), w.shape)
}

// shape reads the sizes of a weight. Those that follow from its matrices must be right.
func (w *weight) shape(c *coder) {
	size := 0
	for _, n := range []*int{&w.rows, &w.cols, &w.count, &size} {
		c.size(n)
	}
	w.bytes = int64(size)
	if h := &w.heads[0]; w.rows != h.rows || w.cols != h.cols || w.count != len(w.heads) {
		c.fail()
	}
}

// Unload waits for nothing.
func (d *Device) Unload(w backend.Weight) {
	x := d.weight(w)
	if d.weights[x.number] != x {
		return
	}
	d.passes.forget(d, x)
	delete(d.weights, x.number)
	d.order = slices.DeleteFunc(d.order, func(y *weight) bool { return y == x })
	d.used.Add(-max(x.bytes, handleBytes))
	d.queued(d.out.begin(frameUnload, x.number))
}

// weight checks that a weight is this device's.
func (d *Device) weight(w backend.Weight) *weight {
	x, ok := w.(*weight)
	if !ok || x.own != d {
		panic("remote: weight of another device")
	}
	return x
}

// Restore implements backend.Restorer.
func (d *Device) Restore() (lost bool, err error) {
	if d.lost != nil {
		return true, d.lost
	}
	cause := d.link.ended()
	if cause == nil {
		return false, nil
	}
	d.link.beating.Wait()
	d.o.Log.Warn("a node is gone", "node", d.o.Name, "error", cause)
	if err := d.connect(d.o.Wait, d.again); err != nil {
		d.lost = lostNode{fmt.Errorf("%w; it was lost because: %w", err, cause)}
		return true, d.lost
	}
	d.o.Log.Info("a node is back, and its weights are loaded again", "node", d.o.Name, "weights", len(d.order))
	return true, nil
}

// again makes everything again on a node that has nothing.
func (d *Device) again() error {
	d.passes.clear()
	if used := d.used.Load(); used > d.budget {
		return &refusal{text: fmt.Sprintf("it gives %d bytes, and %d are in use", d.budget, used)}
	}
	for _, m := range d.memory {
		m.named = false
		d.makeMemory(m)
		if m.wrote != nil {
			if err := d.write(m.t, bytesOf(m.wrote)); err != nil {
				return err
			}
		}
	}
	for _, w := range d.order {
		before := w.bytes
		err := d.load(w, func(i int) (*dtype.Matrix, error) {
			if d.o.Weights != nil {
				form, err := w.heads[i].form()
				if err != nil {
					return nil, err
				}
				switch m, ok, err := d.o.Weights.Find(w.digests[i], &form); {
				case err != nil:
					return nil, &refusal{text: err.Error()}
				case ok && headOf(&m) == w.heads[i]:
					return &m, nil
				}
			}
			return nil, &refusal{text: fmt.Sprintf(
				"it has lost a weight of %d×%d that it keeps no copy of: give it the model's files or a cache, or restart both", w.heads[i].rows, w.heads[i].cols)}
		})
		if err != nil {
			return err
		}
		d.used.Add(w.bytes - before)
	}
	// What was queued has worked if this does.
	return d.ask(d.out.begin(frameSync, 0), nil)
}
