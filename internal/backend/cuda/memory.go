package cuda

import (
	"errors"

	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/gpu"
)

// read brings n bytes of the device to pinned memory, where they stay until the next read. It waits
// for queued work and returns its error.
func (b *Backend) read(from driver.Ptr, n int) ([]byte, error) {
	if len(b.host) < n {
		if err := b.wait(); err != nil {
			return nil, err
		}
		grown, err := b.dev.Pin(int64(max(n, 64<<10)))
		if err != nil {
			return nil, err
		}
		if b.host != nil {
			if err := b.dev.Unpin(b.host); err != nil {
				return nil, err
			}
		}
		b.host = grown
	}
	if n > 0 {
		if err := b.stream.Read(b.host[:n], from); err != nil {
			return nil, errors.Join(err, b.wait())
		}
	}
	if err := b.wait(); err != nil {
		return nil, err
	}
	return b.host[:n:n], nil
}

// staging is pinned memory for uploads. It is free again after every wait for
// the stream.
type staging struct {
	data []byte
	used int
}

// stage is n bytes of pinned memory for one copy to the device, n at most its size.
func (b *Backend) stage(n int) ([]byte, error) {
	if b.staged.used+n > len(b.staged.data) {
		if err := b.stream.Wait(); err != nil {
			return nil, err
		}
		b.staged.used = 0
	}
	piece := b.staged.data[b.staged.used:][:n:n]
	b.staged.used += (n + 255) &^ 255
	return piece, nil
}

// send copies data to the device and returns when it may be changed.
func (b *Backend) send(to driver.Ptr, data []byte) error {
	for len(data) > 0 {
		n := min(len(data), max(1, len(b.staged.data)/2))
		piece, err := b.stage(n)
		if err != nil {
			return err
		}
		copy(piece, data)
		if err := b.stream.Write(to, piece); err != nil {
			return err
		}
		to, data = to+driver.Ptr(n), data[n:]
	}
	return nil
}

// scratch is the working memory of operations: a list of pieces, which the operations share.
// They do not move unless one has to grow, and then recorded passes are dropped.
type scratch struct {
	pieces []piece
	next   int // piece of the running operation
}

type piece struct {
	at      driver.Ptr
	bytes   int64
	outside bool // of passes
}

// scratch is memory for the running operation, with undefined contents. Every call gives another piece. Operations outside of
// passes have separate pieces, so recorded passes stay when these grow.
func (b *Backend) scratch(bytes int) driver.Ptr {
	if b.passes.recording == nil {
		return b.take(&b.outside, bytes)
	}
	return b.take(&b.pieces, bytes)
}

// take is the next piece of a list.
func (b *Backend) take(s *scratch, bytes int) driver.Ptr {
	if s.next == len(s.pieces) {
		s.pieces = append(s.pieces, piece{outside: s == &b.outside})
	}
	p := &s.pieces[s.next]
	s.next++
	return b.grow(p, bytes)
}

// grow is memory that does not move unless it has to grow, and then recorded passes
// are dropped.
func (b *Backend) grow(p *piece, bytes int) driver.Ptr {
	if int64(bytes) <= p.bytes {
		return p.at
	}
	if p.bytes > 0 {
		if !p.outside {
			b.clearPasses()
		}
		b.retire(p.at)
	}
	*p = piece{bytes: int64(bytes), outside: p.outside}
	var err error
	if p.at, err = b.memory.Alloc(p.bytes); err != nil {
		*p = piece{outside: p.outside}
		b.fail(err)
	}
	return p.at
}

// zeros is grow for memory that is zero when it is new: kernels leave it so. After an error there is nothing new, for
// nothing could make it zero.
func (b *Backend) zeros(p *piece, bytes int) driver.Ptr {
	if b.err != nil {
		return p.at
	}
	had := p.bytes
	at := b.grow(p, bytes)
	if p.bytes == had || b.err != nil {
		return at
	}
	if err := b.stream.Set(at, 0, p.bytes); err != nil {
		b.fail(err)
		b.retire(at)
		*p = piece{}
	}
	return at
}

// retire frees memory that operations of the running pass may still use.
func (b *Backend) retire(at driver.Ptr) {
	if r := b.passes.recording; r != nil {
		r.retired = append(r.retired, at)
		return
	}
	b.fail(b.memory.Free(at))
}

// upload is memory of the running operation with the contents of data. It is not part of a pass:
// the differences between passes are in the call block.
func (b *Backend) upload(data []byte) driver.Ptr {
	if b.passes.recording != nil {
		panic("cuda: upload of a list within a pass: lists of a pass are in its call block")
	}
	if len(data) == 0 {
		return 0
	}
	at := b.scratch(len(data))
	if b.err == nil {
		b.fail(b.send(at, data))
	}
	return at
}

// source is where the arena takes its memory from.
type source struct{ driver.Device }

func (s source) Full(err error) bool { return errors.Is(err, driver.OutOfMemory) }

func (s source) Explain(err error, needed, taken int64) error {
	var e *driver.Error
	free, total, unknown := s.Memory()
	if unknown != nil || !errors.As(err, &e) {
		return err
	}
	return &driver.Error{Call: e.Call, Code: e.Code, Cause: gpu.Shortage(needed, free, total, taken)}
}

var _ gpu.Source[driver.Ptr] = source{}
