package remote

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// A node's memory is bounded by the budget and by what was sent, whatever that claims: all that a session takes in its life is
// counted, not only what it holds.
func TestMemoryIsBoundedWhateverIsSent(t *testing.T) {
	const budget, spare, huge = 1 << 20, 8 << 20, 1 << 39
	number := uint64(0)
	sized := func(kind uint8, sizes ...int) []byte {
		number++
		return framed(kind, number, func(c *coder) {
			for i := range sizes {
				c.size(&sizes[i])
			}
		})
	}
	alloc := func(rows, cols int) []byte {
		number++
		return framed(frameAlloc, number, func(c *coder) {
			f := dtype.F32
			c.dtype(&f)
			c.size(&rows)
			c.size(&cols)
		})
	}
	load := func(times int, m dtype.Matrix) []byte {
		number++
		forms, digests := make([]form, times), make([]Digest, times)
		for i := range forms {
			forms[i] = formOf(&m)
		}
		return framed(frameLoad, number, func(c *coder) {
			k := backend.Int8
			c.load(&k, &forms, &digests)
		})
	}
	claims := func(kind uint8, length uint32) []byte {
		return append(le.AppendUint32(nil, length), append([]byte{kind}, make([]byte, 100)...)...)
	}
	record := framed(frameRecord, 1, func(c *coder) {
		none, n := int32(-1), 0
		for range 3 {
			c.i32(&none)
		}
		c.size(&n)
		n = huge
		c.size(&n)
	})
	counted := framed(frameTable, 1, func(c *coder) {
		n := int32(1<<31 - 1)
		c.i32(&n)
	})
	turned := &dtype.Input{Rotation: &dtype.Rotation{Rounds: 64}}
	for name, one := range map[string]func() []byte{
		"memory":                     func() []byte { return alloc(huge, 1) },
		"memory without columns":     func() []byte { return alloc(huge, 0) },
		"memory within the budget":   func() []byte { return alloc(1<<10, 1<<7) },
		"small memory":               func() []byte { return alloc(1, 0) },
		"a weight":                   func() []byte { return load(1, dtype.Matrix{Rows: 1 << 28, Cols: 1 << 24, Type: dtype.F32}) },
		"a weight of many":           func() []byte { return load(maxStack, dtype.Matrix{Rows: 1 << 28, Cols: 1 << 24, Type: dtype.F32}) },
		"a weight's transformation":  func() []byte { return load(8, dtype.Matrix{Cols: 1 << 24, Type: dtype.F32, Input: turned}) },
		"a stream":                   func() []byte { return sized(frameStream, huge) },
		"operations":                 func() []byte { return record },
		"pages":                      func() []byte { return counted },
		"a frame":                    func() []byte { return claims(frameWrite, maxFrame) },
		"a frame that is too large":  func() []byte { return claims(frameWrite, 1<<32-1) },
		"bytes of what was not sent": func() []byte { return sized(frameData, 1, 2, 3) },
	} {
		b, err := backend.Open("cpu", backend.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		var sent []byte
		for len(sent) < 200<<10 {
			sent = append(sent, one()...)
		}
		x := newSession(b, newFrames(bytes.NewReader(sent), maxFrame), io.Discard)
		x.budget = budget
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err = x.serve()
		runtime.ReadMemStats(&after)
		if took, most := after.TotalAlloc-before.TotalAlloc, uint64(budget+spare+64*len(sent)); took > most {
			t.Errorf("%s: %d bytes were taken, at most %d are allowed: %v", name, took, most, err)
		}
		if x.used.Load() > budget {
			t.Errorf("%s: %d bytes are in use", name, x.used.Load())
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What a session keeps of a flood of frames is bounded, although each is as it should be. Recordings are refused by name.
func TestFloodIsBounded(t *testing.T) {
	d := &Device{}
	d.passes.ops.dev = d
	x := backend.Tensor{Type: dtype.F32, Cols: 1, Mem: &memory{handle: handle{number: 1}, own: d}}
	copies := make([]backend.Tensor, 12<<10)
	for i := range copies {
		copies[i] = x
	}
	lists := func(c *coder, batch ...backend.Seq) {
		for range 3 {
			c.ints(new([]int32))
		}
		n, none := len(batch), uint64(0)
		c.size(&n)
		for i := range batch {
			c.u64(&none)
			c.rows(&batch[i])
		}
	}
	recordings := func(queue func(o ops)) func(i int) []byte {
		var r sent
		d.passes.begin(&backend.Pass{})
		queue(ops{func(name string, _ backend.Pass, operands func(c *coder) run) { d.passes.add(&r, name, operands) }})
		written := slices.Clone(d.passes.ops.buf)
		return func(i int) []byte {
			return framed(frameRecord, uint64(i+1), func(c *coder) {
				lists(c)
				c.size(&r.operations)
				c.buf = append(c.buf, written...)
			})
		}
	}
	a := &backend.Attention{Heads: 1, KVHeads: 1, HeadDim: 1}
	for name, flood := range map[string]struct {
		frames  int
		refused bool
		frame   func(i int) []byte
	}{
		"recordings of nothing":     {33_000, true, recordings(func(ops) {})},
		"recordings of many copies": {50, true, recordings(func(o ops) { o.CopyEach(copies, copies) })},
		"recordings of windows": {50, true, recordings(func(o ops) {
			o.Attend(none, a, backend.Place{Type: dtype.F32, Window: maxLayers}, none, x, x, nil)
		})},
		"positions": {100, false, func(i int) []byte {
			batch := make([]backend.Seq, i+1)
			for j := range batch { // an empty list is reused
				batch[j].Positions = [][3]int32{}
			}
			batch[i].Positions = make([][3]int32, 100_000)
			return framed(framePass, 1, func(c *coder) { lists(c, batch...) })
		}},
		"columns": {100, false, func(i int) []byte {
			asks := make([]backend.Ask, i+1)
			for j := range asks {
				asks[j].Also = []int32{}
			}
			asks[i].Also = make([]int32, 300_000)
			return framed(frameTop, 1, func(c *coder) {
				c.dev = d
				c.reads(&x)
				list(c, &asks, (*coder).ask)
			})
		}},
	} {
		b, err := backend.Open("cpu", backend.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		s := newSession(b, newFrames(nil, maxFrame), io.Discard)
		s.budget = 1 << 20
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		memory, err := b.Alloc(dtype.F32, 1, 1)
		if err == nil {
			err = s.hold(&handle{number: 1, t: memory})
		}
		for i := 0; i < flood.frames && (err == nil || errors.Is(err, io.EOF)); i++ {
			s.in.r.Reset(bytes.NewReader(flood.frame(i)))
			err = s.serve()
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > 3*maxRecorded {
			t.Errorf("%s: %d bytes are kept", name, kept)
		}
		if refused := strings.Contains(err.Error(), "recordings of more than 33554432 bytes"); refused != flood.refused {
			t.Errorf("%s: %v", name, err)
		}
		runtime.KeepAlive(s)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// An operation for which a device would take working memory that no tensor has is refused. The checks are those of both ends.
func TestWorkIsBounded(t *testing.T) {
	d := &Device{}
	d.passes.ops.dev = d
	view := func(rows, cols int) backend.Tensor {
		return backend.Tensor{Type: dtype.F32, Rows: rows, Cols: cols, Stride: cols, Mem: &memory{handle: handle{number: 1}, own: d}}
	}
	at := backend.Place{Type: dtype.F32}
	experts := func(rows, topK int) func(o ops) {
		w := func(rows, cols, n int) *weight {
			return &weight{own: d, rows: rows, cols: cols, forms: make([]form, n)}
		}
		e := &backend.Experts{Router: w(1<<10, 16, 1), Gate: w(4, 16, 1<<10), Up: w(4, 16, 1<<10), Down: w(16, 4, 1<<10), TopK: topK}
		return func(o ops) { o.Experts(view(rows, 16), view(rows, 16), none, e) }
	}
	attend := func(dim, value int, q, k, v backend.Tensor) func(o ops) {
		return func(o ops) {
			o.Attend(view(0, q.Cols), &backend.Attention{Heads: 1, KVHeads: 1, HeadDim: dim, ValueDim: value}, at, q, k, v, nil)
		}
	}
	for _, c := range []struct {
		want  string
		queue func(o ops)
	}{
		{"<nil>", attend(1<<14, 0, none, view(0, 1<<14), view(0, 1<<14))},
		{"remote: Attend without tensors", attend(1, 0, none, none, none)},
		{"remote: a head that is too wide", attend(1<<14+1, 1, none, view(0, 1<<14+1), view(0, 1))},
		{"remote: a head that is too wide", attend(1, 1<<14+1, none, view(0, 1), view(0, 1<<14+1))},
		{"<nil>", experts(1<<15, 1<<10)},
		{"remote: too many rows for so many experts", experts(1<<16, 1<<10)},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
			}()
			d.passes.begin(&backend.Pass{})
			c.queue(ops{func(name string, _ backend.Pass, operands func(c *coder) run) { d.passes.add(&sent{}, name, operands) }})
		}()
	}
	src := view(1, 2)
	checkAsks(src, []backend.Ask{{Also: []int32{1, 1, 0, 0}}})
	defer func() {
		if got := fmt.Sprint(recover()); got != "remote: Top of the highest 0 and 5 more in 0 of 2 columns" {
			t.Error(got)
		}
	}()
	checkAsks(src, []backend.Ask{{Also: []int32{1, 1, 0, 0, 0}}})
}

// noHost is a device whose tensors are read in pieces.
type noHost struct {
	backend.Backend
	t *testing.T
}

func (b noHost) Host(backend.Tensor) ([]float32, error) {
	b.t.Error("all of a tensor is read at once")
	return nil, nil
}

// A weight counts as memory from the frame that begins it on, until it is built or another one is begun. Reading takes no memory of
// the size of a tensor.
func TestWhatIsReceivedIsCounted(t *testing.T) {
	b, err := backend.Open("cpu", backend.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(noHost{b, t}, newFrames(nil, maxFrame), io.Discard)
	s.budget = 1 << 20
	m := dtype.Matrix{Rows: 640, Cols: 256, Type: dtype.F32, Data: make([]byte, 640<<10)}
	load := func(number uint64) []byte {
		return framed(frameLoad, number, func(c *coder) {
			k := backend.Float32
			c.load(&k, &[]form{formOf(&m)}, &[]Digest{DigestOf(&m)})
		})
	}
	alloc := func(rows int) []byte {
		return framed(frameAlloc, uint64(rows), func(c *coder) {
			f, cols := dtype.F32, 256
			c.dtype(&f)
			c.size(&rows)
			c.size(&cols)
		})
	}
	empty := func(c *coder) {}
	for i, step := range []struct {
		frame []byte
		used  int64
		err   string
	}{
		{load(1), 640 << 10, "EOF"},
		{load(2), 640 << 10, "EOF"}, // in place of the first
		{alloc(100), 740 << 10, "EOF"},
		{framed(frameRead, 0, func(c *coder) {
			d := &Device{}
			c.dev = d
			c.tensor(&backend.Tensor{Type: dtype.F32, Rows: 100, Cols: 256, Stride: 256, Mem: &memory{handle: handle{number: 100}, own: d}})
		}), 740 << 10, "EOF"},
		{framed(frameData, 0, func(c *coder) { c.buf = append(c.buf, m.Data...) }), 740 << 10, "EOF"},
		{framed(frameBuild, 2, empty), 740 << 10, "EOF"},
		{framed(frameFree, 2, empty), 100 << 10, "EOF"},
		{load(3), 740 << 10, "EOF"},
		{alloc(600), 740 << 10, "614400 bytes are needed, 290816 of the 1048576 that a leader may use here are free"},
	} {
		s.in.r.Reset(bytes.NewReader(step.frame))
		if err := s.serve(); err == nil || err.Error() != step.err || s.used.Load() != step.used || s.err != nil {
			t.Errorf("step %d: %d bytes are in use, want %d: %v, %v, want %s", i, s.used.Load(), step.used, err, s.err, step.err)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
