package cuda

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/cuda/ptxpack"
)

// load brings the module of that name to the device, once.
func (b *Backend) load(name string) (driver.Module, error) {
	if m := b.modules[name]; m != nil {
		return m, nil
	}
	text, err := readText(b.opts.Kernels, name)
	if err != nil {
		return nil, fmt.Errorf("kernels of %s: %w", name, err)
	}
	m, err := b.dev.Load(textFor(text, b.info.Compute))
	if err != nil {
		return nil, fmt.Errorf("kernels of %s: %w", name, err)
	}
	b.modules[name] = m
	for kernel, ends := range paramEnds(text) {
		b.ends[name+"."+kernel] = ends
	}
	return m, nil
}

// paramEnds is where the parameters of each kernel of a text end, in bytes from the first.
func paramEnds(text string) map[string][]int {
	kernels := map[string][]int{}
	for _, entry := range strings.Split(text, ".entry ")[1:] {
		head, _, _ := strings.Cut(entry, ")")
		name, list, _ := strings.Cut(head, "(")
		ends, at := []int{}, 0
		for _, m := range param.FindAllStringSubmatch(list, -1) {
			align, _ := strconv.Atoi(m[1])
			size, _ := strconv.Atoi(m[2])
			length, _ := strconv.Atoi(m[3])
			size /= 8
			at = (at+max(size, align)-1)/max(size, align)*max(size, align) + size*max(1, length)
			ends = append(ends, at)
		}
		kernels[strings.TrimSpace(name)] = ends
	}
	return kernels
}

// param is the declaration of a parameter: its alignment, bits of a number, name, and how many numbers.
var param = regexp.MustCompile(`\.param (?:\.align (\d+) )?\.[a-z](\d+) \w+(?:\[(\d+)\])?`)

// readText is the PTX of a module.
func readText(kernels fs.FS, name string) (string, error) {
	file, err := kernels.Open(name + ".ptx.pack")
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // read only
	return ptxpack.Unpack(file)
}

// textFor is a text for a compute capability. Texts are of 9.0, of which kernels use one feature that
// 8.0 does not have: they begin before earlier kernels have ended, and wait for them.
func textFor(text string, compute [2]int) string {
	if compute[0] >= 9 {
		return text
	}
	var old strings.Builder
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, ".target sm_90"):
			line = ".target sm_80\n"
		case strings.Contains(line, "griddepcontrol"):
			continue
		}
		old.WriteString(line)
	}
	return old.String()
}

// loaded is a kernel.
type loaded struct {
	driver.Function
	shared int   // dynamic shared memory that launches may ask for
	ends   []int // of its parameters: see paramEnds
}

// function is a kernel by its module and name, "rowwise.rms_norm", for launches with shared bytes of dynamic
// shared memory.
func (b *Backend) function(kernel string, shared int) (*loaded, error) {
	f := b.functions[kernel]
	if f == nil {
		module, name, _ := strings.Cut(kernel, ".")
		m, err := b.load(module)
		if err != nil {
			return nil, err
		}
		found, err := m.Function(name)
		if err != nil {
			return nil, fmt.Errorf("cuda: kernel %s: %w", kernel, err)
		}
		f = &loaded{Function: found, ends: b.ends[kernel]}
		b.functions[kernel] = f
		if err := b.share(kernel, f); err != nil {
			return nil, fmt.Errorf("cuda: kernel %s: %w", kernel, err)
		}
	}
	if shared > f.shared { // the driver allows 48 KB including static memory, whose size it does not report
		if err := f.AllowShared(shared); err != nil {
			return nil, fmt.Errorf("cuda: kernel %s needs %d bytes of shared memory, but a block has %d: %w", kernel, shared, b.info.Shared, err)
		}
		f.shared = shared
	}
	return f, nil
}

// allows reports whether a block has shared bytes of dynamic shared memory for a kernel, beside the kernel's own. Blocks of
// desktop GPUs have 99 KB, of an H200 227.
func (b *Backend) allows(kernel string, shared int) bool {
	if shared > b.info.Shared {
		return false
	}
	_, err := b.function(kernel, shared)
	return err == nil
}

// share makes all kernels prefer shared memory once there is one with its row there. If kernels differ in
// their L1 cache, one cannot begin before the other has ended, and a second block finds no
// space; if no kernel has its row there, the cache is worth more.
func (b *Backend) share(kernel string, f *loaded) error {
	_, name, _ := strings.Cut(kernel, ".")
	if !b.shares && (strings.HasSuffix(kernel, rowKernel) || strings.HasSuffix(kernel, gateKernel) || strings.HasPrefix(name, "one_") || strings.HasPrefix(name, "narrow_")) {
		b.shares = true
		for _, other := range b.functions {
			if err := other.PreferShared(); err != nil {
				return err
			}
		}
		return nil
	}
	if b.shares {
		return f.PreferShared()
	}
	return nil
}

// occupancy is the number of blocks of a kernel that the device runs at once, at least one: the
// grid of a kernel that loops over its work.
func (b *Backend) occupancy(kernel string, threads, shared int) int {
	f, err := b.function(kernel, shared)
	n := 0
	if err == nil {
		n, err = f.Occupancy(threads, shared)
	}
	b.fail(err)
	return max(1, n*b.info.Multiprocessors)
}

// grid is the shape of a launch: blocks, of which dimensions that are zero count as one, but if
// the first is zero there is nothing to do; threads of a block; bytes of dynamic shared memory.
type grid struct {
	x, y, z int
	threads int
	shared  int
}

// launch queues a kernel, "rowwise.rms_norm", with its parameters in C layout: a driver.Ptr
// is a pointer, an int and a bool are ints of 32 bits, a []byte is a structure, the others have their size.
// An error is kept for the next blocking call.
func (b *Backend) launch(kernel string, g grid, args ...any) {
	b.launchAs(kernel, "", g, args...)
}

// launchAs is launch with a label of the kernel's purpose.
func (b *Backend) launchAs(kernel, what string, g grid, args ...any) {
	if b.err != nil || g.x == 0 {
		return
	}
	f, err := b.function(kernel, g.shared)
	if err != nil {
		b.fail(err)
		return
	}
	params := b.args.pack(args)
	if !slices.Equal(b.args.ends, f.ends) {
		panic(fmt.Sprintf("cuda: parameters of %s end at bytes %v, but its PTX has %v", kernel, b.args.ends, f.ends))
	}
	_, name, _ := strings.Cut(kernel, ".")
	b.queue(operation{what: name + what, launch: driver.Launch{
		Function: f.Function, Grid: [3]int{g.x, max(1, g.y), max(1, g.z)}, Block: [3]int{g.threads, 1, 1}, Shared: g.shared, Params: params,
	}})
}

// arguments are the parameters of a launch, in memory that the next launch has again.
type arguments struct {
	data []byte
	ends []int // of each
}

func (a *arguments) align(n int) {
	for len(a.data)%n != 0 {
		a.data = append(a.data, 0)
	}
}

func (a *arguments) u32(x uint32) {
	a.align(4)
	a.data = binary.LittleEndian.AppendUint32(a.data, x)
}

func (a *arguments) u64(x uint64) {
	a.align(8)
	a.data = binary.LittleEndian.AppendUint64(a.data, x)
}

// pack lays values out as C does.
func (a *arguments) pack(values []any) []byte {
	a.data, a.ends = a.data[:0], a.ends[:0]
	for _, v := range values {
		switch v := v.(type) {
		case driver.Ptr:
			a.u64(uint64(v))
		case []byte: // a structure: see raw
			a.align(8)
			a.data = append(a.data, v...)
		case int:
			a.u32(uint32(i32(v)))
		case bool:
			a.u32(uint32(b32(v)))
		case float32:
			a.u32(math.Float32bits(v))
		case int64:
			a.u64(uint64(v))
		default:
			panic("cuda: parameter of an unknown type") // %T would have all values escape
		}
		a.ends = append(a.ends, len(a.data))
	}
	return a.data
}

// raw is the bytes of structures that kernels have in common with Go: structs.go is made from their sources.
func raw[T params](s ...T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// i32 is a number as kernels have it.
func i32(n int) int32 {
	if n != int(int32(n)) {
		panic(fmt.Sprintf("cuda: parameter %d does not fit in 32 bits", n))
	}
	return int32(n)
}

// b32 is a bool as kernels have it.
func b32(b bool) int32 {
	if b {
		return 1
	}
	return 0
}
