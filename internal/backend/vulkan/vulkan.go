package vulkan

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/gpu"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
	"github.com/foretoken/foretoken/internal/backend/vulkan/spirv"
)

// Options of New.
type Options struct {
	Kernels fs.FS        // has kernels.spv.gz
	Level   Level        // of the arithmetic; Probe finds it
	Slab    int64        // bytes of memory per allocation of the driver; 0: 256 MB
	Staging int64        // bytes of host memory for uploads; 0: 16 MB
	Log     *slog.Logger // nil: warnings go to the default one
	Number  int          // see backend.Options
	Auto    bool         // likewise
	Prove   bool         // the device proves itself before it is used; otherwise the probe is all
	Proofs  string       // folder of proofs; "": none is kept
}

// Backend is a GPU. See backend.Backend for the contract of its methods.
type Backend struct {
	gpu.Tensors[driver.Ptr]
	dev     driver.Device
	info    driver.Info
	opts    Options
	modules map[string]spirv.Module
	kernels map[string]driver.Kernel
	args    []byte // of the launch that is being made

	memory     gpu.Arena[driver.Ptr]
	weights    map[*weight]struct{}
	staged     pinned
	stagedUsed int
	host       pinned  // the last result of Host
	within     scratch // of operations of passes
	outside    scratch // of others
	call       callBlock
	queue      queue
	passes     passes
	together   bool   // operations do not wait for one another
	begun      bool   // one of them was queued
	shape      [2]int // of the product that is being launched: its outputs and columns
	made       rows   // of the launch that is being made: see launchMaking
	codes      func(group int) string
	tops       gpu.Tops
	spoil      operation // before every kernel, in a proof

	proof  *proof                   // nil: none is needed
	again  func() (*Backend, error) // opens the device once more, at the same level; nil: it cannot be
	matrix int                      // columns of cooperative matrices that are exact; 0: none are used
	tried  int                      // of the tiles of products, from 1 on; 0: the fastest
	places [3]int                   // where sums of such matrices lie: see kernels/product_matrix.comp

	err error // the first of the operations, until it is reported
}

var (
	_ backend.Backend = (*Backend)(nil)
	_ backend.Meter   = (*Backend)(nil)
)

// pinned is memory of the host that the device can copy.
type pinned struct {
	data []byte
	at   driver.Ptr
}

// New makes a backend of an open device, which the backend closes.
func New(dev driver.Device, info driver.Info, o Options) (*Backend, error) {
	o.Slab, o.Staging, o.Log = cmp.Or(o.Slab, 256<<20), cmp.Or(o.Staging, 16<<20), cmp.Or(o.Log, slog.Default())
	b := &Backend{dev: dev, info: info, opts: o, kernels: map[string]driver.Kernel{}, weights: map[*weight]struct{}{}}
	b.memory.Init(source{dev, &b.queue}, o.Slab)
	b.Init("vulkan", &b.memory, gpu.Device[driver.Ptr]{
		Begin: b.begin, Zero: b.zero, Send: b.send, Read: b.read, CopyRows: b.copyRows, At: b.at, Forget: func(m *gpu.Memory[driver.Ptr]) { b.passes.Forget(m) }, Fail: b.fail,
	})
	b.passes.Most = maxOperations
	var err error
	if b.modules, err = readModules(o.Kernels, &info); err != nil {
		return nil, err
	}
	b.queue.dev = dev
	b.staged.data, b.staged.at, err = dev.Pin(o.Staging)
	return b, err
}

// Name is the GPU.
func (b *Backend) Name() string {
	name := "vulkan"
	if n := b.opts.Number; n > 0 {
		name = fmt.Sprintf("vulkan:%d", n-1)
	}
	return fmt.Sprintf("%s %s, level %d", name, b.info.Name, b.opts.Level)
}

// Usage implements backend.Meter.
func (b *Backend) Usage() []backend.Usage {
	return b.passes.Usage(backend.Usage{Device: b.Name(), Memory: b.info.Memory, Used: b.memory.Taken()}, b.dev.Memory)
}

// FreeMemory is the free memory of the driver and of slabs.
func (b *Backend) FreeMemory() int64 {
	free, _, err := b.dev.Memory()
	if err != nil {
		return 0
	}
	return free + b.memory.Unused()
}

// Close frees all memory. Tensors and weights are invalid after it.
func (b *Backend) Close() error {
	if !b.Leave() {
		return nil
	}
	err := errors.Join(b.passes.Clear(), b.queue.close())
	for w := range b.weights {
		b.Unload(w)
	}
	err = errors.Join(err, b.memory.Close(), b.dev.Unpin(b.staged.at))
	if b.host.data != nil {
		err = errors.Join(err, b.dev.Unpin(b.host.at))
	}
	if closing := b.passes.CloseDevice(b.dev); err == nil || closing == nil {
		return closing // a lost device has failed in everything before
	}
	return err
}

// fail keeps the first error of the operations.
func (b *Backend) fail(err error) {
	if err != nil && b.err == nil {
		b.err = err
	}
}

// wait returns when all that was queued has ended, with the first error since the last call.
func (b *Backend) wait() error {
	err := b.queue.wait()
	b.stagedUsed = 0
	b.passes.Note()
	if b.err != nil {
		err, b.err = b.err, nil
	}
	return err
}

// begin is called first by every operation: the working memory of the previous one is free.
func (b *Backend) begin() { b.within.next, b.outside.next = 0, 0 }

// at is the address of a tensor's first number, for a kernel. A recorded pass that uses it is dropped with its memory.
func (b *Backend) at(t backend.Tensor) driver.Ptr {
	p := b.Address(t)
	if m, ok := t.Mem.(*gpu.Memory[driver.Ptr]); ok {
		b.passes.note(m)
	}
	return p
}

// launch queues a kernel on groups of threads, with arguments as its push constants have them.
func (b *Backend) launch(name string, groups [3]int, args ...any) {
	if b.err != nil || groups[0]*groups[1]*groups[2] == 0 {
		return
	}
	k, err := b.kernel(name)
	if err != nil {
		b.fail(err)
		return
	}
	if b.args = packed(b.args[:0], args...); len(b.args) > driver.PushBytes {
		panic(fmt.Sprintf("vulkan: %s has %d bytes of arguments", name, len(b.args)))
	}
	b.queueUp(operation{name: name, kernel: k, groups: groups, args: b.args})
}

// packed appends arguments as push constants have them.
func packed(to []byte, args ...any) []byte {
	le := binary.LittleEndian
	for _, a := range args {
		switch x := a.(type) {
		case driver.Ptr:
			for len(to)%8 != 0 {
				to = append(to, 0)
			}
			to = le.AppendUint64(to, uint64(x))
		case int:
			to = le.AppendUint32(to, uint32(i32(x)))
		case float32:
			to = le.AppendUint32(to, math.Float32bits(x))
		case bool:
			n := uint32(0)
			if x {
				n = 1
			}
			to = le.AppendUint32(to, n)
		default:
			panic(fmt.Sprintf("vulkan: argument %T", a))
		}
	}
	return to
}

// kernel is a kernel of the modules, compiled at its first use. A name may end with a colon and specialization constants from 1 on.
func (b *Backend) kernel(name string) (driver.Kernel, error) {
	if k := b.kernels[name]; k != nil {
		return k, nil
	}
	module, variant, _ := strings.Cut(name, ":")
	m, ok := b.modules[module]
	if !ok {
		return nil, fmt.Errorf("vulkan: no kernel %s", name)
	}
	m, err := withoutOthers(m, b.opts.Level)
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", name, err)
	}
	constants := []uint32{uint32(b.opts.Level)}
	for text := range strings.FieldsFuncSeq(variant, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		constants = append(constants, uint32(n))
	}
	k, err := b.dev.Kernel(m, constants)
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", name, err)
	}
	b.kernels[name] = k
	return k, nil
}

// i32 is a number as kernels have it.
func i32(n int) int32 {
	if n != int(int32(n)) {
		panic(fmt.Sprintf("vulkan: parameter %d does not fit in 32 bits", n))
	}
	return int32(n)
}

// missing fails with the operation that the backend does not have yet.
func (b *Backend) missing(what string) {
	b.fail(fmt.Errorf("vulkan: %s: not yet computed by this backend: use --device cuda or cpu", what))
}
