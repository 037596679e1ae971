package cuda

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
)

// transformation is a kernel.Input on the device.
type transformation struct {
	sum     [sha256.Size]byte // of the tables
	at      driver.Ptr
	bytes   int64
	param   fields // struct Turn of kernels/input.cu
	weights int    // that have it
}

// shareInput brings the transformation of w's input to the device, unless another weight has brought it.
func (b *Backend) shareInput(w *weight) error {
	if w.Input == nil {
		return nil
	}
	var data bytes.Buffer
	order := w.Input.Order()
	scales, places, turns, rounds := w.Input.Rotation()
	for _, list := range []any{order, scales, turns, places} {
		if err := binary.Write(&data, binary.LittleEndian, list); err != nil {
			return err
		}
	}
	w.Input = nil // the device has it
	sum := sha256.Sum256(data.Bytes())
	for _, t := range b.inputs {
		if t.sum == sum {
			t.weights++
			w.turn = t
			return nil
		}
	}
	t := &transformation{sum: sum, bytes: int64(data.Len()), weights: 1}
	var err error
	if t.at, err = b.memory.alloc(t.bytes); err != nil {
		return err
	}
	if err := b.send(t.at, data.Bytes()); err != nil {
		b.fail(b.memory.free(t.at))
		return err
	}
	t.param = fields{t.at, driver.Ptr(0), driver.Ptr(0), driver.Ptr(0), 0, w.Cols()}
	if order == nil {
		at := t.at + driver.Ptr(4*len(scales))
		t.param = fields{driver.Ptr(0), t.at, at, at + driver.Ptr(4*len(turns)), rounds, w.Cols()}
	}
	b.inputs = append(b.inputs, t)
	w.turn = t
	return nil
}

// unshareInput gives the transformation of w's input back if w is the last that has it.
func (b *Backend) unshareInput(w *weight) {
	if w.turn == nil {
		return
	}
	if w.turn.weights--; w.turn.weights > 0 {
		return
	}
	for i, t := range b.inputs {
		if t == w.turn {
			b.inputs = append(b.inputs[:i], b.inputs[i+1:]...)
			break
		}
	}
	b.fail(b.memory.free(w.turn.at))
}

// prepare is rows in the form that w multiplies. Known is the forms that others have wanted; another is added.
func (b *Backend) prepare(x input, rows, cols int, w *weight, known *[]input) input {
	if !w.Integer() && w.turn == nil {
		return x
	}
	for _, in := range *known {
		if in.turn == w.turn && in.rounding == w.wants() {
			return in
		}
	}
	in := x
	if w.turn != nil {
		in = b.transform(x, rows, rows, w, w.wants(), 0)
	} else {
		in.quantized = b.quantize(x, rows, cols, w.rounding())
	}
	*known = append(*known, in)
	return in
}

// wants is how rows become integers for w; nothing if it multiplies floats.
func (w *weight) wants() rounding {
	if !w.Integer() {
		return rounding{}
	}
	return w.rounding()
}

// transform is rows transformed for w, as integers if r says how. With slots, of which there are `space`, rows
// come from there and stay there.
func (b *Backend) transform(x input, rows, space int, w *weight, r rounding, slots driver.Ptr) input {
	cols := w.Cols()
	in := input{rows: cols}
	var c quantized // what the kernel rounds
	if r.group >= 32 && r.group <= maxCoded && !r.super {
		c = b.space(space, cols, r)
	} else {
		in.x = b.scratch(4 * space * cols)
	}
	if slots != 0 && rows > maxRows {
		panic("cuda: too many rows for experts")
	}
	const columns = 8 * 128 // of a block
	eachRows(rows, func(from, to int) {
		part := c
		if part.group > 0 {
			part.codes += driver.Ptr(from * part.stride)
			part.tails += driver.Ptr(8 * from)
		}
		b.launch("input.transform", grid{x: (cols + columns - 1) / columns, y: to - from, threads: 256},
			x.x+driver.Ptr(4*from*x.rows), x.rows, in.x+driver.Ptr(4*from*cols), cols, w.turn.param, part.param(), slots)
	})
	if in.quantized = c; r.group > c.group {
		in.quantized = b.space(space, cols, r)
		b.quantizeInto(in.quantized, in, slots, 0, 0, rows, cols)
	}
	in.turn = w.turn
	return in
}
