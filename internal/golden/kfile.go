package golden

import (
	"path/filepath"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// KFile is a GGUF file of a small model with random matrices of Q4_K and an embedding of Q6_K, as TestGGUFOfShape of the first family
// writes it.
func KFile(tb testing.TB) string {
	tb.Helper()
	return filetest.Write(tb, filepath.Join(tb.TempDir(), "k.gguf"), unzip(tb, filepath.Join(root(tb), "internal", "golden", "testdata", "k.gguf.gz")))
}
