package remote

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Digest names a matrix by its format, its shape and its bytes.
type Digest [sha256.Size]byte

// Weights finds matrices by their digests.
type Weights interface {
	// Find returns the matrix with a digest, whose memory stays valid as long as the Weights. The caller does not compare
	// its bytes again. form is the matrix without its bytes. An error ends the load of the weight: a file is damaged.
	Find(d Digest, form *dtype.Matrix) (m dtype.Matrix, ok bool, err error)
	// Keep is told a matrix that the other end has sent. Its memory is only valid during the call.
	Keep(d Digest, m *dtype.Matrix)
}

// findIn is the matrix with a digest and a form.
func findIn(w Weights, d Digest, form *dtype.Matrix) (m dtype.Matrix, ok bool, err error) {
	if w != nil {
		m, ok, err = w.Find(d, form)
	}
	return m, ok && err == nil && formOf(&m) == formOf(form), err
}

// form is a matrix without its bytes, encoded.
type form string

func formOf(m *dtype.Matrix) form {
	var c coder
	x := *m
	c.matrix(&x)
	return form(c.buf)
}

// matrix lists the fields of a matrix but its bytes. One that is read has no bytes.
func (c *coder) matrix(m *dtype.Matrix) {
	zeros, order, rounds := m.Zeros != nil, m.Input != nil, 0
	if order && m.Input.Rotation != nil {
		order, rounds = false, m.Input.Rotation.Rounds
	}
	c.counts(&m.Rows, &m.Cols)
	c.u8((*uint8)(&m.Format))
	c.dtype(&m.Type)
	c.dtype(&m.ScaleType)
	c.counts(&m.Bits, &m.Group, &rounds)
	c.bool(&zeros)
	c.bool(&order)
	c.f32(&m.Global)
	if !c.reading {
		return
	}
	if zeros {
		m.Zeros = []byte{}
	}
	if order || rounds > 0 {
		m.Input = &dtype.Input{}
	}
	if rounds > 0 {
		m.Input.Rotation = &dtype.Rotation{Rounds: rounds}
	}
	c.must(m.Cols > 0 && m.Cols <= maxDim && rounds <= 64 && (!order || rounds == 0), "a matrix")
}

// matrix is a matrix of the form. An error says that there is no such format.
func (f form) matrix() (m dtype.Matrix, err error) {
	c := coder{buf: []byte(f), reading: true}
	c.matrix(&m)
	if c.err != nil || len(c.buf) > 0 {
		return m, cmp.Or(c.err, errFrame)
	}
	return m, m.ValidateFormat()
}

// hostBytes is the size of a matrix of a form on the host, without tables of its input.
func hostBytes(m *dtype.Matrix) int64 {
	n := m.RowBytes() + m.ScaleRowBytes() + m.ZeroRowBytes()
	if m.Format == dtype.Affine {
		n += m.ScaleRowBytes()
	}
	return int64(m.Rows) * int64(n)
}

// parts are the bytes of a matrix, in the order in which they cross. A form is given memory for them. What comes from the other end or a
// file was validated: parts panics if a list has another length.
func parts(m *dtype.Matrix) [][]byte {
	list := [][]byte{part(&m.Data, m.Rows*m.RowBytes()), part(&m.Scales, m.Rows*m.ScaleRowBytes())}
	if m.Format == dtype.Affine {
		list = append(list, part(&m.Biases, len(m.Scales)))
	}
	if m.Zeros != nil {
		list = append(list, part(&m.Zeros, m.Rows*m.ZeroRowBytes()))
	}
	switch in := m.Input; {
	case in == nil:
	case in.Rotation == nil:
		list = append(list, part(&in.Order, m.Cols))
	default:
		r, n := in.Rotation, in.Rotation.Rounds*m.Cols
		list = append(list, part(&r.Scales, m.Cols), part(&r.Pairs, n), part(&r.Cos, n/2), part(&r.Sin, n/2))
	}
	return list
}

// part is a list of n numbers as bytes. There is none in a form.
func part[T byte | float32 | int32](x *[]T, n int) []byte {
	if len(*x) == 0 {
		*x = make([]T, n)
	} else if len(*x) != n {
		refuse("a part of a matrix with %d numbers, want %d", len(*x), n)
	}
	return bytesOf(*x)
}

// DigestOf is the digest of a matrix.
func DigestOf(m *dtype.Matrix) Digest {
	h := sha256.New()
	_ = WriteMatrix(h, m) // never fails
	return Digest(h.Sum(nil))
}

// WriteMatrix writes a matrix so that ReadMatrix reads it.
func WriteMatrix(w io.Writer, m *dtype.Matrix) error {
	for _, part := range append([][]byte{[]byte(formOf(m))}, parts(m)...) {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// formBytes is the length of a form.
var formBytes = len(formOf(&dtype.Matrix{Cols: 1}))

// ReadMatrix reads what WriteMatrix wrote: size bytes.
func ReadMatrix(r io.Reader, size int64) (m dtype.Matrix, err error) {
	head := make([]byte, formBytes)
	if _, err := io.ReadFull(r, head); err != nil {
		return m, err
	}
	if m, err = form(head).matrix(); err != nil {
		return m, err
	}
	if hostBytes(&m)+m.InputBytes() > size {
		return m, io.ErrUnexpectedEOF
	}
	size -= int64(formBytes)
	for _, part := range parts(&m) {
		if _, err := io.ReadFull(r, part); err != nil {
			return m, err
		}
		size -= int64(len(part))
	}
	if size != 0 {
		return m, errors.New("there is more than a matrix in it")
	}
	return m, m.Validate()
}

// weight is a weight of the node.
type weight struct {
	handle
	own        *Device
	compute    backend.Compute
	rows, cols int
	forms      []form
	digests    []Digest
}

func (w *weight) Rows() int    { return w.rows }
func (w *weight) Cols() int    { return w.cols }
func (w *weight) Count() int   { return len(w.forms) }
func (w *weight) Bytes() int64 { return w.bytes }

// load lists the fields of frameLoad.
func (c *coder) load(k *backend.Compute, forms *[]form, digests *[]Digest) {
	c.u8((*uint8)(k))
	list(c, forms, func(c *coder, f *form) {
		b := make([]byte, formBytes)
		copy(b, *f)
		c.bytes(b)
		*f = form(b)
	})
	list(c, digests, func(c *coder, d *Digest) { c.bytes(d[:]) })
}

// Load names matrices by their digests, and sends those that the node has not. It waits.
func (d *Device) Load(k backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	if len(stack) == 0 || len(stack) > maxStack {
		return nil, fmt.Errorf("remote: a weight of %d matrices", len(stack))
	}
	w := &weight{handle: handle{number: d.next()}, own: d, compute: k, rows: stack[0].Rows, cols: stack[0].Cols}
	for i := range stack {
		if err := stack[i].Validate(); err != nil {
			return nil, err
		}
		w.forms = append(w.forms, formOf(&stack[i]))
		w.digests = append(w.digests, DigestOf(&stack[i]))
	}
	if err := d.load(w, func(i int) (*dtype.Matrix, error) { return &stack[i], nil }); err != nil {
		return nil, err
	}
	d.weights = append(d.weights, w)
	d.used.Add(w.cost())
	return w, nil
}

// load has the node load a weight, with the matrices that it lacks.
func (d *Device) load(w *weight, matrix func(i int) (*dtype.Matrix, error)) error {
	at := d.out.begin(frameLoad, w.number)
	d.out.load(&w.compute, &w.forms, &w.digests)
	var missing []int32
	if err := d.ask(at, func(c *coder) { c.ints(&missing) }); err != nil {
		return err
	}
	for _, i := range missing {
		if i < 0 || int(i) >= len(w.forms) {
			return d.wrong()
		}
		m, err := matrix(int(i))
		if err != nil {
			return err
		}
		for _, data := range parts(m) {
			for piece := range slices.Chunk(data, pieceBytes) {
				d.queuedWith(d.out.begin(frameData, uint64(i)), piece)
			}
		}
	}
	return d.ask(d.out.begin(frameBuild, w.number), func(c *coder) { c.i64(&w.bytes) })
}

// Unload waits for nothing.
func (d *Device) Unload(w backend.Weight) {
	x := d.weightOf(w)
	i := slices.Index(d.weights, x)
	if i < 0 {
		return
	}
	d.weights = slices.Delete(d.weights, i, i+1)
	d.release(&x.handle)
}

// weightOf checks that a weight is this device's.
func (d *Device) weightOf(w backend.Weight) *weight {
	x, ok := w.(*weight)
	if !ok || x.own != d {
		panic("remote: weight of another device")
	}
	return x
}

// WeightBytes implements backend.Sizer.
func (d *Device) WeightBytes(m *dtype.Matrix) int64 {
	f := formOf(m)
	if n, ok := d.sizes[f]; ok {
		return n
	}
	n := int64(0)
	at := d.out.begin(frameSize, 0)
	d.out.bytes([]byte(f))
	if err := d.ask(at, func(c *coder) { c.i64(&n) }); err != nil {
		return hostBytes(m)
	}
	d.sizes[f] = n
	return n
}

// loading is a weight whose matrices the node receives; the zero value is none.
type loading struct {
	number  uint64
	bytes   int64 // of the budget, until it is built
	compute backend.Compute
	stack   []dtype.Matrix
	missing map[uint64]*incoming
}

// incoming is a matrix whose bytes are received.
type incoming struct {
	digest Digest
	left   [][]byte // parts of the matrix, of which the first bytes are missing
}

// add adds bytes. It reports false if there are more than are missing.
func (in *incoming) add(data []byte) bool {
	for len(data) > 0 && len(in.left) > 0 {
		n := copy(in.left[0], data)
		data = data[n:]
		if in.left[0] = in.left[0][n:]; len(in.left[0]) == 0 {
			in.left = in.left[1:]
		}
	}
	return len(data) == 0
}

// load looks for the matrices of a weight, and answers which of them the leader is to send before frameBuild.
func (x *session) load(number uint64, c *coder) error {
	l := loading{number: number, missing: map[uint64]*incoming{}}
	var forms []form
	var digests []Digest
	c.load(&l.compute, &forms, &digests)
	if c.err != nil || l.compute > backend.Float32 || len(forms) == 0 || len(forms) > maxStack || len(forms) != len(digests) {
		return fatalf("%w: a weight of %d matrices with %d digests", errFrame, len(forms), len(digests))
	}
	x.expect(loading{}) // it was given up
	for _, f := range forms {
		m, err := f.matrix()
		if err != nil {
			return err
		}
		if l.bytes += max(hostBytes(&m)+m.InputBytes(), x.weightBytes(&m)); l.bytes > x.budget-x.used.Load() {
			return x.full(l.bytes)
		}
		l.stack = append(l.stack, m)
	}
	var missing []int32
	for i, d := range digests {
		m, ok, err := findIn(x.weights, d, &l.stack[i])
		if err != nil {
			return err
		}
		if ok {
			l.stack[i] = m
			x.found.Add(m.Bytes())
			continue
		}
		missing = append(missing, int32(i))
		l.missing[uint64(i)] = &incoming{digest: d, left: parts(&l.stack[i])}
	}
	x.expect(l)
	return x.part(number, nil, func(c *coder) { c.ints(&missing) })
}

// expect makes l the weight that is received, in place of another one. The zero value is none.
func (x *session) expect(l loading) {
	x.used.Add(l.bytes - x.loading.bytes)
	x.loading = l
}

// data adds bytes of a matrix that is received.
func (x *session) data(number uint64, c *coder) error {
	if x.loading.number == 0 { // it was given up
		return nil
	}
	if in := x.loading.missing[number]; in == nil || !in.add(c.take(len(c.buf))) {
		return fatalf("%w: bytes of matrix %d", errFrame, number)
	}
	return nil
}

// build loads a weight whose matrices are all here.
func (x *session) build(number uint64) error {
	l := x.loading
	if x.expect(loading{}); number == 0 || l.number != number {
		return fmt.Errorf("weight %d was not begun", number)
	}
	for i, in := range l.missing {
		m := &l.stack[i]
		if err := m.Validate(); err != nil {
			return err
		}
		if got := DigestOf(m); got != in.digest {
			return fmt.Errorf("a matrix has digest %x and not %x: its bytes were changed on the way", got[:8], in.digest[:8])
		}
		x.received.Add(m.Bytes())
		if x.weights != nil {
			x.weights.Keep(in.digest, m)
		}
	}
	w, err := x.b.Load(l.compute, l.stack...)
	if err != nil {
		return err
	}
	h := &handle{number: number, w: w, bytes: w.Bytes()}
	if err := x.hold(h); err != nil {
		x.b.Unload(w)
		return err
	}
	return x.part(number, nil, func(c *coder) { c.i64(&h.bytes) })
}
