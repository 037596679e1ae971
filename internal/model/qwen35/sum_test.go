package qwen35

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
)

// TestGGUFSumCoversEveryByte flips single bits anywhere in the parts of a split file: one that
// can still be opened has another sum.
func TestGGUFSumCoversEveryByte(t *testing.T) {
	path, _ := convertGGUF(t, golden.Dir(t, "dense"), "qwen35", oneType("Q8_0"), 3)
	sum := func() (string, error) {
		c, err := model.OpenGGUF(path, "")
		if err != nil {
			return "", err
		}
		defer c.Close() //nolint:errcheck // read only
		s, err := c.Sum(t.Context(), "")
		return s.ID, err
	}
	before, err := sum()
	if err != nil {
		t.Fatal(err)
	}
	parts, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.gguf"))
	if err != nil || len(parts) != 3 {
		t.Fatal(parts, err)
	}
	rng := rand.New(rand.NewPCG(1, 7))
	opened := 0
	for _, part := range parts {
		data := filetest.Read(t, part)
		for range 60 {
			at, flipped := rng.IntN(len(data)), bytes.Clone(data)
			flipped[at] ^= 1 << rng.IntN(8)
			filetest.Write(t, part, flipped)
			after, err := sum()
			if err != nil {
				continue // a header that is none any more
			}
			if opened++; after == before {
				t.Errorf("byte %d of %s is another, and the sum is not", at, filepath.Base(part))
			}
		}
		filetest.Write(t, part, data)
	}
	if again, err := sum(); again != before || err != nil || opened < 100 {
		t.Errorf("%s, then %s, %v; %d flips were tried", before, again, err, opened)
	}
}
