package remote

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// protocol is the version of the frames, their fields and their order.
const protocol = 5

// A frame is the length of all that follows, a kind, a number that depends on the kind, and fields.
const (
	headerBytes = 4 + 1 + 8
	pieceBytes  = 4 << 20               // memory and weights cross in pieces of that size at most
	maxFrame    = 4*pieceBytes + 64<<10 // bytes behind the length
	maxHello    = 4 << 10               // of a peer that is not known yet
	maxText     = 2 << 10               // bytes of an error, a name or a version
	maxSize     = 1 << 40               // of a number that says how many
	maxDim      = 1 << 24               // of dimensions, so that products of them do not overflow
)

// Kinds of frames.
const (
	// Of a leader, without an answer.
	frameHello    uint8 = iota + 1
	framePing           // number of the ping
	frameAlloc          // number of the memory
	frameFree           // number of memory or of a weight
	frameWrite          // bytes of memory
	frameTable          // number of a sequence's state
	frameDrop           // likewise
	frameRecord         // number of a recording, or 0: operations that are computed once
	framePass           // number of a recording
	frameForget         // likewise
	frameData           // number of a matrix that the node has asked for, and bytes of it
	frameRehearse       // passes are prepared and not computed, until frameRehearsed

	// Of a leader, with an answer.
	frameRead // bytes of memory
	frameTop
	frameLoad  // number of the weight
	frameBuild // likewise, once its data was sent
	frameSize
	frameStream
	frameRehearsed
	frameSync
	frameClose

	// Of a node.
	frameWelcome
	framePong
	framePart // of an answer
	frameDone // the answer is complete
	frameFail // an error of the call or of what was queued before it, in place of the rest of the answer
)

var errFrame = errors.New("a frame is not as the protocol has it")

var le = binary.LittleEndian

// coder writes fields to a frame or reads them from one: one function lists the fields of a frame or struct for both
// ends. Fields that cannot be read are zero, and err says so.
type coder struct {
	buf     []byte // what was written, or what is left to read
	reading bool
	err     error
	dev     *Device  // while writing: whose memory and weights are named
	at      *session // while reading: likewise
	uses    uses     // collects the memory and weights that are named; nil: nothing does

	// of operations
	pass  backend.Pass // that they are of, or that has the lists of one outside of a pass
	needs needs
}

func (c *coder) fail() {
	if c.err == nil {
		c.err = errFrame
	}
	c.buf = nil
}

// must refuses operands: of the other end by an error, our own by a panic.
func (c *coder) must(ok bool, what string) {
	switch {
	case ok:
	case c.reading:
		c.fail()
	default:
		refuse("%s", what)
	}
}

// take is the next n bytes to read; nil if there are fewer.
func (c *coder) take(n int) []byte {
	if n < 0 || len(c.buf) < n {
		c.fail()
		return nil
	}
	b := c.buf[:n:n]
	c.buf = c.buf[n:]
	return b
}

// word is a number of n bytes.
func (c *coder) word(x uint64, n int) uint64 {
	var b [8]byte
	if !c.reading {
		le.PutUint64(b[:], x)
		c.buf = append(c.buf, b[:n]...)
		return x
	}
	copy(b[:], c.take(n))
	return le.Uint64(b[:])
}

func (c *coder) u8(x *uint8)   { *x = uint8(c.word(uint64(*x), 1)) }
func (c *coder) i32(x *int32)  { *x = int32(c.word(uint64(*x), 4)) }
func (c *coder) u64(x *uint64) { *x = c.word(*x, 8) }
func (c *coder) f32(x *float32) {
	*x = math.Float32frombits(uint32(c.word(uint64(math.Float32bits(*x)), 4)))
}
func (c *coder) f64(x *float64) { *x = math.Float64frombits(c.word(math.Float64bits(*x), 8)) }

func (c *coder) bool(x *bool) {
	n := uint8(0)
	if *x {
		n = 1
	}
	c.u8(&n)
	*x = n != 0
}

// size is a number of things, or an offset.
func (c *coder) size(x *int) {
	if *x = int(c.word(uint64(*x), 8)); *x < 0 || *x > maxSize {
		c.must(false, "a size or offset that is negative or too large")
		*x = 0
	}
}

// i64 is a number of bytes or of nanoseconds.
func (c *coder) i64(x *int64) {
	n := int(*x)
	c.size(&n)
	*x = int64(n)
}

// dims are dimensions of an operation, from 1 on; counts may be 0.
func (c *coder) dims(list ...*int) {
	c.counts(list...)
	for _, x := range list {
		c.must(*x > 0, "a dimension of 0")
	}
}

func (c *coder) counts(list ...*int) {
	for _, x := range list {
		c.size(x)
		c.must(*x <= backend.MaxWindow, "a dimension that is too large")
	}
}

func (c *coder) dtype(x *dtype.Type) {
	if c.u8((*uint8)(x)); *x > dtype.Bool {
		c.fail()
		*x = dtype.Invalid
	}
}

// bytes is a list of known length.
func (c *coder) bytes(x []byte) {
	if !c.reading {
		c.buf = append(c.buf, x...)
	} else {
		copy(x, c.take(len(x)))
	}
}

// text is a short text. A longer one is cut.
func (c *coder) text(x *string) {
	n := min(len(*x), maxText)
	c.size(&n)
	if !c.reading {
		c.buf = append(c.buf, (*x)[:n]...)
	} else if n > maxText {
		c.fail()
	} else {
		*x = string(c.take(n))
	}
}

// list is a list of structs of at least one byte each, nil or not. One that is read reuses the memory of x.
func list[T any](c *coder, x *[]T, fields func(*coder, *T)) {
	n := int32(len(*x))
	if *x == nil {
		n = -1
	}
	if c.i32(&n); !c.reading {
		for i := range *x {
			fields(c, &(*x)[i])
		}
		return
	}
	if n < 0 {
		*x = nil
		return
	}
	if *x = (*x)[:0]; *x == nil {
		*x = []T{}
	}
	for i := 0; i < int(n) && c.err == nil; i++ {
		if i == cap(*x) {
			var one T
			*x = append(*x, one)
		}
		*x = (*x)[:i+1]
		fields(c, &(*x)[i])
	}
}

func (c *coder) ints(x *[]int32)     { list(c, x, (*coder).i32) }
func (c *coder) floats(x *[]float32) { list(c, x, (*coder).f32) }

// tensor is a view of memory, which is named by its number, or none.
func (c *coder) tensor(t *backend.Tensor) {
	var n uint64
	if !c.reading && t.Mem != nil {
		m := c.dev.memoryOf(*t)
		c.uses.add(&m.handle)
		n = m.number
	}
	c.u64(&n)
	c.dtype(&t.Type)
	c.size(&t.Rows)
	c.size(&t.Cols)
	c.size(&t.Stride)
	c.size(&t.Offset)
	if c.reading {
		c.at.resolve(c, t, n)
	}
}

// may lists tensors of float32 numbers that may be absent; reads those that are there, and writes those that an
// operation changes.
func (c *coder) may(list ...*backend.Tensor) {
	for _, t := range list {
		c.tensor(t)
		c.must(*t == backend.Tensor{} || t.Mem != nil && t.Type == dtype.F32, "a tensor without memory, or of another type than F32")
	}
}

func (c *coder) reads(list ...*backend.Tensor) {
	c.may(list...)
	for _, t := range list {
		c.must(t.Mem != nil, "no tensor")
	}
}

func (c *coder) writes(list ...*backend.Tensor) {
	c.reads(list...)
	for _, t := range list {
		c.changes(t)
	}
}

// changes notes on the leader that something else than Write changes memory.
func (c *coder) changes(t *backend.Tensor) {
	if m, ok := t.Mem.(*memory); ok && !c.reading {
		m.change()
	}
}

// mayWeights lists weights by their numbers, 0 for none; weights lists those that are there.
func (c *coder) mayWeights(list ...*backend.Weight) {
	for _, w := range list {
		var n uint64
		if !c.reading && *w != nil {
			x := c.dev.weightOf(*w)
			c.uses.add(&x.handle)
			n = x.number
		}
		if c.u64(&n); c.reading {
			*w = c.at.weightOf(c, n)
		}
	}
}

func (c *coder) weights(list ...*backend.Weight) {
	c.mayWeights(list...)
	for _, w := range list {
		c.must(*w != nil, "no weight")
	}
}

// begin begins a frame at the end of a buffer and returns where; finish completes it.
func (c *coder) begin(kind uint8, number uint64) (at int) {
	at = len(c.buf)
	c.buf = append(c.buf, 0, 0, 0, 0, kind)
	c.buf = le.AppendUint64(c.buf, number)
	return at
}

// finish completes a frame that more bytes may follow.
func (c *coder) finish(at, more int) {
	le.PutUint32(c.buf[at:], uint32(len(c.buf)-at-4+more))
}

// framed is a frame with fields.
func framed(kind uint8, number uint64, fields func(*coder)) []byte {
	var c coder
	at := c.begin(kind, number)
	fields(&c)
	c.finish(at, 0)
	return c.buf
}

// frames reads frames.
type frames struct {
	r    *bufio.Reader
	most int    // bytes of a frame
	body []byte // of the last one
	head [headerBytes]byte
}

func newFrames(r io.Reader, most int) frames {
	return frames{r: bufio.NewReaderSize(r, 64<<10), most: most}
}

// next is the next frame. Its body is valid until the next call. Memory is taken as bytes come, not as a length claims.
func (f *frames) next() (kind uint8, number uint64, body []byte, err error) {
	if _, err := io.ReadFull(f.r, f.head[:]); err != nil {
		return 0, 0, nil, err
	}
	n := int(le.Uint32(f.head[:])) - (headerBytes - 4)
	if n < 0 || n > f.most {
		return 0, 0, nil, fmt.Errorf("%w: %d bytes, at most %d are allowed", errFrame, n, f.most)
	}
	f.body = f.body[:0]
	for at := 0; at < n; at = len(f.body) {
		step := min(n-at, max(1<<20, cap(f.body)-at))
		f.body = slices.Grow(f.body, step)[:at+step]
		if _, err := io.ReadFull(f.r, f.body[at:]); err != nil {
			return 0, 0, nil, err
		}
	}
	return f.head[4], le.Uint64(f.head[5:]), f.body, nil
}

// bytesOf is the same memory as bytes: all processors that Go code of this program runs on are little-endian.
func bytesOf[T byte | float32 | int32](x []T) []byte {
	var one T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(one)))
}

// pieces calls f for parts of a tensor of at most pieceBytes, row after row.
func pieces(t backend.Tensor, f func(part backend.Tensor, bytes int) error) error {
	size := t.Type.Size()
	cols := max(1, min(t.Cols, pieceBytes/size))
	rows := max(1, pieceBytes/size/cols)
	if cols < t.Cols {
		rows = 1
	}
	for r := 0; r < t.Rows; r += rows {
		for c := 0; c < t.Cols; c += cols {
			part := t.RowRange(r, min(t.Rows, r+rows)).ColRange(c, min(t.Cols, c+cols))
			if err := f(part, part.Rows*part.Cols*size); err != nil {
				return err
			}
		}
	}
	return nil
}
