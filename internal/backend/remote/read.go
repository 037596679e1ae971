package remote

import (
	"cmp"
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Host waits.
func (d *Device) Host(src backend.Tensor) ([]float32, error) {
	d.tensor(src)
	if src.Type != dtype.F32 || src.Rows > 1 && src.Stride != src.Cols {
		return nil, fmt.Errorf("remote: host view of rows %d apart and %d long, of %v", src.Stride, src.Cols, src.Type)
	}
	n := src.Rows * src.Cols
	if cap(d.host) < n {
		d.host = make([]float32, n)
	}
	if err := d.readInto(bytesOf(d.host[:n]), src); err != nil {
		return nil, err
	}
	return d.host[:n:n], nil
}

// ReadBytes waits.
func (d *Device) ReadBytes(dst []byte, src backend.Tensor) error {
	d.tensor(src)
	if want := src.Rows * src.Cols * src.Type.Size(); len(dst) != want {
		return fmt.Errorf("remote: read of %d bytes from a tensor of %d", len(dst), want)
	}
	return d.readInto(dst, src)
}

func (d *Device) readInto(dst []byte, src backend.Tensor) error {
	at := d.out.begin(frameRead, 0)
	d.out.tensor(&src)
	err := d.ask(at, func(c *coder) {
		if len(c.buf) > len(dst) {
			c.fail()
			return
		}
		n := copy(dst, c.buf)
		dst, c.buf = dst[n:], nil
	})
	if err == nil && len(dst) > 0 {
		d.link.fail(errFrame)
		err = d.broken()
	}
	return err
}

// Top waits.
func (d *Device) Top(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
	d.tensor(src)
	checkAsks(src, asks)
	for len(d.best) < len(asks) {
		d.best = append(d.best, backend.Best{})
	}
	at := d.out.begin(frameTop, 0)
	d.out.tensor(&src)
	list(&d.out, &asks, d.out.ask)
	row := 0
	err := d.ask(at, func(c *coder) {
		if row == len(asks) {
			c.fail()
			return
		}
		b := &d.best[row]
		if c.best(b); c.err == nil && !sound(b, &asks[row], src.Cols) {
			c.fail()
		}
		row++
	})
	if err == nil && row < len(asks) {
		d.link.fail(errFrame)
		err = d.broken()
	}
	if err != nil {
		return nil, err
	}
	return d.best[:len(asks)], nil
}

// sound reports whether an answer is one to an ask: a node's is not trusted to be.
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
