package golden

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// TinyVision is a run of the reference with the tiny model, Dir(tb, "tiny"), over the images of
// testdata/tiny-vision.
type TinyVision struct {
	Examples []TinyExample `json:"examples"`

	arrays arrays
}

// TinyExample is an image, a question after it, and the greedy continuation.
type TinyExample struct {
	File     string  `json:"file"`
	Question string  `json:"question"`
	Truth    string  `json:"truth"` // the answer, or its beginning
	Grid     [3]int  `json:"grid_thw"`
	Prompt   []int32 `json:"prompt"` // with one pad token per token of the image
	Tokens   []int32 `json:"tokens"` // prompt and continuation, end tokens ignored
	Answer   string  `json:"answer"` // to the first end token
	Delta    int     `json:"rope_delta"`
	// Margin of each token of the continuation over the next best, and of the one after the last.
	Margin []float32 `json:"margin"`
	Draft1 []int32   `json:"draft1"` // as VisionCase has it

	Picture []byte `json:"-"` // the file
}

// LoadTinyVision reads the fixture, or ends the test.
func LoadTinyVision(tb testing.TB) *TinyVision {
	tb.Helper()
	dir := filepath.Join(root(tb), "internal", "golden", "testdata", "tiny-vision")
	f := &TinyVision{}
	if err := json.Unmarshal(filetest.Read(tb, filepath.Join(dir, "golden.json")), f); err != nil {
		tb.Fatalf("golden: tiny-vision: %v", err)
	}
	for i := range f.Examples {
		f.Examples[i].Picture = filetest.Read(tb, filepath.Join(dir, f.Examples[i].File))
	}
	f.arrays = readArrays(tb, filepath.Join(dir, "golden.safetensors"))
	return f
}

// Array returns an array by name, or ends the test. For example i there are
//
//	i.merged       [tokens, width]  the tower's rows
//	i.logits_last  [vocabulary]     the last row of the prompt
func (f *TinyVision) Array(tb testing.TB, name string) Array {
	tb.Helper()
	return f.arrays.get(tb, name)
}
