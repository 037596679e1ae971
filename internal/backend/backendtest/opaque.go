package backendtest

import (
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/conformance"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/sampling"
)

// Opaque is a device whose memory only the device can read: the operations of another device behind
// memory and weights of its own types. Results of Host and Top are invalid after the next call, and
// writing to them changes nothing. Use of memory that was freed, or that belongs to another device,
// panics. Passes are recorded and replayed.
type Opaque struct {
	b    backend.Backend
	lent [][]float32 // what Host and Top have returned
	err  error       // what an operation has ended in
	lost error       // what every call ends in

	sampler sampling.Drawer

	mu          sync.Mutex // protects what follows, which tests change
	fuse, every int        // the call that ends in next, 1 is the next one, and how many later that happens again; 0: never
	next        error

	recordings map[backend.Shape]*recording
	recording  *recording   // of the pass that is recorded; nil: none is
	lists      backend.Pass // its lists

	kept, recorded, replayed atomic.Int64 // passes
}

var (
	_ backend.Backend       = (*Opaque)(nil)
	_ conformance.Breakable = (*Opaque)(nil)
	_ backend.Drawer        = (*Opaque)(nil)
	_ backend.Meter         = (*Opaque)(nil)
	_ backend.Preparer      = (*Opaque)(nil)
)

// NewOpaque hides the memory of b.
func NewOpaque(b backend.Backend) *Opaque {
	return &Opaque{b: b, recordings: map[backend.Shape]*recording{}}
}

// RegisterOpaque makes the device known as "opaque". Auto never takes it.
func RegisterOpaque() {
	backend.Register(backend.Device{
		Name: "opaque", Rank: math.MinInt,
		ISAs:  func() []string { return nil },
		Probe: func() []backend.Info { return []backend.Info{{Missing: "it is for tests"}} },
		Open: func(o backend.Options) (backend.Backend, error) {
			b, err := backend.Open("cpu", o)
			return NewOpaque(b), err
		},
	})
}

// secret is memory.
type secret struct {
	owner *Opaque
	t     backend.Tensor // all of it
	freed bool
}

func (m *secret) Bytes() int64 { return m.t.Mem.Bytes() }

// sealed is a weight.
type sealed struct {
	owner *Opaque
	backend.Weight
}

// begin ends the life of what Host and Top have returned. It reports whether an operation is to be
// computed, and not to fail.
func (o *Opaque) begin() bool {
	for _, x := range o.lent {
		for i := range x {
			x[i] = float32(math.NaN())
		}
	}
	o.lent = o.lent[:0]
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fuse > 0 {
		if o.fuse--; o.fuse == 0 {
			o.err, o.fuse = o.next, o.every
			if backend.Lost(o.next) {
				o.lost = o.next
			}
			return false
		}
	}
	return o.lost == nil
}

// reported is the error of the operations before, once.
func (o *Opaque) reported() error {
	err := o.err
	if o.err = nil; o.lost != nil {
		err = o.lost
	}
	return err
}

// tensor is the other device's tensor for t.
func (o *Opaque) tensor(t backend.Tensor) backend.Tensor {
	if t.Mem == nil {
		return t
	}
	m, ok := t.Mem.(*secret)
	if !ok || m.owner != o || m.freed {
		panic("backendtest: tensor of another device, or that was freed")
	}
	o.noted(m)
	t.Mem = m.t.Mem
	t.Offset += m.t.Offset
	return t
}

// weight is the other device's weight for w.
func (o *Opaque) weight(w backend.Weight) backend.Weight {
	s, ok := w.(*sealed)
	if !ok || s.owner != o {
		panic("backendtest: weight of another device")
	}
	o.noted(s)
	return s.Weight
}

// revealed is a copy of x, a parameter of an operation, with the tensors and weights of the other
// device wherever it has some.
func revealed[T any](o *Opaque, x T) T {
	o.reveal(reflect.ValueOf(&x).Elem())
	return x
}

func (o *Opaque) reveal(v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *backend.Tensor:
		*x = o.tensor(*x)
		return
	case *backend.Weight:
		if *x != nil {
			*x = o.weight(*x)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			o.reveal(v.Field(i))
		}
	case reflect.Slice:
		if kind := v.Type().Elem().Kind(); kind != reflect.Struct && kind != reflect.Interface {
			return
		}
		own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(own, v)
		v.Set(own)
		for i := range v.Len() {
			o.reveal(v.Index(i))
		}
	}
}

// Break implements conformance.Breakable.
func (o *Opaque) Break(err error) { o.BreakAt(1, err) }

// BreakAt makes the n-th call from now on fail, as on a device: the error of queued work is reported
// by the next blocking call. Later calls work, unless the error is one of a lost device.
// An n of 0 repairs the device.
func (o *Opaque) BreakAt(n int, err error) { o.breakAt(n, 0, err) }

// BreakEvery has every n-th call fail.
func (o *Opaque) BreakEvery(n int, err error) { o.breakAt(n, n, err) }

func (o *Opaque) breakAt(n, every int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fuse, o.every, o.next = n, every, err
}

// Broken reports whether the call of BreakAt has come.
func (o *Opaque) Broken() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fuse == 0
}

// LostError is the error of a device that is lost.
type LostError struct{}

func (LostError) Error() string { return "backendtest: the device is lost" }

// DeviceLost is what backend.Lost asks for.
func (LostError) DeviceLost() bool { return true }

// Name implements backend.Backend, as all that follows.
func (o *Opaque) Name() string      { return "opaque " + o.b.Name() }
func (o *Opaque) FreeMemory() int64 { return o.b.FreeMemory() }

// Prepared implements backend.Preparer.
func (o *Opaque) Prepared() int64 { return o.recorded.Load() }

func (o *Opaque) Usage() []backend.Usage {
	list := backend.UsageOf(o.b)
	for i := range list {
		u := &list[i]
		u.Device, u.Recordings, u.Recorded, u.Replayed = o.Name(), int(o.kept.Load()), o.recorded.Load(), o.replayed.Load()
	}
	return list
}

func (o *Opaque) Close() error { return o.b.Close() }

func (o *Opaque) Alloc(t dtype.Type, rows, cols int) (backend.Tensor, error) {
	if o.lost != nil {
		return backend.Tensor{}, o.lost
	}
	x, err := o.b.Alloc(t, rows, cols)
	if err != nil {
		return x, err
	}
	m := &secret{owner: o, t: x}
	x.Mem, x.Offset = m, 0
	return x, nil
}

func (o *Opaque) Free(t backend.Tensor) {
	o.begin()
	if m, ok := t.Mem.(*secret); ok && !m.freed {
		m.freed = true
		o.forget(m)
		o.b.Free(m.t)
	}
}

func (o *Opaque) Load(c backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	w, err := o.b.Load(c, stack...)
	if err != nil {
		return nil, err
	}
	return &sealed{o, w}, nil
}

func (o *Opaque) Unload(w backend.Weight) {
	o.begin()
	o.b.Unload(o.weight(w))
	o.forget(w)
}

func (o *Opaque) Write(dst backend.Tensor, src []float32) error {
	if !o.begin() && o.lost != nil {
		return o.lost
	}
	return o.b.Write(o.tensor(dst), src)
}

func (o *Opaque) Fill(dst backend.Tensor, x float32) {
	o.op(func(*backend.Pass) { o.b.Fill(o.tensor(dst), x) })
}

func (o *Opaque) Host(src backend.Tensor) ([]float32, error) {
	o.begin()
	if err := o.reported(); err != nil {
		return nil, err
	}
	x, err := o.b.Host(o.tensor(src))
	if err != nil {
		return nil, err
	}
	own := append([]float32(nil), x...)
	o.lent = append(o.lent, own)
	return own, nil
}

func (o *Opaque) Top(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
	o.begin()
	if err := o.reported(); err != nil {
		return nil, err
	}
	best, err := o.b.Top(o.tensor(src), asks)
	if err != nil {
		return nil, err
	}
	own := slices.Clone(best)
	for i := range own {
		b := &own[i]
		b.IDs, b.Logits, b.Also = slices.Clone(b.IDs), slices.Clone(b.Logits), slices.Clone(b.Also)
		if d := asks[i].Draw; d != nil {
			row, err := o.b.Host(o.tensor(src.RowRange(i, i+1)))
			if err != nil {
				return nil, err
			}
			b.Drawn = conformance.Exactly(o.sampler.Draw(conformance.Plain(*d), conformance.OwnOf(row, *d)))
		}
		o.lent = append(o.lent, b.Logits, b.Also)
	}
	return own, nil
}

func (o *Opaque) Copy(dst, src backend.Tensor) {
	o.op(func(*backend.Pass) { o.b.Copy(o.tensor(dst), o.tensor(src)) })
}

func (o *Opaque) ReadBytes(dst []byte, src backend.Tensor) error {
	o.begin()
	if err := o.reported(); err != nil {
		return err
	}
	return o.b.ReadBytes(dst, o.tensor(src))
}

func (o *Opaque) WriteBytes(dst backend.Tensor, src []byte) error {
	if !o.begin() && o.lost != nil {
		return o.lost
	}
	return o.b.WriteBytes(o.tensor(dst), src)
}

func (o *Opaque) Embed(dst backend.Tensor, table backend.Weight, ids []int32, factor float32) {
	from := listed(o, ids, func(p *backend.Pass) []int32 { return p.IDs })
	o.op(func(p *backend.Pass) { o.b.Embed(o.tensor(dst), o.weight(table), from(p), factor) })
}

// Draw implements backend.Drawer by package sample.
func (o *Opaque) Draw(drawn, logits, tokens backend.Tensor, draws []backend.Draw) {
	o.op(func(*backend.Pass) {
		to, from := o.tensor(drawn), o.tensor(logits)
		for i, d := range draws {
			row := o.row(from, i)
			if tokens.Rows == 0 {
				must(o.b.Write(to.RowRange(i, i+1), conformance.Numbers(o.sampler.Draw(conformance.Plain(d), conformance.OwnOf(row, d)))))
				continue
			}
			ids := o.row(o.tensor(tokens), min(i, tokens.Rows-1))
			must(o.b.Write(to.RowRange(i, i+1), conformance.Numbers(conformance.DrawToken(&o.sampler, d, row, ids))))
		}
	})
}

// row is a copy of row i of memory of the device below.
func (o *Opaque) row(t backend.Tensor, i int) []float32 {
	row, err := o.b.Host(t.RowRange(i, i+1))
	must(err)
	return slices.Clone(row)
}

// Candidates implements backend.Drawer.
func (o *Opaque) Candidates(ids, best, logits backend.Tensor, draws []backend.Draw) {
	o.op(func(*backend.Pass) {
		for i, d := range draws {
			columns, numbers := conformance.CandidatesOf(o.row(o.tensor(logits), i), d, ids.Cols)
			must(o.b.Write(o.tensor(ids).RowRange(i, i+1), columns))
			must(o.b.Write(o.tensor(best).RowRange(i, i+1), numbers))
		}
	})
}

// Score implements backend.Drawer.
func (o *Opaque) Score(scores, left, mid, right backend.Tensor) {
	o.op(func(*backend.Pass) {
		for i := range scores.Rows {
			row := o.row(o.tensor(scores), i)
			for c := range row {
				row[c] += conformance.ScoreOf(o.row(o.tensor(left), i), o.row(o.tensor(mid), i), o.row(o.tensor(right), i*len(row)+c))
			}
			must(o.b.Write(o.tensor(scores).RowRange(i, i+1), row))
		}
	})
}

// EmbedDrawn implements backend.Drawer.
func (o *Opaque) EmbedDrawn(dst backend.Tensor, table backend.Weight, drawn backend.Tensor, factor float32) {
	o.op(func(*backend.Pass) {
		from := o.tensor(drawn)
		ids := make([]int32, from.Rows)
		for i := range ids {
			ids[i] = max(int32(o.row(from, i)[0]), 0)
		}
		o.b.Embed(o.tensor(dst), o.weight(table), ids, factor)
	})
}

func (o *Opaque) Gather(dst, x backend.Tensor, rows []int32) {
	from := listed(o, rows, func(p *backend.Pass) []int32 { return p.Want })
	o.op(func(p *backend.Pass) { o.b.Gather(o.tensor(dst), o.tensor(x), from(p)) })
}

func (o *Opaque) MatMul(x backend.Tensor, products ...backend.Product) {
	products = slices.Clone(products)
	only := map[int]func(p *backend.Pass) []int32{}
	for i := range products {
		if products[i].Only != nil {
			only[i] = listed(o, products[i].Only, func(p *backend.Pass) []int32 { return p.Only })
		}
	}
	o.op(func(p *backend.Pass) {
		own := revealed(o, products)
		for i, from := range only {
			own[i].Only = from(p)
		}
		o.b.MatMul(o.tensor(x), own...)
	})
}

func (o *Opaque) RMSNorm(dst, x, gain backend.Tensor, eps float32) {
	o.op(func(*backend.Pass) { o.b.RMSNorm(o.tensor(dst), o.tensor(x), o.tensor(gain), eps) })
}

func (o *Opaque) NormAdd(dst, x, gain backend.Tensor, eps, scale float32) {
	o.op(func(*backend.Pass) { o.b.NormAdd(o.tensor(dst), o.tensor(x), o.tensor(gain), eps, scale) })
}

func (o *Opaque) LayerNorm(dst, x, gain, bias backend.Tensor, eps float32) {
	o.op(func(*backend.Pass) {
		o.b.LayerNorm(o.tensor(dst), o.tensor(x), o.tensor(gain), o.tensor(bias), eps)
	})
}

func (o *Opaque) GELU(dst, x backend.Tensor, tanh bool) {
	o.op(func(*backend.Pass) { o.b.GELU(o.tensor(dst), o.tensor(x), tanh) })
}

func (o *Opaque) Convolve(dst, x backend.Tensor, c *backend.Convolution, batch []backend.Seq) {
	from := listed(o, batch, func(p *backend.Pass) []backend.Seq { return p.Batch })
	o.op(func(p *backend.Pass) {
		own := revealed(o, *c)
		o.b.Convolve(o.tensor(dst), o.tensor(x), &own, o.batch(from(p)))
	})
}

func (o *Opaque) Rotate(x, cos, sin backend.Tensor, heads int) {
	o.op(func(*backend.Pass) { o.b.Rotate(o.tensor(x), o.tensor(cos), o.tensor(sin), heads) })
}

func (o *Opaque) Mix(dst, q, k, v backend.Tensor, heads int, scale float32) {
	o.op(func(*backend.Pass) { o.b.Mix(o.tensor(dst), o.tensor(q), o.tensor(k), o.tensor(v), heads, scale) })
}

func (o *Opaque) GLU(dst, gate, up backend.Tensor, f backend.Activation) {
	o.op(func(*backend.Pass) { o.b.GLU(o.tensor(dst), o.tensor(gate), o.tensor(up), f) })
}

func (o *Opaque) Cap(x backend.Tensor, c float32) {
	o.op(func(*backend.Pass) { o.b.Cap(o.tensor(x), c) })
}

func (o *Opaque) Experts(dst, x, router backend.Tensor, e *backend.Experts) {
	o.op(func(*backend.Pass) {
		own := revealed(o, *e)
		o.b.Experts(o.tensor(dst), o.tensor(x), o.tensor(router), &own)
	})
}

func (o *Opaque) Attend(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
	from := listed(o, batch, func(p *backend.Pass) []backend.Seq { return p.Batch })
	o.op(func(p *backend.Pass) {
		own := revealed(o, *a)
		o.b.Attend(o.tensor(dst), &own, at, o.tensor(q), o.tensor(k), o.tensor(v), o.batch(from(p)))
	})
}

func (o *Opaque) DeltaNet(dst backend.Tensor, d *backend.DeltaNet, at backend.Place, in backend.DeltaInput, batch []backend.Seq) {
	from := listed(o, batch, func(p *backend.Pass) []backend.Seq { return p.Batch })
	o.op(func(p *backend.Pass) {
		own := revealed(o, *d)
		o.b.DeltaNet(o.tensor(dst), &own, at, revealed(o, in), o.batch(from(p)))
	})
}

// must is for calls that do not fail unless the device is broken.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
