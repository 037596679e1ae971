package vulkan

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// probeOperands is how many triples of numbers the probe compares for each operation.
const probeOperands = 1 << 16

// probed are the operations of kernels/probe.comp, in its order.
var probed = []struct {
	name string
	do   func(a, b, c float32) float32
}{
	{"a+b", func(a, b, _ float32) float32 { return a + b }},
	{"a-b", func(a, b, _ float32) float32 { return a - b }},
	{"a*b", func(a, b, _ float32) float32 { return a * b }},
	{"fma(a,b,c)", exactmath.FMA32},
	{"a/b", func(a, b, _ float32) float32 { return a / b }},
	{"sqrt(|a|)", func(a, _, _ float32) float32 { return float32(math.Sqrt(math.Abs(float64(a)))) }},
	{"exp(c)", func(_, _, c float32) float32 { return exactmath.Exp32(c) }},
	{"silu(c)", func(_, _, c float32) float32 { return exactmath.SiLU32(c) }},
	{"float16(a) as float32", func(a, _, _ float32) float32 { return dtype.FromF16(uint16(math.Float32bits(a) >> 16)) }},
	{"b rounded to float16", func(_, b, _ float32) float32 { return dtype.FromF16(dtype.ToF16(b)) }},
}

// operands are triples that are hard to compute with: any bits, numbers of like size, sums that cancel, and small results.
func operands(n int) (a, b, c []float32) {
	rng := rand.New(rand.NewPCG(1, 2))
	a, b, c = make([]float32, n), make([]float32, n), make([]float32, n)
	wild := func() float32 { return math.Float32frombits(rng.Uint32()) }
	mild := func() float32 { return (rng.Float32() - 0.5) * float32(math.Ldexp(1, rng.IntN(20)-10)) }
	for i := range a {
		switch i % 4 {
		case 0:
			a[i], b[i], c[i] = wild(), wild(), wild()
		case 1:
			a[i], b[i], c[i] = mild(), mild(), mild()
		case 2:
			a[i], b[i] = mild(), mild()
			c[i] = -a[i] * b[i]
		case 3:
			a[i] = math.Float32frombits(rng.Uint32()&0x80ffffff | uint32(rng.IntN(60))<<23)
			b[i] = math.Float32frombits(rng.Uint32()&0x807fffff | uint32(40+rng.IntN(120))<<23)
			c[i] = math.Float32frombits(rng.Uint32() & 0x81ffffff)
		}
	}
	return a, b, c
}

// cheapest are the levels in the order of their cost.
var cheapest = []Level{Instructions, FewGuards, Guarded, Doubles, GuardDoubles, AllGuarded, Integers}

// Probe sets the level to the first of a list, nil: of all, whose operations have the bits of the portable code. It chooses a level and
// does not prove it: a compiler may be exact in single operations and not in kernels. An error names the operation that is wrong
// at each level.
func (b *Backend) Probe(levels []Level) error {
	if levels == nil {
		levels = cheapest
	}
	a, x, c := operands(probeOperands)
	var wrong []string
	for _, level := range levels {
		what, err := b.tryLevel(level, a, x, c)
		if err != nil {
			return err
		}
		if what == "" {
			return nil
		}
		wrong = append(wrong, fmt.Sprintf("level %d: %s", level, what))
	}
	return errors.New(others + strings.Join(wrong, "; "))
}

// others begins the error of a device that is refused.
const others = "the device computes other results than the CPU: "

// tryLevel sets a level and probes it over some operands. It returns what is wrong, or "".
func (b *Backend) tryLevel(level Level, x, y, z []float32) (string, error) {
	if level.double() && !b.info.Float64 {
		return "the device has no float64", nil
	}
	b.setLevel(level)
	return b.probe(x, y, z)
}

// setLevel changes the level, and drops the kernels of another one.
func (b *Backend) setLevel(level Level) {
	b.opts.Level = level
	b.fail(errors.Join(b.passes.Clear(), b.queue.wait()))
	for name, k := range b.kernels {
		k.Close()
		delete(b.kernels, name)
	}
}

// probe compares the operations over some operands. It returns the first difference, or "".
func (b *Backend) probe(x, y, z []float32) (string, error) {
	n := len(x)
	var at [4]driver.Ptr
	defer func() {
		for _, p := range at {
			b.fail(b.memory.Free(p))
		}
	}()
	for i, bytes := range []int{4 * n, 4 * n, 4 * n, 4 * n * len(probed)} {
		var err error
		if at[i], err = b.memory.Alloc(int64(bytes)); err != nil {
			return "", err
		}
	}
	for i, list := range [][]float32{x, y, z} {
		data := make([]byte, 0, 4*n)
		for _, f := range list {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(f))
		}
		if err := b.send(at[i], data); err != nil {
			return "", err
		}
	}
	b.launch("probe", [3]int{(n + rowThreads - 1) / rowThreads, 1, 1}, at[0], at[1], at[2], at[3], n)
	data, err := b.read(at[3], 4*n*len(probed))
	if err != nil {
		return "", err
	}
	for k, op := range probed {
		for i := range x {
			got, want := math.Float32frombits(binary.LittleEndian.Uint32(data[4*(k*n+i):])), op.do(x[i], y[i], z[i])
			if g, w := math.Float32bits(got), math.Float32bits(want); g != w && (got == got || want == want) { // NaN equals NaN
				return fmt.Sprintf("%s of 0x%08x, 0x%08x, 0x%08x is 0x%08x, want 0x%08x", op.name, math.Float32bits(x[i]), math.Float32bits(y[i]), math.Float32bits(z[i]), g, w), nil
			}
		}
	}
	return "", nil
}

// probeMatrix compares a product of cooperative matrices of signed bytes, and has them used if it is exact. It returns what is wrong, or "".
func (b *Backend) probeMatrix() (what string, err error) {
	depth := b.info.Matrix
	if depth == 0 {
		return "", nil
	}
	name := fmt.Sprintf("probe_matrix:%d", depth)
	if _, err := b.kernel(name); err != nil {
		return err.Error(), nil
	}
	rng, codes := rand.New(rand.NewPCG(5, 6)), make([]byte, 2*16*depth)
	for i := range codes {
		codes[i] = byte(rng.Uint32())
	}
	const sums = 256
	at, err := b.memory.Alloc(int64(len(codes)))
	if err != nil {
		return "", err
	}
	defer func() { b.fail(b.memory.Free(at)) }()
	dst, err := b.memory.Alloc(2 * 4 * sums)
	if err != nil {
		return "", err
	}
	defer func() { b.fail(b.memory.Free(dst)) }()
	if err := b.send(at, codes); err != nil {
		return "", err
	}
	b.launch(name, [3]int{1, 1, 1}, at, dst)
	data, err := b.read(dst, 2*4*sums)
	if err != nil {
		return "", err
	}
	wrong := 0
	for i := range sums {
		sum := int32(0)
		for k := range depth {
			sum += int32(int8(codes[i/16*depth+k])) * int32(int8(codes[(16+i%16)*depth+k]))
		}
		if int32(binary.LittleEndian.Uint32(data[4*i:])) != sum {
			wrong++
		}
	}
	if wrong > 0 {
		return fmt.Sprintf("%d of %d sums are wrong", wrong, sums), nil
	}
	if b.places, what = placesOf(data[4*sums:]); what == "" {
		b.matrix = depth
	}
	return what, nil
}

// placesOf is how much further the sums of a thread lie in a matrix of 16 rows and 16 outputs for each bit of their number, from the places
// of the eight sums of every thread. It says what is wrong unless kernels/product_matrix.comp finds every sum once by that.
func placesOf(data []byte) (places [3]int, wrong string) {
	place := func(i int) int { return int(int32(binary.LittleEndian.Uint32(data[4*i:]))) }
	places = [3]int{place(1) - place(0), place(2) - place(0), place(4) - place(0)}
	var found [256]bool
	for i := range found {
		p := place(i)
		if p < 0 || p >= len(found) || found[p] || p != place(i&^7)+i&1*places[0]+i>>1&1*places[1]+i>>2&1*places[2] {
			return places, fmt.Sprintf("sum %d of thread %d is at %d", i%8, i/8, p)
		}
		found[p] = true
	}
	return places, ""
}

// openOn opens the device of a number, as of backend.Options, or the first usable one, at the cheapest level that the probe finds exact.
// Unless a device was named it opens the first discrete GPU that is not refused.
func openOn(d driver.Driver, o Options, levels []Level) (*Backend, error) {
	infos, err := d.Devices()
	if err == nil && len(infos) == 0 {
		err = &driver.Error{Call: "vkEnumeratePhysicalDevices", Code: driver.Incompatible}
	}
	if err == nil && o.Number > len(infos) {
		err = fmt.Errorf("there is no GPU %d: the last is vulkan:%d", o.Number-1, len(infos)-1)
	}
	if err != nil {
		return nil, fmt.Errorf("vulkan: %w: %w", backend.ErrUnavailable, err)
	}
	if !o.Auto {
		i := max(0, o.Number-1)
		for o.Number == 0 && i < len(infos)-1 && infos[i].Missing != "" {
			i++
		}
		return openDevice(d, i, infos[i], o, levels)
	}
	var refused []error
	for i, info := range infos {
		if info.Kind != driver.Discrete {
			refused = append(refused, fmt.Errorf("auto selects discrete GPUs, and %s is none: use --device vulkan", info.Name))
			continue
		}
		if i > 0 {
			o.Number = i + 1
		}
		b, err := openDevice(d, i, info, o, levels)
		if err == nil {
			return b, nil
		}
		if info.Missing == "" {
			cmp.Or(o.Log, slog.Default()).Warn("vulkan: the GPU is not used", "error", err)
		}
		refused = append(refused, err)
	}
	return nil, fmt.Errorf("vulkan: %w: %w", backend.ErrUnavailable, errors.Join(refused...))
}

// openDevice opens device i of a driver.
func openDevice(d driver.Driver, i int, info driver.Info, o Options, levels []Level) (*Backend, error) {
	if info.Missing != "" {
		return nil, fmt.Errorf("vulkan: %w: %s: %s", backend.ErrUnavailable, info.Name, info.Missing)
	}
	dev, err := d.Open(i)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", info.Name, err)
	}
	b, err := New(dev, info, o)
	if err != nil {
		_ = dev.Close() // err came first
		return nil, fmt.Errorf("%s: %w", info.Name, err)
	}
	b.again = func() (*Backend, error) {
		dev, err := d.Open(i)
		if err != nil {
			return nil, err
		}
		w, err := New(dev, info, Options{Kernels: o.Kernels, Level: b.opts.Level, Slab: 32 << 20, Log: o.Log})
		if err != nil {
			return nil, errors.Join(err, dev.Close())
		}
		w.matrix, w.places = b.matrix, b.places
		return w, nil
	}
	wrong, err := b.probeMatrix()
	if wrong != "" {
		b.opts.Log.Warn("vulkan: cooperative matrices of the device are not used", "device", info.Name, "reason", wrong)
	}
	switch {
	case err != nil: // it is returned
	case o.Prove:
		err = b.prove(levels)
	default:
		err = b.Probe(levels)
	}
	if err != nil {
		_ = b.Close() // err came first
		return nil, fmt.Errorf("vulkan: %s: %w", info.Name, err)
	}
	return b, nil
}
