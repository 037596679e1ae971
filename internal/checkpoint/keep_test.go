package checkpoint

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
)

// TestKeptMatricesOutliveTheirFile reads matrices of a closed file that two users keep. The last one unmaps it.
func TestKeptMatricesOutliveTheirFile(t *testing.T) {
	x := random("a.weight", dtype.F32, 40, 32)
	w, err := OpenWeights(filetest.Write(t, filepath.Join(t.TempDir(), "a.safetensors"), encode(t, nil, x)))
	if err != nil {
		t.Fatal(err)
	}
	m, err := w.Matrix("a", 40, 32)
	if err != nil {
		t.Fatal(err)
	}
	f := w.files[0]
	users := []func() error{w.Keep(&m), w.Keep(&m)}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, free := range users {
		if f.users.left == nil || !bytes.Equal(m.Data, x.data) {
			t.Fatal("the matrix is gone")
		}
		for range 2 { // a second time is nothing
			if err := free(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if f.users.left != nil || f.users.kept != 0 {
		t.Error("the file is still mapped")
	}
	own := dtype.Matrix{Data: make([]byte, 4)}
	if err := w.Keep(&own)(); err != nil {
		t.Error(err)
	}
}
