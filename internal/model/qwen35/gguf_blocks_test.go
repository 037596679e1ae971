package qwen35

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/checkpoint/gguf"
	"github.com/foretoken/foretoken/internal/checkpoint/gguf/gguftest"
)

// TestGGUFOrdersColumnsOfBlocks: value heads are put in order within rows of every type, whether
// they are several blocks, one, half of one, or less; and all but the last without decoding.
func TestGGUFOrdersColumnsOfBlocks(t *testing.T) {
	const rows, keys, each = 3, 2, 2
	r := rand.New(rand.NewPCG(1, 2))
	for typ := range gguftest.Types {
		for _, dim := range []int{256, 128, 64, 16} {
			t.Run(fmt.Sprintf("type=%s/dim=%d", typ, dim), func(t *testing.T) {
				cols := keys * each * dim
				if cols%gguftest.Columns(typ) != 0 {
					return // no rows of such blocks have these heads
				}
				v := make([]float32, rows*cols)
				for i := range v {
					v[i] = float32(r.NormFloat64())
				}
				var file gguftest.File
				stored := file.Add("blk.0.ssm_out.weight", typ, []int{rows, cols}, v)
				path := filepath.Join(t.TempDir(), "x.gguf")
				if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
				f, err := gguf.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				g := &ggufFile{File: f, layers: 1, keyHeads: keys, valueHeads: keys * each, keyDim: 8, valueDim: dim, tiled: true}
				pieces, err := g.pieces(f.Tensors[0])
				if err != nil {
					t.Fatal(err)
				}
				c, err := checkpoint.Assemble(checkpoint.Assembly{
					Name: "x", Config: []byte("{}"), Files: f.Parts, Tensors: []checkpoint.Source{pieces[0].source(f.Tensors[0])},
				})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close() //nolint:errcheck // read only
				m, err := c.Matrix(c.Tensors()[0][:len(c.Tensors()[0])-len(".weight")], rows, cols)
				if err != nil {
					t.Fatal(err)
				}
				if blocks := m.Format.Blocks(); blocks != (gguftest.Columns(typ) > 1 && dim%min(gguftest.Columns(typ), 128) == 0) {
					t.Errorf("blocks: %v", blocks)
				}
				got := floats(&m)
				for i, x := range got {
					row, head, at := i/cols, i%cols/dim, i%dim
					from := (head%each*keys + head/each) * dim // the first value head of every key head is first in the file
					if want := stored[row*cols+from+at]; x != want {
						t.Fatalf("row %d, head %d, column %d is %g, want %g", row, head, at, x, want)
					}
				}
			})
		}
	}
}
