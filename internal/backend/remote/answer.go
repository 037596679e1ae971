package remote

import (
	"errors"
	"fmt"
	"math"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/rescue"
)

// rehearse serves frames until the leader ends the rehearsal.
func (x *session) rehearse() error {
	if x.ahead {
		return fatalf("%w: a rehearsal within a rehearsal", errFrame)
	}
	x.ahead = true
	defer func() { x.ahead = false }()
	var ended error
	serve := func() error {
		ended = x.serve()
		return nil
	}
	var err error
	if r, ok := x.b.(backend.Rehearser); ok {
		err = r.Rehearse(serve)
	} else {
		err = serve()
	}
	var over rehearsed
	if !errors.As(ended, &over) {
		return fatal{ended}
	}
	if err == nil {
		err, x.err = x.err, nil
	}
	x.ahead = false
	return x.done(over.number, err)
}

// rehearsed ends the frames of a rehearsal, which are answered by its number.
type rehearsed struct{ number uint64 }

func (rehearsed) Error() string { return "the rehearsal is over" }

// done ends an answer with an error or none.
func (x *session) done(number uint64, err error) error {
	if err != nil && backend.Lost(err) {
		return err
	}
	if err != nil {
		x.fail(number, err, false)
	} else {
		x.answerFrame(frameDone, number, nil)
	}
	return x.out.Flush()
}

// fail answers with an error.
func (x *session) fail(number uint64, err error, ends bool) {
	text := err.Error()
	x.answerFrame(frameFail, number, func(c *coder) {
		c.bool(&ends)
		c.text(&text)
	})
}

// answerFrame writes the last frame of an answer.
func (x *session) answerFrame(kind uint8, number uint64, fields func(c *coder)) {
	c := &x.reply
	c.buf = c.buf[:0]
	at := c.begin(kind, number)
	prepared := uint64(backend.PreparedBy(x.b))
	if c.u64(&prepared); fields != nil {
		fields(c)
	}
	c.finish(at, 0)
	_, _ = x.out.Write(c.buf) // the error comes from Flush
}

// part writes a part of an answer.
func (x *session) part(number uint64, data []byte) error {
	c := &x.reply
	c.buf = c.buf[:0]
	c.finish(c.begin(framePart, number), len(data))
	_, _ = x.out.Write(c.buf) // its error is that of the next
	_, err := x.out.Write(data)
	return err
}

// fieldsPart writes fields as a part of an answer.
func (x *session) fieldsPart(number uint64, fields func(c *coder)) {
	c := &x.reply
	c.buf = c.buf[:0]
	at := c.begin(framePart, number)
	fields(c)
	c.finish(at, 0)
	_, _ = x.out.Write(c.buf) // the error comes from Flush
}

// answer does what is answered, unless something before has failed.
func (x *session) answer(kind uint8, number uint64, c *coder) error {
	if kind == frameRehearsed && x.ahead {
		return rehearsed{number}
	}
	err := x.err
	if x.err = nil; err == nil {
		err = rescue.Do(func() error { return x.ask(kind, number, c) })
	}
	if err != nil && ends(err) {
		return err
	}
	if c.err != nil && err == nil {
		return fatal{c.err}
	}
	if err := x.done(number, err); err != nil {
		return err
	}
	if kind == frameClose {
		return errClosed
	}
	return nil
}

// ask computes an answer and writes its parts.
func (x *session) ask(kind uint8, number uint64, c *coder) error {
	switch kind {
	case frameRead:
		var t backend.Tensor
		if c.tensor(&t); c.err != nil {
			return fatal{c.err}
		}
		return x.readTensor(number, t)
	case frameTop:
		return x.top(number, c)
	case frameLoad:
		return x.load(number, c)
	case frameBuild:
		return x.build(number)
	case frameSize:
		h := c.matrix(matrixHead{})
		m, err := h.form()
		if err != nil {
			return err
		}
		n := uint64(hostBytes(&m))
		if s, ok := x.b.(backend.Sizer); ok {
			n = uint64(s.WeightBytes(&m))
		}
		x.fieldsPart(number, func(c *coder) { c.u64(&n) })
	case frameStream:
		return x.stream(number, c)
	case frameStreamRead:
		s := x.streams[number]
		if s == nil {
			return fatalf("%w: stream %d", errFrame, number)
		}
		n := uint64(s.Read())
		x.fieldsPart(number, func(c *coder) { c.u64(&n) })
	case frameSync, frameClose:
	default:
		return fatalf("%w: kind %d", errFrame, kind)
	}
	return nil
}

func (x *session) readTensor(number uint64, t backend.Tensor) error {
	if t.Type == dtype.F32 && (t.Rows <= 1 || t.Stride == t.Cols) {
		all, err := x.b.Host(t)
		if err != nil {
			return err
		}
		for b := bytesOf(all); len(b) > 0; {
			n := min(len(b), pieceBytes)
			if err := x.part(number, b[:n]); err != nil {
				return fatal{err}
			}
			b = b[n:]
		}
		return nil
	}
	return pieces(t, func(t backend.Tensor, n int) error {
		if len(x.bytes) < n {
			x.bytes = make([]byte, n)
		}
		if err := x.b.ReadBytes(x.bytes[:n], t); err != nil {
			return err
		}
		return x.part(number, x.bytes[:n])
	})
}

func (x *session) top(number uint64, c *coder) error {
	var src backend.Tensor
	c.tensor(&src)
	if list(c, &x.asks, c.ask); c.err != nil {
		return fatal{c.err}
	}
	checkAsks(src, x.asks)
	best, err := x.b.Top(src, x.asks)
	for i := range best {
		x.fieldsPart(number, func(c *coder) { c.best(&best[i]) })
	}
	return err
}

func (x *session) stream(number uint64, c *coder) error {
	var n int
	c.size(&n)
	s, ok := x.b.(backend.Streamer)
	if !ok {
		return fmt.Errorf("the memory of %s cannot be measured", x.b.Name())
	}
	if number == 0 || x.streams[number] != nil || len(x.streams) > 16 {
		return fatalf("%w: stream %d", errFrame, number)
	}
	if free := x.budget - x.used.Load(); int64(n) > free {
		return fmt.Errorf("%d bytes to measure memory, %d are free", n, free)
	}
	m, err := s.NewStream(n)
	if err != nil {
		return err
	}
	x.used.Add(int64(m.Bytes()))
	x.streams[number] = m
	return nil
}

// best lists the fields of an answer of Top.
func (c *coder) best(b *backend.Best) {
	c.ints(&b.IDs)
	c.floats(&b.Logits)
	c.f32(&b.Low)
	c.floats(&b.Also)
	c.f32(&b.Sum)
	drawn := uint32(b.Drawn)
	c.u32(&drawn)
	b.Drawn = int32(drawn)
}

// floats is a list of numbers. One that is read reuses the memory of x.
func (c *coder) floats(x *[]float32) {
	n := len(*x)
	if c.size(&n); !c.reading {
		c.buf = append(c.buf, bytesOf(*x)...)
		return
	}
	data := c.take(4 * n)
	*x = (*x)[:0]
	for ; len(data) > 0; data = data[4:] {
		*x = append(*x, math.Float32frombits(le.Uint32(data)))
	}
}
