package remote

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Host waits.
func (d *Device) Host(src backend.Tensor) ([]float32, error) {
	if src.Type != dtype.F32 || src.Rows > 1 && src.Stride != src.Cols {
		return nil, fmt.Errorf("remote: host view of rows %d apart and %d long, of %v", src.Stride, src.Cols, src.Type)
	}
	n := src.Rows * src.Cols
	if cap(d.host) < n {
		d.host = make([]float32, n)
	}
	if err := d.ReadBytes(bytesOf(d.host[:n]), src); err != nil {
		return nil, err
	}
	return d.host[:n:n], nil
}

// ReadBytes waits.
func (d *Device) ReadBytes(dst []byte, src backend.Tensor) error {
	if want := src.Rows * src.Cols * src.Type.Size(); len(dst) != want {
		return fmt.Errorf("remote: read of %d bytes from a tensor of %d", len(dst), want)
	}
	at := d.out.begin(frameRead, 0)
	d.out.tensor(&src)
	err := d.ask(at, func(c *coder) {
		n := copy(dst, c.buf)
		dst, c.buf = dst[n:], c.buf[n:]
	})
	if err == nil && len(dst) > 0 {
		return d.wrong()
	}
	return err
}

// Top waits.
func (d *Device) Top(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
	checkAsks(src, asks)
	for len(d.best) < len(asks) {
		d.best = append(d.best, backend.Best{})
	}
	at, row := d.out.begin(frameTop, 0), 0
	d.out.reads(&src)
	list(&d.out, &asks, (*coder).ask)
	err := d.ask(at, func(c *coder) {
		if row < len(asks) {
			b := &d.best[row]
			c.best(b)
			c.must(sound(b, &asks[row], src.Cols), "an answer")
		}
		row++
	})
	if err != nil {
		return nil, err
	}
	if row != len(asks) {
		return nil, d.wrong()
	}
	return d.best[:len(asks)], nil
}

// sound reports whether an answer is one to an ask: a node is not trusted to give one.
func sound(b *backend.Best, a *backend.Ask, cols int) bool {
	cols = cmp.Or(a.Cols, cols)
	last := int32(-1)
	for _, id := range b.IDs {
		if id <= last || int(id) >= cols {
			return false
		}
		last = id
	}
	return len(b.IDs) == len(b.Logits) && len(b.Also) == len(a.Also) && b.Drawn >= -1 && int(b.Drawn) < cols
}

// checkAsks panics unless asks are within their rows.
func checkAsks(src backend.Tensor, asks []backend.Ask) {
	backend.CheckTop(src, asks)
	for i := range asks {
		a := &asks[i]
		cols := cmp.Or(a.Cols, src.Cols)
		if cols < 0 || cols > src.Cols || a.K < 0 || len(a.Also) > 2*cols {
			refuse("Top of the highest %d and %d more in %d of %d columns", a.K, len(a.Also), a.Cols, src.Cols)
		}
		for _, id := range a.Also {
			if id < 0 || int(id) >= cols {
				refuse("Top of column %d of %d", id, cols)
			}
		}
		if a.Draw != nil {
			checkDraws([]backend.Draw{*a.Draw}, src.Cols)
		}
	}
}

func (c *coder) ask(a *backend.Ask) {
	c.counts(&a.Cols, &a.K)
	c.ints(&a.Also)
	c.bool(&a.Sum)
	draws := a.Draw != nil
	switch c.bool(&draws); {
	case !draws:
		a.Draw = nil
		return
	case c.reading:
		a.Draw = &backend.Draw{}
	}
	c.draw(a.Draw)
}

func (c *coder) best(b *backend.Best) {
	c.ints(&b.IDs)
	c.floats(&b.Logits)
	c.f32(&b.Low)
	c.floats(&b.Also)
	c.f32(&b.Sum)
	c.i32(&b.Drawn)
}

// Rehearse implements backend.Rehearser. A node whose device prepares nothing learns the operations of passes.
func (d *Device) Rehearse(f func() error) error {
	d.queued(d.out.begin(frameRehearse, 0))
	err := f()
	return errors.Join(err, d.ask(d.out.begin(frameRehearsed, 0), nil))
}

// stream is memory of the node to be read.
type stream struct {
	d     *Device
	bytes int
}

// NewStream implements backend.Streamer. The node reserves the memory for each reading.
func (d *Device) NewStream(bytes int) (backend.Stream, error) {
	s := stream{d, bytes}
	_, err := s.read()
	return s, err
}

func (s stream) Bytes() int { return s.bytes }
func (s stream) Close()     {}

// Read reads everything on the node; 0: it cannot anymore.
func (s stream) Read() time.Duration {
	n, _ := s.read() // the next call that waits reports it, too
	return n
}

func (s stream) read() (time.Duration, error) {
	n := int64(0)
	at := s.d.out.begin(frameStream, 0)
	s.d.out.size(&s.bytes)
	err := s.d.ask(at, func(c *coder) { c.i64(&n) })
	return time.Duration(n), err
}
