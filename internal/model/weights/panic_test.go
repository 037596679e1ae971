package weights

import (
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// TestRequantizeSurvivesPanics has the quantizing of rows panic on goroutines of their own: the
// matrix has fewer bytes than it says.
func TestRequantizeSurvivesPanics(t *testing.T) {
	m := dtype.Matrix{Rows: 64, Cols: 64, Type: dtype.F32, Data: make([]byte, 8)}
	if _, err := (&Loader{}).requantize(&m, 4); err == nil || !strings.Contains(err.Error(), "panic: ") {
		t.Errorf("%v, want the panic", err)
	}
}
