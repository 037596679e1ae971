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
	opaque [2]*backendtest.Opaque
	next   func(load bool) side
}

// Alloc takes memory of the side that is next.
func (b *biased) Alloc(t dtype.Type, rows, cols int) (backend.Tensor, error) {
	return b.device.alloc(b.next(false), t, rows, cols)
}

// Load loads onto the side that is next.
func (b *biased) Load(c backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	return b.device.load(b.next(true), c, stack...)
}

// Break implements backendtest.Breakable.
func (b *biased) Break(err error) {
	s := b.next(true)
	b.opaque[s].Break(err)
}

// open is a device of two opaque devices.
func open(t *testing.T) *biased {
	t.Helper()
	b := &biased{}
	for i := range b.opaque {
		b.opaque[i] = backendtest.NewOpaque(backendtest.Open(t, backend.Options{Threads: 1}))
	}
	d, err := New(b.opaque[0], b.opaque[1], func(backend.Part) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	b.Backend, b.device = d, d.(*Device)
	return b
}

// TestSuite has every operation computed on either side, with operands on that side, on the other,
// and on both.
func TestSuite(t *testing.T) {
	weights, memory := device, device
	for name, next := range map[string]func(load bool) side{
		"device": func(bool) side { return device },
		"host":   func(bool) side { return host },
		"operands on the other": func(load bool) side {
			if load {
				return host
			}
			return device
		},
		// Weights that follow each other stay together, as those of experts must.
		"alternating": func(load bool) side {
			if load {
				return weights
			}
			if memory = memory.other(); memory == device {
				weights = weights.other()
			}
			return memory
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			b.next = next
			backendtest.Brief(t).Run(t, b)
		})
	}
}

// ladder is a network of four products, two on each side, with the embedding on the first: the host
// if it says so.
type ladder struct {
	b       *biased
	table   backend.Weight
	steps   []backend.Weight
	x, y    backend.Tensor
	allowed int // rows
}

func newLadder(t *testing.T, b *biased, first side) *ladder {
	t.Helper()
	l := &ladder{b: b, allowed: 6}
	load := func(s side, rows, cols int) backend.Weight {
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
	l.table = load(first, 32, 16)
	for i := range 4 {
		s := first
		if i >= 2 {
			s = first.other()
		}
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
	x, y := l.x.RowRange(0, len(ids)), l.y.RowRange(0, len(ids))
	p := backend.Pass{Of: l, IDs: ids, Batch: []backend.Seq{{N: len(ids)}}}
	l.b.Pass(p, func() {
		l.b.Embed(x, l.table, p.IDs)
		for _, w := range l.steps {
			l.b.MatMul(x, backend.Product{Dst: y, W: w})
			l.b.SwiGLU(y, y, y)
			l.b.MatMul(y, backend.Product{Dst: x, W: w, Add: true})
		}
	})
	numbers, err := l.b.Host(x)
	return slices.Clone(numbers), err
}

// TestRowsCrossABorderOnce counts copies between the devices.
func TestRowsCrossABorderOnce(t *testing.T) {
	for _, first := range []side{device, host} {
		l := newLadder(t, open(t), first)
		var before []float32
		for i, ids := range [][]int32{{1, 2, 3}, {4}, {1, 2, 3}, {5}, {1, 2, 3, 4, 5, 6}, {1, 2, 3}} {
			moved := l.b.device.moved
			got, err := l.climb(ids...)
			if err != nil {
				t.Fatal(err)
			}
			if n := l.b.device.moved - moved; n != 1 {
				t.Errorf("pass %d: %d copies, want 1", i, n)
			}
			if len(ids) == 3 {
				if before != nil && !slices.Equal(got, before) {
					t.Errorf("pass %d: %v, before %v", i, got, before)
				}
				before = got
			}
		}
	}
}

var errBroken = errors.New("broken")

// TestErrorsOfEitherDeviceComeOut breaks one, then the other: the error comes out once, and the next
// pass is sound.
func TestErrorsOfEitherDeviceComeOut(t *testing.T) {
	for _, first := range []side{device, host} {
		l := newLadder(t, open(t), first)
		want, err := l.climb(1, 2)
		if err != nil {
			t.Fatal(err)
		}
		for s := range l.b.opaque {
			l.b.opaque[s].Break(errBroken)
			if _, err := l.climb(1, 2); !errors.Is(err, errBroken) {
				t.Errorf("side %d is broken: %v", s, err)
			}
			if got, err := l.climb(1, 2); err != nil || !slices.Equal(got, want) {
				t.Errorf("after an error of side %d: %v, %v, want %v", s, got, err, want)
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
	b := open(t)
	f := &full{Backend: b.device.dev[device]}
	b.device.dev[device] = f
	l := newLadder(t, b, host)
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
	want, err := newLadder(t, open(t), host).climb(1, 2)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, want %v, %v", got, want, err)
	}
}

// TestStateLiesWhereItsLayerIs looks at what memory is taken of each device.
func TestStateLiesWhereItsLayerIs(t *testing.T) {
	b := open(t)
	b.device.onHost = func(p backend.Part) bool { return p.Layer == 1 || p.Layer == 3 }
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
	if d, h := m.copies[device].Cols, m.copies[host].Cols; d != 107 || h != 250 || x.Cols != 357 {
		t.Errorf("%d columns on the device and %d on the host of %d", d, h, x.Cols)
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
}

// TestFreeMemoryIsThatOfTheFullerDevice has one byte of four of a page on the host.
func TestFreeMemoryIsThatOfTheFullerDevice(t *testing.T) {
	b := open(t)
	b.device.onHost = func(p backend.Part) bool { return p.Layer == 1 }
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
		b.device.dev = [2]backend.Backend{&full{Backend: b.opaque[0], free: c.device}, &full{Backend: b.opaque[1], free: c.host}}
		if got := b.device.FreeParts(parts, c.cols); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
		if got := b.FreeMemory(); got != min(c.device, c.host) {
			t.Errorf("%+v: %d bytes free", c, got)
		}
	}
}
