package cuda

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// TestWeightsTakeThePlannedMemory: weights of every form take what is planned for them on the device.
func TestWeightsTakeThePlannedMemory(t *testing.T) {
	const rows, cols = 48, 1024
	b := open(t, Options{})
	for _, name := range append(weights.FormNames(), "affine:6:64", "affine:4:256", "zero-point:8:512") {
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
		form := m
		if form.Data, form.Scales, form.Biases = nil, nil, nil; m.Zeros != nil {
			form.Zeros = []byte{}
		}
		if planned := b.WeightBytes(&form); w.Bytes() != planned {
			t.Errorf("%s: %d bytes are loaded, %d are planned", name, w.Bytes(), planned)
		}
		b.Unload(w)
	}
}
