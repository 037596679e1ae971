package remote

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// protocol is the version of what follows: of frames, their fields and their order.
const protocol = 1

// A frame is its length, of all that follows the length, its kind, a number that depends on the kind, and fields.
const (
	headerBytes = 4 + 1 + 8
	pieceBytes  = 4 << 20               // memory and weights cross in pieces of that size at most
	maxFrame    = 4*pieceBytes + 64<<10 // bytes behind the length
	maxHello    = 4 << 10               // of a peer that is not known yet
	maxText     = 2 << 10               // of an error, a name or a version
	maxSize     = 1 << 40               // of a number that says how many
)

// Kinds of frames.
const (
	// Of a leader. Those from frameRead on are answered.
	frameHello      uint8 = iota + 1
	framePing             // number of the ping
	frameAlloc            // number of the memory
	frameFree             // likewise
	frameUnload           // number of the weight
	frameWrite            // bytes of memory
	frameDo               // an operation
	frameTable            // number of a sequence's state
	frameDrop             // likewise
	frameRecord           // number of a recording
	framePass             // likewise
	frameForget           // likewise
	frameData             // bytes of matrices that the node has asked for
	frameRehearse         // until frameRehearsed
	frameStreamFree       // number of the stream
	frameRead             // bytes of memory
	frameTop
	frameLoad  // number of the weight
	frameBuild // likewise, once its data was sent
	frameSize
	frameStream     // number of the stream
	frameStreamRead // likewise
	frameRehearsed
	frameSync
	frameClose

	// Of a node.
	frameWelcome
	framePong
	framePart // of an answer
	frameDone // the answer is complete
	frameFail // there is an error in place of it, or of something before
)

var errFrame = errors.New("a frame is not as the protocol has it")

var le = binary.LittleEndian

// coder writes fields to a frame or reads them from one. One function for each kind of frame lists its fields for both
// ends. Fields that cannot be read are zero, and err says so.
type coder struct {
	buf     []byte // what was written, or what is left to read
	reading bool
	err     error
	at      *session             // while reading: whose numbers they are
	dev     *Device              // while writing: likewise
	uses    map[*handle]struct{} // memory and weights that were read; nil: they are not noted
}

func (c *coder) fail() {
	if c.err == nil {
		c.err = errFrame
	}
	c.buf = nil
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

func (c *coder) u8(x *uint8) {
	if !c.reading {
		c.buf = append(c.buf, *x)
	} else if b := c.take(1); b != nil {
		*x = b[0]
	}
}

func (c *coder) u32(x *uint32) {
	if !c.reading {
		c.buf = le.AppendUint32(c.buf, *x)
	} else if b := c.take(4); b != nil {
		*x = le.Uint32(b)
	}
}

func (c *coder) u64(x *uint64) {
	if !c.reading {
		c.buf = le.AppendUint64(c.buf, *x)
	} else if b := c.take(8); b != nil {
		*x = le.Uint64(b)
	}
}

// size is a number of things, or an offset.
func (c *coder) size(x *int) {
	n := uint64(*x)
	c.u64(&n)
	if c.reading {
		if n > maxSize {
			c.fail()
			n = 0
		}
		*x = int(n)
	}
}

func (c *coder) bool(x *bool) {
	n := uint8(0)
	if *x {
		n = 1
	}
	c.u8(&n)
	*x = n != 0
}

func (c *coder) f32(x *float32) {
	n := math.Float32bits(*x)
	c.u32(&n)
	*x = math.Float32frombits(n)
}

func (c *coder) f64(x *float64) {
	n := math.Float64bits(*x)
	c.u64(&n)
	*x = math.Float64frombits(n)
}

func (c *coder) kind(x *dtype.Type) {
	n := uint8(*x)
	c.u8(&n)
	if n > uint8(dtype.Bool) {
		c.fail()
		n = 0
	}
	*x = dtype.Type(n)
}

// text is a short text. What is longer is cut.
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

// ints is a list whose absence is another thing than that of its elements. A list that is read reuses the memory of x.
func (c *coder) ints(x *[]int32) {
	const none = math.MaxUint32
	n := uint32(len(*x))
	if *x == nil {
		n = none
	}
	c.u32(&n)
	if !c.reading {
		for _, y := range *x {
			c.buf = le.AppendUint32(c.buf, uint32(y))
		}
		return
	}
	if n == none {
		*x = nil
		return
	}
	data := c.take(4 * int(n))
	if *x = (*x)[:0]; *x == nil {
		*x = []int32{}
	}
	for ; len(data) > 0; data = data[4:] {
		*x = append(*x, int32(le.Uint32(data)))
	}
}

// list is a list of structs of at least one byte each. One that is read reuses the memory of x.
func list[T any](c *coder, x *[]T, fields func(*T)) {
	n := len(*x)
	c.size(&n)
	if !c.reading {
		for i := range *x {
			fields(&(*x)[i])
		}
		return
	}
	*x = (*x)[:0]
	for i := 0; i < n && c.err == nil; i++ {
		if i == cap(*x) {
			var one T
			*x = append(*x, one)
		}
		*x = (*x)[:i+1]
		fields(&(*x)[i])
	}
}

// tensor is a view of memory, which is named by its number.
func (c *coder) tensor(t *backend.Tensor) {
	var n uint64
	if !c.reading && t.Mem != nil {
		m := c.dev.tensor(*t)
		c.dev.passes.note(m)
		n = m.number
	}
	c.u64(&n)
	c.kind(&t.Type)
	c.size(&t.Rows)
	c.size(&t.Cols)
	c.size(&t.Stride)
	c.size(&t.Offset)
	if c.reading {
		c.at.resolve(c, t, n)
	}
}

// weight is a weight by its number, or none.
func (c *coder) weight(w *backend.Weight) {
	var n uint64
	if !c.reading && *w != nil {
		x := c.dev.weight(*w)
		c.dev.passes.note(x)
		n = x.number
	}
	c.u64(&n)
	if c.reading {
		*w = c.at.weightOf(c, n)
	}
}

// bytesOf is the same memory as bytes: all processors that Go code of this program runs on are little-endian.
func bytesOf[T float32 | int32](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// numbersOf is the reverse of bytesOf. x begins at a multiple of four bytes.
func numbersOf[T float32 | int32](x []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(x))), len(x)/4)
}

// pieces calls f for parts of a tensor of at most pieceBytes, row after row.
func pieces(t backend.Tensor, f func(part backend.Tensor, bytes int) error) error {
	size := t.Type.Size()
	row := t.Cols * size
	if row == 0 || t.Rows == 0 {
		return nil
	}
	if row > pieceBytes {
		for r := range t.Rows {
			for c := 0; c < t.Cols; c += pieceBytes / size {
				to := min(t.Cols, c+pieceBytes/size)
				if err := f(t.RowRange(r, r+1).ColRange(c, to), (to-c)*size); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for r, n := 0, pieceBytes/row; r < t.Rows; r += n {
		to := min(t.Rows, r+n)
		if err := f(t.RowRange(r, to), (to-r)*row); err != nil {
			return err
		}
	}
	return nil
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
	for len(f.body) < n {
		step := min(n-len(f.body), max(1<<20, cap(f.body)-len(f.body)))
		at := len(f.body)
		if cap(f.body) < at+step {
			f.body = append(make([]byte, 0, at+step), f.body...)
		}
		f.body = f.body[:at+step]
		if _, err := io.ReadFull(f.r, f.body[at:]); err != nil {
			return 0, 0, nil, err
		}
	}
	return f.head[4], le.Uint64(f.head[5:]), f.body, nil
}
