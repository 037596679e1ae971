package golden

import (
	"bytes"
	"compress/gzip"
	"io"
	"path/filepath"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
)

// blockKinds are the kinds of GGUF blocks that Blocks returns.
var blockKinds = []string{
	"Q2_K", "Q3_K", "TQ1_0", "TQ2_0", "Q1_0", "Q2_0", "MXFP4", "NVFP4",
	"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
}

// BlockMatrix is a matrix of GGUF blocks and its products. Rows 0 to 15 are edge cases, rows 16 to
// 79 come from ggml's quantizer, and the rest are random bytes with finite halves.
type BlockMatrix struct {
	Kind    string `json:"-"`
	Type    uint32 `json:"type"` // the number of the kind in files
	Columns int    `json:"columns"`
	Bytes   int    `json:"bytes"` // of a block
	Rows    int    `json:"rows"`
	Cols    int    `json:"cols"`
	Sum     string `json:"sha256_of_all_values"` // of all numbers as float32 after adding +0, in hex

	Data []byte
	X    []float32 // [4, Cols]
	Y    []float32 // [Rows, 4]: the product in float64, rounded once
	Int8 []float32 // [Rows, 4]: the product of the integer path of docs/quantization.md
}

// Blocks returns the matrices of all blockKinds, or ends the test.
func Blocks(tb testing.TB) []*BlockMatrix {
	tb.Helper()
	dir := filepath.Join(root(tb), "internal", "golden", "testdata", "gguf")
	index := map[string]*BlockMatrix{}
	filetest.Decode(tb, filetest.Read(tb, filepath.Join(dir, "index.json")), &index)
	numbers := func(data []byte) []float32 {
		x := make([]float32, len(data)/4)
		dtype.ToF32(x, dtype.F32, data)
		return x
	}
	x := numbers(unzip(tb, filepath.Join(dir, "x.gz")))
	var all []*BlockMatrix
	for _, kind := range blockKinds {
		m := index[kind]
		if m == nil {
			tb.Fatalf("golden: no kind %s", kind)
		}
		data := unzip(tb, filepath.Join(dir, kind+".gz"))
		size, y := m.Rows*m.Cols/m.Columns*m.Bytes, m.Rows*4*4
		if len(data) != size+2*y {
			tb.Fatalf("golden: %s has %d bytes, want %d", kind, len(data), size+2*y)
		}
		m.Kind, m.X, m.Data, m.Y, m.Int8 = kind, x, data[:size], numbers(data[size:size+y]), numbers(data[size+y:])
		all = append(all, m)
	}
	return all
}

func unzip(tb testing.TB, path string) []byte {
	tb.Helper()
	r, err := gzip.NewReader(bytes.NewReader(filetest.Read(tb, path)))
	if err != nil {
		tb.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}
