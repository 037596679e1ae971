package split

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
)

// biased is a device whose weights and memory of no part lie where a test says.
type biased struct {
	backend.Backend
	device *Device
	opaque []*backendtest.Opaque
	next   func(load bool) int
}

// Alloc takes memory of the device that is next.
func (b *biased) Alloc(t dtype.Type, rows, cols int) (backend.Tensor, error) {
	return b.device.alloc(b.next(false), t, rows, cols)
}

// Load loads onto the device that is next.
func (b *biased) Load(c backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	return b.device.load(b.next(true), c, stack...)
}

// Break implements conformance.Breakable: the device that computes the next operation fails.
func (b *biased) Break(err error) {
	for _, o := range b.opaque {
		o.Break(err)
	}
}

// GLU is the operation after Break.
func (b *biased) GLU(dst, gate, up backend.Tensor, f backend.Activation) {
	b.Backend.GLU(dst, gate, up, f)
	for _, o := range b.opaque {
		o.BreakAt(0, nil)
	}
}

// open is a device of opaque devices.
func open(t *testing.T, n int) *biased {
	t.Helper()
	b := &biased{}
	var list []backend.Backend
	for range n {
		o := backendtest.NewOpaque(backendtest.Open(t, backend.Options{Threads: 1}))
		b.opaque, list = append(b.opaque, o), append(list, o)
	}
	d, err := New(func(backend.Part) int { return 0 }, list...)
	if err != nil {
		t.Fatal(err)
	}
	b.Backend, b.device = d, d.(*Device)
	return b
}

// TestSuite has every operation computed on one of 2, 3 or 4 devices, with operands on that one, on another,
// and on several.
func TestSuite(t *testing.T) {
	for name, c := range map[string]struct {
		devices int
		next    func() func(load bool) int
	}{
		"the last of four": {4, func() func(bool) int { return func(bool) int { return 3 } }},
		"operands on another of two": {2, func() func(bool) int {
			return func(load bool) int {
				if load {
					return 1
				}
				return 0
			}
		}},
		"alternating three": {3, alternating},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, c.devices)
			b.next = c.next()
			backendtest.Brief(t).Run(t, b)
		})
	}
}

// alternating has memory on one device after the other. Weights that follow each other stay together, as those of
// experts must.
func alternating() func(load bool) int {
	const devices = 3
	weights, memory := 0, 0
	return func(load bool) int {
		if load {
			return weights
		}
		if memory = (memory + 1) % devices; memory == 0 {
			weights = (weights + 1) % devices
		}
		return memory
	}
}

// ladder is a network of four products, with the embedding.
type ladder struct {
	b       *biased
	table   backend.Weight
	steps   []backend.Weight
	x, y    backend.Tensor
	allowed int // rows
}

// newLadder has products on some devices, the embedding on that of the first.
func newLadder(t *testing.T, b *biased, on ...int) *ladder {
	t.Helper()
	l := &ladder{b: b, allowed: 6}
	load := func(s int, rows, cols int) backend.Weight {
		m := dtype.Matrix{Rows: rows, Cols: cols, Type: dtype.F32, Data: make([]byte, 4*rows*cols)}
		numbers := make([]float32, rows*cols)
		for i := range numbers {
			numbers[i] = float32(math.Sin(float64(i + rows)))
		}
		dtype.FromF32(m.Data, dtype.F32, numbers)
		w, err := b.device.load(s, backend.Float32, m)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	l.table = load(on[0], 32, 16)
	for _, s := range on {
		l.steps = append(l.steps, load(s, 16, 16))
	}
	for _, x := range []*backend.Tensor{&l.x, &l.y} {
		var err error
		if *x, err = b.device.Alloc(dtype.F32, l.allowed, 16); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// climb is a pass over some tokens.
func (l *ladder) climb(ids ...int32) ([]float32, error) {
	l.queue(ids...)
	numbers, err := l.b.Host(l.x.RowRange(0, len(ids)))
	return slices.Clone(numbers), err
}

func (l *ladder) queue(ids ...int32) {
	x, y := l.x.RowRange(0, len(ids)), l.y.RowRange(0, len(ids))
	p := backend.Pass{Of: l, IDs: ids, Batch: []backend.Seq{{N: len(ids)}}}
	l.b.Pass(p, func() {
		l.b.Embed(x, l.table, p.IDs, 0)
		for _, w := range l.steps {
			l.b.MatMul(x, backend.Product{Dst: y, W: w})
			l.b.GLU(y, y, y, backend.SiLU)
			l.b.MatMul(y, backend.Product{Dst: x, W: w, Add: true})
		}
	})
}

// TestRowsCrossABorderOnce counts copies between the devices, and their bytes, in every placement of four
// products on four devices. A device that computes between others and one at the end are asked once for a result.
func TestRowsCrossABorderOnce(t *testing.T) {
	want := map[int][]float32{}
	for i := range 256 {
		on := []int{i % 4, i / 4 % 4, i / 16 % 4, i / 64}
		l := newLadder(t, open(t, 4), on...)
		borders := 0
		for i := range on[1:] {
			if on[i] != on[i+1] {
				borders++
			}
		}
		for i, ids := range [][]int32{{1, 2, 3}, {4}, {1, 2, 3}, {1, 2, 3, 4, 5, 6}, {1, 2, 3}} {
			moved, crossed := l.b.device.moved, l.b.device.crossed
			got, err := l.climb(ids...)
			if err != nil {
				t.Fatal(err)
			}
			if n, bytes := l.b.device.moved-moved, l.b.device.crossed-crossed; n != int64(borders) || bytes != int64(borders*len(ids)*16*4) {
				t.Errorf("%v, pass %d: %d copies of %d bytes, want %d", on, i, n, bytes, borders)
			}
			if want[len(ids)] == nil {
				want[len(ids)] = got
			} else if !slices.Equal(got, want[len(ids)]) {
				t.Errorf("%v, pass %d: %v, want %v", on, i, got, want[len(ids)])
			}
			if slices.Contains(l.b.device.busy, true) {
				t.Errorf("%v: %v still to be waited for", on, l.b.device.busy)
			}
		}
	}
}

// TestCopiesAreReadWhereTheyAre has one device write a tensor in three parts, which others read: what is new on a
// device is not copied there again, and comes from a device that has it.
func TestCopiesAreReadWhereTheyAre(t *testing.T) {
	b := open(t, 4)
	d := b.device
	x, err := d.Alloc(dtype.F32, 3, 4)
	if err != nil {
		t.Fatal(err)
	}
	for s := range 3 { // row s is new on device s
		d.last = s
		if err := d.memory(x).reserve(s); err != nil {
			t.Fatal(err)
		}
		d.queue(s).Fill(d.on(s, x.RowRange(s, s+1)), float32(s+1))
		d.wrote(s, x.RowRange(s, s+1))
	}
	moved := d.moved
	if err := d.bring(3, x); err != nil || d.moved != moved+3 {
		t.Fatalf("%d copies, want 3: %v", d.moved-moved, err)
	}
	if err := d.bring(0, x); err != nil || d.moved != moved+5 {
		t.Fatalf("%d copies, want 2 more: %v", d.moved-moved, err)
	}
	d.queue(3).Fill(d.on(3, x.ColRange(1, 2)), 9)
	d.wrote(3, x.ColRange(1, 2))
	for s := range 4 {
		if err := d.bring(s, x); err != nil {
			t.Fatal(err)
		}
		got, err := d.dev[s].Host(d.on(s, x))
		if want := []float32{1, 9, 1, 1, 2, 9, 2, 2, 3, 9, 3, 3}; err != nil || !slices.Equal(got, want) {
			t.Errorf("device %d has %v, want %v, %v", s, got, want, err)
		}
	}
}

var errBroken = errors.New("broken")

// TestErrorsOfAnyDeviceComeOut breaks one after the other: the error comes out once, and the next
// pass is sound.
func TestErrorsOfAnyDeviceComeOut(t *testing.T) {
	for _, on := range [][]int{{0, 0, 1, 1}, {1, 1, 0, 0}, {0, 1, 2, 0}, {2, 1, 0, 1}} {
		l := newLadder(t, open(t, slices.Max(on)+1), on...)
		want, err := l.climb(1, 2)
		if err != nil {
			t.Fatal(err)
		}
		for s := range l.b.opaque {
			l.b.opaque[s].Break(errBroken)
			if _, err := l.climb(1, 2); !errors.Is(err, errBroken) {
				t.Errorf("device %d is broken: %v", s, err)
			}
			if got, err := l.climb(1, 2); err != nil || !slices.Equal(got, want) {
				t.Errorf("after an error of device %d: %v, %v, want %v", s, got, err, want)
			}
		}
	}
}

// full is a device that has no memory for more.
type full struct {
	backend.Backend
	is   bool
	free int64
}

func (f *full) FreeMemory() int64 { return f.free }

func (f *full) Alloc(t dtype.Type, rows, cols int) (backend.Tensor, error) {
	if f.is {
		return backend.Tensor{}, errBroken
	}
	return f.Backend.Alloc(t, rows, cols)
}

// TestAFullDeviceIsAnError has no memory where activations are first needed: the pass fails, and the
// next one that finds some does not.
func TestAFullDeviceIsAnError(t *testing.T) {
	b := open(t, 2)
	f := &full{Backend: b.device.dev[0]}
	b.device.dev[0] = f
	l := newLadder(t, b, 1, 1, 0, 0)
	f.is = true
	if _, err := l.climb(1, 2); !errors.Is(err, errBroken) {
		t.Errorf("without memory: %v", err)
	}
	part := []backend.Part{{Layer: 0}}
	if _, err := b.device.AllocParts(dtype.I8, part, []int{64}); !errors.Is(err, errBroken) {
		t.Errorf("a page without memory: %v", err)
	}
	f.is = false
	got, err := l.climb(1, 2)
	if err != nil {
		t.Fatal(err)
	}
	want, err := newLadder(t, open(t, 2), 1, 1, 0, 0).climb(1, 2)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, want %v, %v", got, want, err)
	}
}

// TestStateLiesWhereItsLayerIs looks at what memory is taken of each device.
func TestStateLiesWhereItsLayerIs(t *testing.T) {
	b := open(t, 3)
	b.device.place = func(p backend.Part) int { return []int{0, 2, 1, 2, 1}[p.Layer] }
	var parts []backend.Part
	cols := []int{100, 200, 0, 50, 7}
	for i := range cols {
		parts = append(parts, backend.Part{Layer: i})
	}
	x, err := b.device.AllocParts(dtype.I8, parts, cols)
	if err != nil {
		t.Fatal(err)
	}
	m := x.Mem.(*memory)
	if a, b, c := m.copies[0].Cols, m.copies[1].Cols, m.copies[2].Cols; a != 100 || b != 7 || c != 250 || x.Cols != 357 {
		t.Errorf("%d, %d and %d columns on the devices of %d", a, b, c, x.Cols)
	}
	want := make([]byte, x.Cols)
	for i := range want {
		want[i] = byte(i * 7)
	}
	if err := b.WriteBytes(x, want); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, x.Cols)
	if err := b.ReadBytes(got, x); err != nil || !slices.Equal(got, want) {
		t.Errorf("read %v, %v; want %v", got, err, want)
	}
	part := make([]byte, 60)
	if err := b.ReadBytes(part, x.ColRange(280, 340)); err != nil || !slices.Equal(part, want[280:340]) {
		t.Errorf("columns 280 to 340 are %v, %v; want %v", part, err, want[280:340])
	}
	y, err := b.device.AllocParts(dtype.I8, parts, cols)
	if err != nil {
		t.Fatal(err)
	}
	b.Copy(y, x)
	b.Free(x)
	if err := b.ReadBytes(got, y); err != nil || !slices.Equal(got, want) {
		t.Errorf("the copy is %v, %v; want %v", got, err, want)
	}
	z, err := b.device.AllocParts(dtype.F32, parts, cols)
	if err != nil {
		t.Fatal(err)
	}
	matrix := z.ColRange(100, 300) // of layer 1
	matrix.Rows, matrix.Cols, matrix.Stride = 10, 20, 20
	numbers := make([]float32, 200)
	for i := range numbers {
		numbers[i] = float32(i)
	}
	if err := b.Write(matrix, numbers); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Host(matrix.RowRange(3, 5)); err != nil || !slices.Equal(got, numbers[60:100]) {
		t.Errorf("a layer's state is %v, %v", got, err)
	}
}

// TestFreeMemoryIsThatOfTheFullerDevice has one byte of four of a page on the host.
func TestFreeMemoryIsThatOfTheFullerDevice(t *testing.T) {
	b := open(t, 2)
	b.device.place = func(p backend.Part) int { return p.Layer }
	parts := []backend.Part{{Layer: 0}, {Layer: 1}}
	for _, c := range []struct {
		device, host int64
		cols         []int
		want         int64
	}{
		{600, 1000, []int{3, 1}, 800},
		{6000, 1000, []int{3, 1}, 4000},
		{0, 1000, []int{0, 1}, 1000},
		{600, 0, []int{1, 0}, 600},
		{600, 1000, []int{0, 0}, 600},
	} {
		b.device.dev = []backend.Backend{&full{Backend: b.opaque[0], free: c.device}, &full{Backend: b.opaque[1], free: c.host}}
		if got := b.device.FreeParts(parts, c.cols); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
		if got := b.FreeMemory(); got != min(c.device, c.host) {
			t.Errorf("%+v: %d bytes free", c, got)
		}
	}
}
