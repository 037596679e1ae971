//go:build !cuda

package cuda

import (
	"os"
	"testing"

	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/cuda/drivertest"
)

// onGPU tells whether open opens one.
const onGPU = false

// newSuite is the checks that an interpreter has time for.
var newSuite = backendtest.Brief

// open is the backend on the interpreter. Every allocation is one of the driver's, so that reading
// and writing beside it is found.
func open(tb testing.TB, o Options) *Backend {
	tb.Helper()
	dev, info := openDriver(tb, drivertest.Options{})
	o.Kernels, o.Slab, o.Staging = os.DirFS("kernels"), 1, 1<<20
	b, err := New(dev, info, o)
	if err != nil {
		tb.Fatal(err)
	}
	b.attention.splitBytes = 1 << 20
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}
