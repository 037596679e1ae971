//go:build vulkan

package vulkan

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/vulkan/spirv"
	"github.com/foretoken/foretoken/internal/dtype"
)

// plant replaces an operation of a kernel by another, and returns the kernel as it was.
func plant(t *testing.T, b *Backend, kernel string, was, is uint32) func() {
	t.Helper()
	own := b.modules[kernel]
	m, found := slices.Clone(own), false
	for at := 5; at < len(m); at += int(m[at] >> 16) {
		if m[at]&0xffff == was {
			m[at], found = m[at]&^0xffff|is, true
		}
	}
	if !found {
		t.Fatalf("%s has no operation %d", kernel, was)
	}
	use := func(m spirv.Module) {
		b.modules[kernel] = m
		for name, k := range b.kernels {
			if module, _, _ := strings.Cut(name, ":"); module == kernel {
				k.Close()
				delete(b.kernels, name)
			}
		}
	}
	use(m)
	return func() { use(own) }
}

// Operations of SPIR-V.
const opFAdd, opFMul = 129, 133

// TestWrongKernelsAreFound has a compiler that is exact in single operations and wrong in a kernel: the checks name the operation, and a
// weight whose products are wrong is not loaded. With the right kernel its shape is proven and kept.
func TestWrongKernelsAreFound(t *testing.T) {
	folder := t.TempDir()
	b, err := Open(Options{Staging: 1 << 20, Slab: 16 << 20, Proofs: folder}, levels())
	if err != nil {
		t.Fatal(err)
	}
	right := plant(t, b, "combine", opFMul, opFAdd)
	if found := backendtest.Brief(t).Only("Experts").Check(b); len(found) == 0 || found[0].Op != "Experts" {
		t.Errorf("findings %v", found)
	}
	right()
	of, err := subjectOf(&b.info, b.opts.Kernels)
	if err != nil {
		t.Fatal(err)
	}
	b.proof, _ = readProof(folder, of)
	m := dtype.Matrix{Rows: 40, Cols: 128, Type: dtype.F32, Data: make([]byte, 4*40*128)}
	numbers := make([]float32, 40*128)
	for i := range numbers {
		numbers[i] = float32(i%13) - 6
	}
	dtype.FromF32(m.Data, dtype.F32, numbers)
	q, err := dtype.Quantize(&m, 4, 32, dtype.BF16)
	if err != nil {
		t.Fatal(err)
	}
	for kernel, rows := range map[string]int{"product_few": 1, "rms_norm_codes": 1, "glu_codes": 2, "delta_gate": 4} {
		right := plant(t, b, kernel, opFMul, opFAdd)
		if _, err := b.Load(backend.Int8, q); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("a product of %d rows with a weight of 40x128 int8", rows)) || len(b.proof.Shapes) > 0 {
			t.Errorf("%s: error %v, %d shapes", kernel, err, len(b.proof.Shapes))
		}
		right()
	}
	for range 2 {
		w, err := b.Load(backend.Int8, q, q)
		if err != nil {
			t.Fatal(err)
		}
		b.Unload(w)
	}
	if kept, err := readProof(folder, of); err != nil || len(kept.Shapes) != 1 {
		t.Errorf("%+v: %v", kept, err)
	}
	b.proof.Shapes = nil
	said := new(bytes.Buffer)
	b.opts.Log = slog.New(slog.NewTextHandler(said, nil))
	b.modules["product_matrix"], b.matrix, b.places = b.modules["product_matrix_emulated"], 32, [3]int{1, 128, 8}
	smallMatrices(t)
	right = plant(t, b, "product_matrix", opFMul, opFAdd)
	for range 2 { // the second finds it in the proof
		w, err := b.Load(backend.Int8, q)
		if err != nil {
			t.Fatal(err)
		}
		if b.cooperates(b.weight(w)) {
			t.Error("wrong matrices are used")
		}
		b.Unload(w)
	}
	if n := strings.Count(said.String(), "without cooperative matrices"); n != 1 || !strings.Contains(said.String(), "a product of 9 rows with a weight of 40x128 int8") || len(b.proof.Shapes) != 1 {
		t.Errorf("%d lines, %q: %s", n, b.proof.Shapes, said)
	}
	right()
	b.proof.Shapes = nil
	w, err := b.Load(backend.Int8, q)
	if err != nil || !b.cooperates(b.weight(w)) || len(b.proof.Shapes) != 1 || !strings.HasSuffix(b.proof.Shapes[0], " by matrices of 32") {
		t.Errorf("%q: %v", b.proof.Shapes, err)
	}
	b.Unload(w)
	delete(b.modules, "product_matrix")
	for name := range b.kernels {
		if strings.HasPrefix(name, "product_matrix") {
			delete(b.kernels, name)
		}
	}
	// The proof has the shape by matrices. What replaces them is compared, too.
	right = plant(t, b, "product_tile", opFMul, opFAdd)
	if _, err := b.Load(backend.Int8, q); err == nil || !strings.Contains(err.Error(), "a product of 9 rows with a weight of 40x128 int8") || !strings.Contains(said.String(), "no kernel product_matrix") {
		t.Errorf("%v: %s", err, said)
	}
	right()
	if w, err = b.Load(backend.Int8, q); err != nil || b.cooperates(b.weight(w)) || len(b.proof.Shapes) != 2 {
		t.Errorf("%q: %v", b.proof.Shapes, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestSeveralBackendsProveADevice has two backends share checks, with right kernels and with a wrong one.
func TestSeveralBackendsProveADevice(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	b, host := open(t), backendtest.CPU(t, backend.Options{Threads: 1})
	again, opened := b.again, 0
	for _, wrong := range []bool{false, true} {
		b.again = func() (*Backend, error) {
			opened++
			w, err := again()
			if wrong && err == nil {
				plant(t, w, "cap", opFMul, opFAdd)
			}
			return w, err
		}
		if wrong {
			defer plant(t, b, "cap", opFMul, opFAdd)()
		}
		found, err := b.share(host, []string{"Gather", "Cap", "Rotate"})
		if err != nil || wrong != (len(found) == 1 && found[0].Op == "Cap") || !wrong && len(found) > 0 {
			t.Errorf("wrong %v: findings %v, %v", wrong, found, err)
		}
	}
	if opened != 2 {
		t.Errorf("%d backends were opened", opened)
	}
}
