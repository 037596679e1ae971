package remote

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// loading is a weight whose matrices are being received.
type loading struct {
	number  uint64
	compute backend.Compute
	stack   []dtype.Matrix
	missing map[int]*incoming
	bytes   int64 // of the matrices that are received
}

// load looks for the matrices of a weight. The answer lists those that are not here; the weight is loaded if there are
// none, and built once they were sent otherwise.
func (x *session) load(number uint64, c *coder) error {
	var k backend.Compute
	var heads []matrixHead
	var digests []Digest
	if c.load(&k, &heads, &digests); c.err != nil || k > backend.Float32 || len(heads) == 0 || len(heads) > maxStack || len(heads) != len(digests) {
		return fatalf("%w: a weight of %d matrices with %d digests", errFrame, len(heads), len(digests))
	}
	if number == 0 || x.weights[number] != nil || len(x.weights) >= maxHandles {
		return fatalf("%w: weight %d", errFrame, number)
	}
	x.loading = nil
	l := &loading{number: number, compute: k, missing: map[int]*incoming{}}
	total := int64(0)
	for i := range heads {
		m, err := heads[i].form()
		if err != nil {
			return err
		}
		total += hostBytes(&m)
		l.stack = append(l.stack, m)
	}
	if free := x.budget - x.used.Load(); total > free {
		return fmt.Errorf("a weight of %d bytes, %d of the %d that a leader may use here are free", total, free, x.budget)
	}
	missing := []int32{}
	for i, d := range digests {
		m, ok, err := x.find(d, &l.stack[i])
		if err != nil {
			return err
		}
		if ok && headOf(&m) == heads[i] {
			l.stack[i] = m
			x.found.Add(m.Bytes())
			continue
		}
		missing = append(missing, int32(i))
		l.missing[i] = newIncoming(l.stack[i], d)
		l.bytes += int64(l.missing[i].missing)
	}
	x.loading = l
	x.fieldsPart(number, func(c *coder) { c.ints(&missing) })
	if len(missing) == 0 {
		return x.build(number)
	}
	return nil
}

// find looks for a matrix on this machine.
func (x *session) find(d Digest, form *dtype.Matrix) (m dtype.Matrix, ok bool, err error) {
	if x.weightsOf == nil {
		return m, false, nil
	}
	return x.weightsOf.Find(d, form)
}

// data adds bytes of a matrix that is received.
func (x *session) data(number uint64, c *coder) error {
	if x.loading == nil { // it was given up
		return nil
	}
	in := x.loading.missing[int(number)]
	if in == nil || !in.add(c.take(len(c.buf))) {
		return fatalf("%w: bytes of matrix %d", errFrame, number)
	}
	return nil
}

// build loads a weight whose matrices are all here.
func (x *session) build(number uint64) error {
	l := x.loading
	x.loading = nil
	if l == nil || l.number != number {
		return fmt.Errorf("weight %d was not begun", number)
	}
	for i, in := range l.missing {
		m, err := in.done()
		if err != nil {
			return err
		}
		l.stack[i] = *m
		x.received.Add(m.Bytes())
		if x.weightsOf != nil {
			x.weightsOf.Keep(in.digest, m)
		}
	}
	w, err := x.b.Load(l.compute, l.stack...)
	if err != nil {
		return err
	}
	bytes := max(w.Bytes(), handleBytes)
	if !x.charge(bytes) {
		x.b.Unload(w)
		return fmt.Errorf("a weight takes %d bytes, %d of the %d that a leader may use here are free", bytes, x.budget-x.used.Load(), x.budget)
	}
	x.weights[number] = &handle{w: w, bytes: bytes}
	x.fieldsPart(number, func(c *coder) { c.shape(w.Rows(), w.Cols(), w.Count(), w.Bytes()) })
	return nil
}

// shape writes the sizes of a weight.
func (c *coder) shape(rows, cols, count int, bytes int64) {
	size := int(bytes)
	for _, n := range []*int{&rows, &cols, &count, &size} {
		c.size(n)
	}
}
