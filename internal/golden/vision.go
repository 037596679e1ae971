package golden

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// VisionFixture is a run of the reference with images: of the random model of testdata/vision,
// Dir(tb, "vision"), over the test images of package picture.
type VisionFixture struct {
	Images []VisionImage `json:"images"`
	Video  struct {
		Frames []string `json:"frames"` // names for Picture
		Grid   [3]int   `json:"grid_thw"`
	} `json:"video"`
	Cases []VisionCase `json:"cases"`

	arrays arrays
}

// VisionImage is an image.
type VisionImage struct {
	File string `json:"file"` // a name for Picture
	Grid [3]int `json:"grid_thw"`
}

// VisionCase is a prompt with images and its greedy continuation; see Case.
type VisionCase struct {
	Name      string     `json:"name"`
	Prompt    []int32    `json:"prompt"` // with one pad token per token of the images
	Images    []string   `json:"images"` // names for Picture, in their order
	Video     bool       `json:"video"`
	Tokens    []int32    `json:"tokens"`
	Positions [3][]int32 `json:"positions"` // time, height and width of each of Tokens
	Delta     int        `json:"rope_delta"`
	Argmax    []int32    `json:"argmax"`
	Margin    []float32  `json:"margin"`
	// Draft1[t] was fed the hidden state of row t, the input of row t+1, which is the tower's row
	// for a pad token, and the position of row t.
	Draft1 []int32 `json:"draft1"`
}

// LoadVision reads the fixture, or ends the test.
func LoadVision(tb testing.TB) *VisionFixture {
	tb.Helper()
	f := &VisionFixture{}
	dir := filepath.Join(root(tb), "internal", "golden", "testdata", "vision")
	for _, path := range []string{filepath.Join(dir, "golden.json"), filepath.Join(pictures(tb), "golden.json")} {
		if err := json.Unmarshal(filetest.Read(tb, path), f); err != nil {
			tb.Fatalf("golden: vision: %v", err)
		}
	}
	f.arrays = readArrays(tb, filepath.Join(dir, "golden.safetensors"))
	return f
}

// Array returns an array by name, or ends the test. For image i there are
//
//	i.last    [patches, 48]  output of the last block
//	i.merged  [tokens, 64]   rows of the prompt
//
// and for images 0 and 3 also i.patch, the product of the patches alone, i.embedded, with
// positions, and i.block0, the output of the first block. For the video there is video.merged. For
// case k there are
//
//	pk.logits_last      [3, 512]  the last three rows of the prompt
//	pk.hidden_last      [3, 64]   the same rows after the final norm
//	pk.mtp_logits_last  [3, 512]  the head at the same rows
func (f *VisionFixture) Array(tb testing.TB, name string) Array {
	tb.Helper()
	return f.arrays.get(tb, name)
}

// Picture returns a test image of package picture, such as those of
// VisionFixture or preprocessor_config.json, or ends the test.
func Picture(tb testing.TB, name string) []byte {
	tb.Helper()
	if filepath.Ext(name) != ".json" {
		name = filepath.Join("images", name)
	}
	return filetest.Read(tb, filepath.Join(pictures(tb), name))
}

func pictures(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(root(tb), "internal", "picture", "testdata")
}
