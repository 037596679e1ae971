package ptx

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/foretoken/foretoken/internal/backend/cuda/ptxpack"
)

// rig is a machine and the kernels of a module, for tests.
type rig struct {
	testing.TB
	m      *Machine
	module *Module
}

// newRig is a machine with the kernels of a text.
func newRig(t testing.TB, o Options, text string) *rig {
	t.Helper()
	module, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{TB: t, m: NewMachine(o), module: module}
}

// kernelText is the text of a module of the backend.
func kernelText(t testing.TB, module string) string {
	t.Helper()
	file, err := os.Open("../../kernels/" + module + ".ptx.pack")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // read only
	text, err := ptxpack.Unpack(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// addresses are parameters that are pointers.
func addresses(list ...uint64) []byte {
	var out []byte
	for _, p := range list {
		out = binary.LittleEndian.AppendUint64(out, p)
	}
	return out
}

func (r *rig) alloc(bytes int) uint64 {
	r.Helper()
	p, err := r.m.Alloc(int64(bytes))
	if err != nil {
		r.Fatal(err)
	}
	return p
}

// zeros is memory for n floats.
func (r *rig) zeros(n int) uint64 {
	r.Helper()
	p := r.alloc(4 * n)
	if err := r.m.Set(p, 0, int64(4*n)); err != nil {
		r.Fatal(err)
	}
	return p
}

func (r *rig) bytes(data []byte) uint64 {
	r.Helper()
	p := r.alloc(len(data))
	if err := r.m.Write(p, data); err != nil {
		r.Fatal(err)
	}
	return p
}

func words(v []uint32) []byte {
	out := make([]byte, 0, 4*len(v))
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, x)
	}
	return out
}

// read returns n words.
func (r *rig) read(p uint64, n int) []uint32 {
	r.Helper()
	data := make([]byte, 4*n)
	if err := r.m.Read(data, p); err != nil {
		r.Fatal(err)
	}
	out := make([]uint32, n)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	return out
}

// try launches a kernel when all before it have ended, or when they let it begin.
func (r *rig) try(kernel string, blocks, threads int, dependent bool, params ...uint64) error {
	r.Helper()
	k := r.module.Kernel(kernel)
	if k == nil {
		r.Fatalf("there is no kernel %s", kernel)
	}
	return r.m.Launch(Launch{Kernel: k, Grid: [3]int{blocks, 1, 1}, Block: [3]int{threads, 1, 1}, Params: addresses(params...), Dependent: dependent})
}

func hash32(x uint64) uint32 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return uint32(x)
}
