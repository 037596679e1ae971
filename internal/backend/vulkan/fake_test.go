package vulkan

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// fake is a device without a GPU: it copies memory, and executes the kernel of the probe with an arithmetic of its own.
type fake struct {
	instructions
	memory map[driver.Ptr][]byte
	limit  int64 // of memory; 0: none
	last   driver.Ptr
	fail   map[string]error // by method

	full    bool // from the first kernel on, but for the probe
	kernels int  // that were compiled
}

// instructions are those of a device.
type instructions struct {
	add, mul func(a, b float32) float32
	fma      func(a, b, c float32) float32
	sqrt     func(x float32) float32
}

func multiply(a, b float32) float32 { return a * b }
func plus(a, b float32) float32     { return a + b }
func unfused(a, b, c float32) float32 {
	p := a * b
	return p + c
}

func root(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// flush is x, or zero with its sign if it is subnormal.
func flush(x float32) float32 {
	if b := math.Float32bits(x); b>>23&255 == 0 {
		return math.Float32frombits(b & (1 << 31))
	}
	return x
}

func newFake() *fake {
	return &fake{instructions: instructions{plus, multiply, exactmath.FMA32, root}, memory: map[driver.Ptr][]byte{}, fail: map[string]error{}}
}

func (f *fake) Memory() (free, total int64, err error) {
	total = 1 << 30
	if f.limit > 0 {
		total = f.limit
	}
	return total - f.used(), total, nil
}

func (f *fake) used() (n int64) {
	for _, m := range f.memory {
		n += int64(len(m))
	}
	return n
}

func (f *fake) Alloc(bytes int64) (driver.Ptr, error) {
	if f.limit > 0 && f.used()+bytes > f.limit || f.full && f.kernels > 0 && bytes < 4*probeOperands {
		return 0, &driver.Error{Call: "vkAllocateMemory", Code: driver.OutOfDeviceMemory}
	}
	f.last += 1 << 32
	f.memory[f.last] = make([]byte, bytes)
	return f.last, nil
}

func (f *fake) Free(at driver.Ptr) error { delete(f.memory, at); return nil }

func (f *fake) Pin(bytes int64) ([]byte, driver.Ptr, error) {
	f.last += 1 << 32
	f.memory[f.last] = make([]byte, bytes)
	return f.memory[f.last], f.last, nil
}

func (f *fake) Unpin(at driver.Ptr) error { return f.Free(at) }

// at is the memory from an address on.
func (f *fake) at(p driver.Ptr) []byte {
	base := p &^ (1<<32 - 1)
	return f.memory[base][p-base:]
}

type fakeKernel struct{ level Level }

func (fakeKernel) Close() {}

func (f *fake) Kernel(_, constants []uint32) (driver.Kernel, error) {
	f.kernels++
	if len(constants) > 1 && f.fail["Kernel with constants"] != nil {
		return nil, f.fail["Kernel with constants"]
	}
	return fakeKernel{Level(constants[0])}, f.fail["Kernel"]
}

func (f *fake) Commands() (driver.Commands, error) { return &fakeCommands{f: f}, nil }

func (f *fake) Submit(c driver.Commands) (uint64, error) {
	if err := f.fail["Submit"]; err != nil {
		return 0, err
	}
	for _, do := range c.(*fakeCommands).list {
		do()
	}
	return 1, nil
}

func (f *fake) Wait(uint64) error { return f.fail["Wait"] }
func (f *fake) Close() error {
	if err := f.fail["Submit"]; err != nil {
		return err
	}
	if n := f.used(); n > 0 {
		return fmt.Errorf("%d bytes were not freed", n)
	}
	return nil
}

type fakeCommands struct {
	f    *fake
	list []func()
}

func (c *fakeCommands) Fence()                  {}
func (c *fakeCommands) Mark(driver.Clock, int)  {}
func (f *fake) Clock(int) (driver.Clock, error) { return nil, f.fail["Clock"] }

func (c *fakeCommands) Begin() error { c.list = nil; return nil }
func (c *fakeCommands) End() error   { return nil }
func (c *fakeCommands) Close()       {}

func (c *fakeCommands) Copy(to, from driver.Ptr, bytes int64) {
	c.list = append(c.list, func() { copy(c.f.at(to)[:bytes], c.f.at(from)) })
}

func (c *fakeCommands) Set(to driver.Ptr, bytes int64) {
	c.list = append(c.list, func() { clear(c.f.at(to)[:bytes]) })
}

// Launch executes the probe, which is told by the length of its arguments. Other kernels compute nothing.
func (c *fakeCommands) Launch(k driver.Kernel, _ [3]int, args []byte) {
	if len(args) != 36 {
		return
	}
	var at [4]driver.Ptr
	for i := range at {
		at[i] = driver.Ptr(binary.LittleEndian.Uint64(args[8*i:]))
	}
	n := int(binary.LittleEndian.Uint32(args[32:]))
	l := levelOf{k.(fakeKernel).level, &c.f.instructions}
	c.list = append(c.list, func() {
		number := func(p driver.Ptr, i int) float32 {
			return math.Float32frombits(binary.LittleEndian.Uint32(c.f.at(p)[4*i:]))
		}
		for i := range n {
			x, y, z := number(at[0], i), number(at[1], i), number(at[2], i)
			results := [10]float32{l.add(x, y), l.add(x, -y), l.mul(x, y), l.fused(x, y, z)}
			for k := 4; k < len(results); k++ {
				results[k] = probed[k].do(x, y, z) // made of those above
			}
			results[5] = l.sqrt(float32(math.Abs(float64(x))))
			for k, r := range results {
				binary.LittleEndian.PutUint32(c.f.at(at[3])[4*(k*n+i):], math.Float32bits(r))
			}
		}
	})
}

// levelOf is the arithmetic of kernels/bits.glsl at a level, on the instructions of a device.
type levelOf struct {
	level Level
	*instructions
}

// small and tiny are those of kernels/bits.glsl.
func small(x float32) bool { return math.Float32bits(x)<<1-1 < 0x01ffffff }
func tiny(x float32) bool  { return math.Float32bits(x)<<1 < 0x02000000 }

func (l levelOf) add(a, b float32) float32 {
	r := l.instructions.add(a, b)
	if l.level == AllGuarded && (small(a) || small(b) || tiny(r)) {
		return exactmath.FMA32(a, 1, b)
	}
	return r
}

func (l levelOf) mul(a, b float32) float32 {
	r := l.instructions.mul(a, b)
	if l.level == AllGuarded && (small(a) || small(b) || tiny(r)) {
		return exactmath.FMA32(a, b, float32(math.Copysign(0, -1)))
	}
	return r
}

func (l levelOf) fused(a, b, c float32) float32 {
	if l.level == Integers {
		return exactmath.FMA32(a, b, c)
	}
	r := l.fma(a, b, c)
	if l.level.double() {
		r = exactmath.FMA32(a, b, c)
	}
	if l.level >= Guarded && (small(a) || small(b) || small(c) || tiny(r)) {
		return exactmath.FMA32(a, b, c)
	}
	return r
}
