package cuda

import (
	"math"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// TestWeightsTakeThePlannedMemory: weights of every form take what is planned for them on the device.
func TestWeightsTakeThePlannedMemory(t *testing.T) {
	const rows, cols = 48, 1024
	b := open(t, Options{})
	for _, name := range weights.FormNames() {
		f, err := weights.ParseForm(name, 4)
		if err != nil {
			t.Fatal(err)
		}
		m, err := f.Matrix(rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		w, err := b.Load(backend.Int8, m)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		planned := int64(math.Round(float64(rows*m.LoadedRowBytes())*b.Widens(&m))) + m.InputBytes()
		if w.Bytes() != planned {
			t.Errorf("%s: %d bytes are loaded, %d are planned", name, w.Bytes(), planned)
		}
		b.Unload(w)
	}
}
