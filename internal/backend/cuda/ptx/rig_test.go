package ptx

import (
	"compress/gzip"
	"encoding/binary"
	"io"
	"math"
	"os"
	"sync"
	"testing"
)

// studyText is the text of study.cu, compiled; it is a third of a megabyte if it is not compressed.
var studyText = sync.OnceValues(func() (string, error) {
	file, err := os.Open("testdata/study.ptx.gz")
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // read only
	z, err := gzip.NewReader(file)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(z)
	return string(text), err
})

var study = sync.OnceValues(func() (*Module, error) {
	text, err := studyText()
	if err != nil {
		return nil, err
	}
	return Parse(text)
})

// rig is a machine and the kernels of a module, for tests.
type rig struct {
	testing.TB
	m      *Machine
	module *Module
	apart  bool // launches wait for those before them

	last    Launch
	patched *Module // one with a fault, for a scene
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	module, err := study()
	if err != nil {
		t.Fatal(err)
	}
	return &rig{TB: t, m: NewMachine(o), module: module}
}

// fields is a struct among parameters: aligned to eight bytes, as one with a pointer is.
type fields []any

// pack lays values out as C does.
func pack(values ...any) []byte {
	var out []byte
	align := func(n int) {
		for len(out)%n != 0 {
			out = append(out, 0)
		}
	}
	for _, v := range values {
		switch v := v.(type) {
		case uint64:
			align(8)
			out = binary.LittleEndian.AppendUint64(out, v)
		case int:
			align(4)
			out = binary.LittleEndian.AppendUint32(out, uint32(v))
		case float32:
			align(4)
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		case fields:
			align(8)
			out = append(out, pack(v...)...)
			align(8)
		default:
			panic(v)
		}
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

func (r *rig) write(p uint64, data []byte) {
	r.Helper()
	if err := r.m.Write(p, data); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) bytes(data []byte) uint64 {
	r.Helper()
	p := r.alloc(len(data))
	r.write(p, data)
	return p
}

func words(v []uint32) []byte {
	out := make([]byte, 0, 4*len(v))
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, x)
	}
	return out
}

func floatBytes(v []float32) []byte {
	out := make([]byte, 0, 4*len(v))
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

func (r *rig) floats(v []float32) uint64 { r.Helper(); return r.bytes(floatBytes(v)) }

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

// try launches a kernel that may begin before those before it have ended.
func (r *rig) try(kernel string, grid, block [3]int, shared int, params ...any) error {
	r.Helper()
	k := r.module.Kernel(kernel)
	if k == nil {
		r.Fatalf("there is no kernel %s", kernel)
	}
	r.last = Launch{Kernel: k, Grid: grid, Block: block, Shared: shared, Params: pack(params...), Dependent: !r.apart}
	return r.m.Launch(r.last)
}

// record plays a scene and returns its last launch.
func (r *rig) record(scene func(r *rig) error) Launch {
	r.Helper()
	if err := scene(r); err != nil {
		r.Fatal(err)
	}
	r.last.Dependent = false
	return r.last
}

// after launches a kernel when all before it have ended, as the first of a pass is.
func (r *rig) after(kernel string, grid, block [3]int, shared int, params ...any) {
	r.Helper()
	r.apart = true
	r.launch(kernel, grid, block, shared, params...)
	r.apart = false
}

func (r *rig) launch(kernel string, grid, block [3]int, shared int, params ...any) {
	r.Helper()
	if err := r.try(kernel, grid, block, shared, params...); err != nil {
		r.Fatal(err)
	}
}

func hash32(x uint64) uint32 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return uint32(x)
}

// values are what the program that wrote golden.bin gave the CPU backend.
func values(n int, seed uint64, s float32) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(float32(int32(hash32(uint64(i)+seed)))*(1.0/2147483648.0)) * s
	}
	return v
}

// golden is result i of the CPU backend: a hash of its numbers and the first of them.
func golden(t testing.TB, i int) (hash uint64, head []uint32) {
	t.Helper()
	data, err := os.ReadFile("testdata/golden.bin")
	if err != nil {
		t.Fatal(err)
	}
	data = data[i*264:]
	for j := range 64 {
		head = append(head, binary.LittleEndian.Uint32(data[8+4*j:]))
	}
	return binary.LittleEndian.Uint64(data), head
}

// same compares n words of memory with result i of golden.bin.
func (r *rig) same(what string, i int, p uint64, n int) {
	r.Helper()
	got := r.read(p, n)
	h := uint64(14695981039346656037)
	for _, x := range got {
		h = (h ^ uint64(x)) * 1099511628211
	}
	want, head := golden(r, i)
	if h == want {
		return
	}
	for j, x := range head {
		if got[j] != x {
			r.Errorf("%s: number %d is %g, want %g", what, j, f32(got[j]), f32(x))
			return
		}
	}
	r.Errorf("%s: differs from the CPU after the first 64 numbers", what)
}

// acts is memory for the quantized form of rows, and its struct.
func (r *rig) acts(rows, cols int) fields {
	r.Helper()
	n := (rows + 7) / 8 * cols / 64
	return fields{r.zeros(n * 128), r.zeros(n * 16), cols / 64}
}
