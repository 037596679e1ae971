package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/gpu"
)

// Options of New.
type Options struct {
	Kernels fs.FS        // the PTX, NAME.ptx.pack
	Slab    int64        // bytes of memory per allocation of the driver; 0: 256 MB
	Staging int64        // bytes of pinned memory for uploads; 0: 16 MB
	Plain   bool         // record no passes
	Log     *slog.Logger // nil: warnings go to the default one
	Number  int          // see backend.Options
}

// Backend is a GPU. See backend.Backend for the contract of its methods.
type Backend struct {
	gpu.Tensors[driver.Ptr]
	dev    driver.Device
	info   driver.Info
	stream driver.Stream
	opts   Options

	modules   map[string]driver.Module
	functions map[string]*loaded
	ends      map[string][]int // of the parameters of all kernels of the modules
	shares    bool             // they prefer shared memory
	args      arguments        // of the launch that is being made

	memory  gpu.Arena[driver.Ptr]
	weights map[*weight]struct{}
	inputs  []*transformation // of weights' inputs
	staged  staging
	lanes   [2]driver.Stream // that weights come on
	host    []byte           // pinned: the last result of Host
	pieces  scratch
	outside scratch // of operations outside of passes
	codes   scratch // rows as integers, which the operation before may write: it works in pieces
	spare   scratch // those of the operation with some before it, which a product may still read that takes this one over
	call    callBlock
	passes  passes
	tops    gpu.Tops
	copies  copiesParam // of CopyEach
	draws   drawsParam  // of the running operation
	owned   []byte      // likewise: masks

	attention attention
	arrived   piece // counters of delta_few
	gates     piece // and of products that gate

	err error // the first of the operations, until it is reported
}

var (
	_ backend.Backend   = (*Backend)(nil)
	_ backend.Copier    = (*Backend)(nil)
	_ backend.Drawer    = (*Backend)(nil)
	_ backend.Meter     = (*Backend)(nil)
	_ backend.Rehearser = (*Backend)(nil)
)

// New makes a backend of an open device, which the backend closes.
func New(dev driver.Device, info driver.Info, o Options) (*Backend, error) {
	if info.Compute[0] < minCompute {
		return nil, fmt.Errorf("cuda: %s: %w: %s", info.Name, backend.ErrUnavailable, tooOld(info))
	}
	if o.Slab == 0 {
		o.Slab = 256 << 20
	}
	if o.Staging == 0 {
		o.Staging = 16 << 20
	}
	o.Log = cmp.Or(o.Log, slog.Default())
	stream, err := dev.Stream()
	if err != nil {
		return nil, err
	}
	b := &Backend{
		dev: dev, info: info, stream: stream, opts: o,
		modules: map[string]driver.Module{}, functions: map[string]*loaded{}, ends: map[string][]int{}, weights: map[*weight]struct{}{},
	}
	b.memory.Init(source{dev}, o.Slab)
	b.Init("cuda", &b.memory, gpu.Device[driver.Ptr]{
		Begin: b.begin, Zero: func(at driver.Ptr, bytes int64) error { return b.stream.Set(at, 0, bytes) }, Send: b.send, Read: b.read, CopyRows: b.copyRows, At: b.at, Forget: func(m *gpu.Memory[driver.Ptr]) { b.passes.Forget(m) }, Fail: b.fail,
	})
	b.passes.Most = maxOperations
	for i := range b.lanes {
		if b.lanes[i], err = dev.Stream(); err != nil {
			return nil, errors.Join(err, b.closeStreams())
		}
	}
	if b.staged.data, err = dev.Pin(o.Staging); err != nil {
		return nil, errors.Join(err, b.closeStreams())
	}
	return b, nil
}

// minCompute is the compute capability that the kernels are written for.
const minCompute = 8

// tooOld says what a device lacks.
func tooOld(info driver.Info) string {
	return fmt.Sprintf("compute capability %d.%d; the kernels need %d.0, which Ampere and later GPUs have", info.Compute[0], info.Compute[1], minCompute)
}

// Name is the GPU.
func (b *Backend) Name() string {
	name := "cuda"
	if n := b.opts.Number; n > 0 {
		name = fmt.Sprintf("cuda:%d", n-1)
	}
	return fmt.Sprintf("%s %s, compute %d.%d", name, b.info.Name, b.info.Compute[0], b.info.Compute[1])
}

// Usage implements backend.Meter.
func (b *Backend) Usage() []backend.Usage {
	return b.passes.Usage(backend.Usage{Device: b.Name(), Memory: b.info.Memory, Used: b.memory.Taken()}, b.dev.Memory)
}

// FreeMemory is the free memory of the driver and of slabs, minus the memory that attention
// will allocate.
func (b *Backend) FreeMemory() int64 {
	free, _, err := b.dev.Memory()
	if err != nil {
		return 0
	}
	free += b.memory.Unused()
	if !b.attention.split {
		free -= int64(b.splitBytes())
	}
	return max(0, free)
}

// Close frees all memory. Tensors and weights are invalid after it.
func (b *Backend) Close() error {
	if !b.Leave() {
		return nil
	}
	err := b.passes.Clear()
	for w := range b.weights {
		b.Unload(w)
	}
	err = errors.Join(err, b.memory.Close(), b.dev.Unpin(b.staged.data))
	if b.host != nil {
		err = errors.Join(err, b.dev.Unpin(b.host))
	}
	err = errors.Join(err, b.closeStreams())
	for _, m := range b.modules {
		err = errors.Join(err, m.Close())
	}
	if closing := b.passes.CloseDevice(b.dev); err == nil || closing == nil {
		return closing // a lost device has failed in everything before
	}
	return err
}

func (b *Backend) closeStreams() error {
	err := b.stream.Close()
	for _, lane := range b.lanes {
		if lane != nil {
			err = errors.Join(err, lane.Close())
		}
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
	err := b.stream.Wait()
	b.staged.used = 0
	b.passes.Note()
	if b.err != nil {
		err, b.err = b.err, nil
	}
	return err
}

// begin is called first by every operation: the working memory of the previous one is free.
func (b *Backend) begin() {
	if b.codes.next > 0 {
		b.codes, b.spare = b.spare, b.codes
	}
	b.pieces.next, b.outside.next, b.codes.next = 0, 0, 0
}

// at is the address of a tensor's first number, for a kernel. A recorded pass that uses it is
// dropped with its memory.
func (b *Backend) at(t backend.Tensor) driver.Ptr {
	p := b.Address(t)
	if m, ok := t.Mem.(*gpu.Memory[driver.Ptr]); ok {
		b.passes.note(m)
	}
	return p
}

// rank puts a GPU before the processor.
const rank = 10
