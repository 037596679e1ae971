//go:build cuda

package cuda

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend/backendtest"
)

// onGPU tells whether open opens one.
const onGPU = true

// newSuite is all checks.
var newSuite = backendtest.New

// tinyRounds is how many rounds the model of trained weights has.
const tinyRounds = 4

// open is the backend on the machine's GPU. That there is none is an error.
func open(tb testing.TB, o Options) *Backend {
	tb.Helper()
	b, err := Open(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}
