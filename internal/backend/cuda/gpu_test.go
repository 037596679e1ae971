//go:build cuda

package cuda

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/model"
)

// onGPU tells whether open opens one.
const onGPU = true

// newSuite is all checks.
var newSuite = backendtest.New

func init() { modelCases = append(modelCases, modelCase{"tiny", model.Options{}, 4}) }

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
