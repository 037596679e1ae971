//go:build !cuda

package cuda

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/cuda/drivertest"
)

// onGPU tells whether open opens one.
const onGPU = false

// newSuite is the checks that an interpreter has time for.
var newSuite = backendtest.Brief

// open is the backend on the interpreter.
func open(tb testing.TB, o Options) *Backend {
	tb.Helper()
	return openInterpreted(tb, drivertest.Options{}, o)
}
