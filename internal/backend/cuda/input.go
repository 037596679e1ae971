package cuda

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
)

// transformation is a kernel.Input on the device.
type transformation struct {
	sum     [sha256.Size]byte // of the tables
	at      driver.Ptr
	bytes   int64
	param   turnParam
	weights int // that have it
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
	if t.at, err = b.memory.Alloc(t.bytes); err != nil {
		return err
	}
	if err := b.send(t.at, data.Bytes()); err != nil {
		b.fail(b.memory.Free(t.at))
		return err
	}
	t.param = turnParam{order: t.at, cols: i32(w.Cols())}
	if order == nil {
		at := t.at + driver.Ptr(4*len(scales))
		t.param = turnParam{scales: t.at, turns: at, places: at + driver.Ptr(4*len(turns)), rounds: i32(rounds), cols: i32(w.Cols())}
	}
	b.inputs = append(b.inputs, t)
	w.turn = t
	return nil
}

// unshareInput frees the transformation of w's input if w is its last user.
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
	b.fail(b.memory.Free(w.turn.at))
}

// prepare is rows in the form for w. known is the existing forms; another is added.
func (b *Backend) prepare(x input, rows, cols int, w *weight, known *[]input) input {
	if !w.Integer() && w.turn == nil {
		return x
	}
	for i := range *known {
		if in := &(*known)[i]; in.turn == w.turn && in.rounding == w.wants() {
			b.halve(in, rows, w)
			return *in
		}
	}
	in := x
	if w.turn != nil {
		in = b.transform(x, rows, rows, 0, w)[0]
	} else {
		in.quantized = b.quantize(x, rows, cols, w.rounding())
	}
	b.halve(&in, rows, w)
	*known = append(*known, in)
	return in
}

// wants is the rounding of rows for w; zero if it multiplies floats.
func (w *weight) wants() rounding {
	if !w.Integer() {
		return rounding{}
	}
	return w.rounding()
}

// maxForms is how many forms of rows a kernel makes at once.
const maxForms = len(formsParam{}.form)

// prepareAll adds the forms of rows for products whose weights transform them, in as few launches as possible.
func (b *Backend) prepareAll(x backend.Tensor, products []backend.Product, known *[]input) {
	var list []*weight
	for i := range products {
		p := &products[i]
		if p.Each || x.Rows == 0 || p.Only != nil && len(p.Only) == 0 {
			continue
		}
		w := b.weight(p.W)
		if w.turn == nil || x.Cols != w.Cols() {
			continue
		}
		same := func(turn *transformation, r rounding) bool { return turn == w.turn && r == w.wants() }
		if !slices.ContainsFunc(list, func(o *weight) bool { return same(o.turn, o.wants()) }) &&
			!slices.ContainsFunc(*known, func(in input) bool { return same(in.turn, in.rounding) }) {
			list = append(list, w)
		}
	}
	for part := range slices.Chunk(list, maxForms) {
		*known = append(*known, b.transform(input{x: b.at(x), rows: x.Stride}, x.Rows, x.Rows, 0, part...)...)
	}
}

// transform is rows transformed for each of a few weights, as integers if they need them.
func (b *Backend) transform(x input, rows, space int, slots driver.Ptr, weights ...*weight) []input {
	var list []input
	for _, w := range weights {
		list = append(list, b.form(space, w, w.wants()))
	}
	b.launchForms(x, rows, slots, list)
	for i, w := range weights {
		in := &list[i]
		if r := w.wants(); r.group > in.group {
			in.quantized = b.space(space, w.Cols(), r)
			in.turn = w.turn
			b.quantizeInto(in.quantized, *in, slots, 0, 0, rows, w.Cols())
		}
	}
	return list
}

// turned is rows transformed for a weight as floats.
func (b *Backend) turned(x input, rows int, w *weight) input {
	list := []input{b.form(rows, w, rounding{})}
	b.launchForms(x, rows, 0, list)
	return list[0]
}

// form is memory for rows as transform writes them: integers, if that kernel can round them so, or floats.
func (b *Backend) form(rows int, w *weight, r rounding) input {
	in := input{rows: w.Cols()}
	if r.group >= 32 && r.group <= maxCoded && !r.super {
		in.quantized = b.space(rows, w.Cols(), r)
	} else {
		in.x = b.scratch(4 * rows * w.Cols())
	}
	in.turn = w.turn
	return in
}

// launchForms fills in forms of rows. With slots, rows come from there and stay there.
func (b *Backend) launchForms(x input, rows int, slots driver.Ptr, list []input) {
	if slots != 0 && rows > maxRows {
		panic("cuda: too many rows for experts")
	}
	const columns = 8 * 128 // of a block
	cols := list[0].rows
	eachRows(rows, func(from, to int) {
		var forms formsParam
		for i, in := range list {
			if in.group > 0 {
				in.codes += driver.Ptr(from * in.stride)
				in.tails += driver.Ptr(8 * from)
			} else {
				in.x += driver.Ptr(4 * from * cols)
			}
			forms.form[i] = formParam{turn: in.turn.param, y: in.x, codes: in.param()}
		}
		name := "input.transform"
		if to-from > maxRelay {
			name += "_many"
		}
		b.launch(name, grid{x: (cols + columns - 1) / columns, y: to - from, z: len(list), threads: 256},
			x.x+driver.Ptr(4*from*x.rows), x.rows, slots, raw(forms))
	})
}
