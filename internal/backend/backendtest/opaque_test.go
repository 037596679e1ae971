package backendtest

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/conformance"
	"github.com/foretoken/foretoken/internal/dtype"
)

// TestOpaquePasses checks the version of the suite, too: kept proofs of devices have it.
func TestOpaquePasses(t *testing.T) {
	s := Brief(t)
	s.Run(t, NewOpaque(Open(t, backend.Options{Threads: 1})))
	if got := s.Digest(); got != conformance.Version && !t.Failed() {
		t.Errorf("the brief checks have changed: Version is %q, want %q", conformance.Version, got)
	}
}

// TestOpaqueHidesItsMemory uses memory and weights as only a mistake would.
func TestOpaqueHidesItsMemory(t *testing.T) {
	host := Open(t, backend.Options{Threads: 1})
	a, b := NewOpaque(host), NewOpaque(host)
	x, err := a.Alloc(dtype.F32, 2, 3)
	must(err)
	w, err := a.Load(backend.Float32, dtype.Matrix{Rows: 3, Cols: 3, Type: dtype.F32, Data: make([]byte, 36)})
	must(err)
	try := func(f func()) (fault any) {
		defer func() { fault = recover() }()
		f()
		return nil
	}
	for what, f := range map[string]func(){
		"the other device reads":      func() { _, _ = host.Host(x) },
		"an equal device reads":       func() { _, _ = b.Host(x) },
		"the other device multiplies": func() { host.MatMul(x, backend.Product{Dst: x, W: w}) },
		"an equal device multiplies":  func() { b.MatMul(x, backend.Product{Dst: x, W: w}) },
	} {
		if try(f) == nil {
			t.Errorf("%s: no panic", what)
		}
	}
	view, err := a.Host(x)
	must(err)
	view[0] = 5
	if again, err := a.Host(x); err != nil || again[0] != 0 || view[0] == view[0] {
		t.Errorf("written to what Host returned: %v, %v; then it is %v", again, err, view)
	}
	a.Free(x)
	if try(func() { _, _ = a.Host(x) }) == nil {
		t.Error("freed memory was read")
	}
}
