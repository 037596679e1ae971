package ptx

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Options of a Machine; the zero value is ready.
type Options struct {
	Seed    uint64 // of the order of warps and blocks
	Threads int    // blocks that run at once, 0: one
	Steps   int64  // instructions of the warps of a block before its launch fails, 0: 2^28
	Memory  int64  // bytes of all allocations, 0: 4 GiB
}

// A Machine has memory and executes kernels. One goroutine at a time may use it.
type Machine struct {
	options     Options
	allocations []*allocation // by the upper bits of an address, less one; nil: freed
	used        int64
	launch      uint64      // number of the last one
	floor       uint64      // the last that began after all before it had ended
	waits       atomic.Bool // a thread of the launch has done griddepcontrol.wait
	early       atomic.Bool // a thread has let the next launch begin before it waited
	atomics     sync.Mutex

	mu   sync.Mutex // protects the fields below
	idle map[shape][]*block
	kept int // blocks in idle
}

// A Fault is a forbidden operation of a kernel. Its launch has ended, and the output of the
// launch is undefined.
type Fault struct {
	Kernel string
	Block  [3]int
	Thread [3]int
	Line   int // of the text
	What   string

	order int // of the block among those of the launch
}

func (f *Fault) Error() string {
	return fmt.Sprintf("ptx: kernel %s, block %v, thread %v, line %d: %s", f.Kernel, f.Block, f.Thread, f.Line, f.What)
}

// NewMachine returns a Machine without memory.
func NewMachine(o Options) *Machine {
	if o.Threads == 0 {
		o.Threads = 1
	}
	if o.Steps == 0 {
		o.Steps = 1 << 28
	}
	if o.Memory == 0 {
		o.Memory = 4 << 30
	}
	return &Machine{options: o, floor: 1}
}

// An address is an allocation's number in the high bits and an offset in the low bits, so an overrun
// cannot reach another allocation. Windows of generic addresses are above all of them.
const (
	placeBits    = 40
	sharedWindow = 1 << 62
	localWindow  = 1<<62 + 1<<61
)

// allocation is a piece of memory with the last user of each word of four bytes.
type allocation struct {
	data []byte
	used []usage
}

// An AddressError is a use of device memory by the host that is out of bounds.
type AddressError struct {
	Address uint64
	Bytes   int64
	What    string
}

func (e *AddressError) Error() string {
	return fmt.Sprintf("ptx: %d bytes at %#x: %s", e.Bytes, e.Address, e.What)
}

// ErrMemory is returned when there is no memory left.
var ErrMemory = fmt.Errorf("ptx: out of memory")

// Alloc returns the address of memory with arbitrary content.
func (m *Machine) Alloc(bytes int64) (uint64, error) {
	if bytes <= 0 {
		return 0, &AddressError{Bytes: bytes, What: "an allocation of nothing"}
	}
	if m.used+bytes > m.options.Memory {
		return 0, ErrMemory
	}
	m.used += bytes
	words := (bytes + 3) / 4
	a := &allocation{data: make([]byte, bytes), used: make([]usage, words)}
	fillBytes(a.data, 0xa5) // as good as any
	m.allocations = append(m.allocations, a)
	return uint64(len(m.allocations)) << placeBits, nil
}

// Free frees memory; its address is never used again.
func (m *Machine) Free(address uint64) error {
	i := address>>placeBits - 1
	if i >= uint64(len(m.allocations)) || m.allocations[i] == nil || address<<(64-placeBits) != 0 {
		return &AddressError{Address: address, What: "not the address of an allocation"}
	}
	m.used -= int64(len(m.allocations[i].data))
	m.allocations[i] = nil
	return nil
}

// at returns bytes of an allocation, which they must not leave.
func (m *Machine) at(address uint64, bytes int64) ([]byte, error) {
	i, place := address>>placeBits-1, int64(address&(1<<placeBits-1))
	if i >= uint64(len(m.allocations)) || m.allocations[i] == nil {
		return nil, &AddressError{address, bytes, "no allocation has this address"}
	}
	data := m.allocations[i].data
	if bytes < 0 || place+bytes > int64(len(data)) {
		return nil, &AddressError{address, bytes, fmt.Sprintf("beyond an allocation of %d bytes", len(data))}
	}
	return data[place : place+bytes], nil
}

// Write copies from the host.
func (m *Machine) Write(address uint64, data []byte) error {
	to, err := m.at(address, int64(len(data)))
	if err == nil {
		copy(to, data)
	}
	return err
}

// Read copies to the host.
func (m *Machine) Read(data []byte, address uint64) error {
	from, err := m.at(address, int64(len(data)))
	if err == nil {
		copy(data, from)
	}
	return err
}

// Copy copies on the device.
func (m *Machine) Copy(to, from uint64, bytes int64) error {
	dst, err := m.at(to, bytes)
	if err != nil {
		return err
	}
	src, err := m.at(from, bytes)
	if err == nil {
		copy(dst, src)
	}
	return err
}

// Set fills memory with a byte.
func (m *Machine) Set(address uint64, value byte, bytes int64) error {
	to, err := m.at(address, bytes)
	fillBytes(to, value)
	return err
}

func fillBytes(to []byte, value byte) {
	for n := copy(to, []byte{value}); n < len(to); n *= 2 {
		copy(to[n:], to[:n])
	}
}
