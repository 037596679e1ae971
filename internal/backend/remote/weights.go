package remote

import (
	"crypto/sha256"
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Digest names a matrix by its format, its shape and its bytes.
type Digest [sha256.Size]byte

// Weights finds matrices by their digests.
type Weights interface {
	// Find returns the matrix with a digest, whose memory stays valid as long as the Weights. What it returns is not
	// hashed again. form is the matrix without its bytes. An error ends the load of the weight: a file is damaged.
	Find(d Digest, form *dtype.Matrix) (m dtype.Matrix, ok bool, err error)
	// Keep is told a matrix that the other end has sent. Its memory is only valid during the call.
	Keep(d Digest, m *dtype.Matrix)
}

// DigestOf is the digest of a matrix.
func DigestOf(m *dtype.Matrix) Digest {
	var c coder
	c.matrix(headOf(m))
	h := sha256.New()
	_, _ = h.Write(c.buf) // never fails, as the others
	for _, part := range parts(m) {
		_, _ = h.Write(part)
	}
	return Digest(h.Sum(nil))
}

// matrixHead is a matrix without its bytes.
type matrixHead struct {
	rows, cols   int
	format       dtype.Format
	kind, scales dtype.Type
	bits, group  int
	zeros        bool
	global       float32
	input        uint8 // one of those below
	rounds       int
}

// Kinds of transformations of inputs.
const (
	inputNone uint8 = iota
	inputOrder
	inputRotation
)

func headOf(m *dtype.Matrix) matrixHead {
	h := matrixHead{
		rows: m.Rows, cols: m.Cols, format: m.Format, kind: m.Type, scales: m.ScaleType, bits: m.Bits, group: m.Group,
		zeros: m.Zeros != nil, global: m.Global,
	}
	switch {
	case m.Input == nil:
	case m.Input.Rotation != nil:
		h.input, h.rounds = inputRotation, m.Input.Rotation.Rounds
	default:
		h.input = inputOrder
	}
	return h
}

// matrix lists the fields of a matrix without its bytes.
func (c *coder) matrix(h matrixHead) matrixHead {
	format := uint8(h.format)
	c.size(&h.rows)
	c.size(&h.cols)
	c.u8(&format)
	c.kind(&h.kind)
	c.kind(&h.scales)
	c.size(&h.bits)
	c.size(&h.group)
	c.bool(&h.zeros)
	c.f32(&h.global)
	c.u8(&h.input)
	c.size(&h.rounds)
	h.format = dtype.Format(format)
	return h
}

// form is the matrix without its bytes. An error says that there is no such format.
func (h *matrixHead) form() (dtype.Matrix, error) {
	m := dtype.Matrix{
		Rows: h.rows, Cols: h.cols, Format: h.format, Type: h.kind, Bits: h.bits, Group: h.group, ScaleType: h.scales, Global: h.global,
	}
	if h.rows < 0 || h.rows > maxDim<<4 || h.cols < 1 || h.cols > maxDim || h.group < 0 || h.group > maxDim || h.rounds < 0 || h.rounds > 64 || h.input > inputRotation {
		return m, fmt.Errorf("a matrix of %d×%d in groups of %d with input %d of %d rounds", h.rows, h.cols, h.group, h.input, h.rounds)
	}
	if h.zeros {
		m.Zeros = []byte{}
	}
	switch h.input {
	case inputOrder:
		m.Input = &dtype.Input{}
	case inputRotation:
		m.Input = &dtype.Input{Rotation: &dtype.Rotation{Rounds: h.rounds}}
	}
	return m, m.ValidateFormat()
}

// sizes are the bytes of the parts of a matrix of that form.
func sizes(m *dtype.Matrix) [9]int {
	s := [9]int{m.Rows * m.RowBytes(), m.Rows * m.ScaleRowBytes(), 0, m.Rows * m.ZeroRowBytes()}
	if m.Format == dtype.Affine {
		s[2] = s[1]
	}
	switch {
	case m.Input == nil:
	case m.Input.Rotation != nil:
		n := m.Input.Rotation.Rounds
		s[5], s[6], s[7], s[8] = 4*m.Cols, n*m.Cols, 2*n*m.Cols, 2*n*m.Cols
	default:
		s[4] = 4 * m.Cols
	}
	return s
}

// hostBytes is the size of a matrix of that form on the host, without tables of its input.
func hostBytes(m *dtype.Matrix) int64 {
	s := sizes(m)
	return int64(s[0] + s[1] + s[2] + s[3])
}

// parts are the bytes of a matrix, in the order of sizes.
func parts(m *dtype.Matrix) [9][]byte {
	p := [9][]byte{m.Data, m.Scales, m.Biases, m.Zeros}
	if m.Format != dtype.Affine {
		p[2] = nil
	}
	switch {
	case m.Input == nil:
	case m.Input.Rotation != nil:
		r := m.Input.Rotation
		p[5], p[6], p[7], p[8] = bytesOf(r.Scales), r.Pairs, bytesOf(r.Cos), bytesOf(r.Sin)
	default:
		p[4] = bytesOf(m.Input.Order)
	}
	return p
}

// incoming is a matrix whose bytes are being received.
type incoming struct {
	digest  Digest
	m       dtype.Matrix
	parts   [9][]byte
	missing int // bytes
	part    int // that the next bytes belong to
}

// newIncoming takes memory for a matrix of that form.
func newIncoming(m dtype.Matrix, d Digest) *incoming {
	in := &incoming{digest: d, m: m}
	for i, n := range sizes(&m) {
		in.missing += n
		if in.parts[i] = make([]byte, 0, n); n > 0 && i >= 4 {
			in.parts[i] = bytesOf(make([]float32, (n+3)/4))[:0:n] // aligned
		}
	}
	return in
}

// add adds bytes. It reports false if there are more than are missing.
func (in *incoming) add(data []byte) bool {
	if len(data) > in.missing {
		return false
	}
	in.missing -= len(data)
	for len(data) > 0 {
		p := &in.parts[in.part]
		n := min(len(data), cap(*p)-len(*p))
		if n == 0 {
			in.part++
			continue
		}
		*p, data = append(*p, data[:n]...), data[n:]
	}
	return true
}

// done is the matrix once all bytes are there. An error says that they are others than the digest names.
func (in *incoming) done() (*dtype.Matrix, error) {
	if in.missing > 0 {
		return nil, fmt.Errorf("%d bytes of a matrix are missing", in.missing)
	}
	m, p := &in.m, &in.parts
	m.Data = p[0]
	if len(p[1]) > 0 {
		m.Scales = p[1]
	}
	if m.Format == dtype.Affine {
		m.Biases = p[2]
	}
	if m.Zeros != nil {
		m.Zeros = p[3]
	}
	switch {
	case m.Input == nil:
	case m.Input.Rotation != nil:
		r := m.Input.Rotation
		r.Scales, r.Pairs, r.Cos, r.Sin = numbersOf[float32](p[5]), p[6], numbersOf[float32](p[7]), numbersOf[float32](p[8])
	default:
		m.Input.Order = numbersOf[int32](p[4])
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if got := DigestOf(m); got != in.digest {
		return nil, fmt.Errorf("a matrix has digest %x and not %x: its bytes were changed on the way", got[:8], in.digest[:8])
	}
	return m, nil
}

// load lists the fields of frameLoad.
func (c *coder) load(k *backend.Compute, heads *[]matrixHead, digests *[]Digest) {
	compute := uint8(*k)
	c.u8(&compute)
	*k = backend.Compute(compute)
	list(c, heads, func(h *matrixHead) { *h = c.matrix(*h) })
	list(c, digests, func(d *Digest) {
		if !c.reading {
			c.buf = append(c.buf, d[:]...)
		} else if b := c.take(len(d)); b != nil {
			*d = Digest(b)
		}
	})
}
