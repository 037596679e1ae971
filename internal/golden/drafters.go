package golden

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// drafterNames are the drafters of testdata/drafters: random weights in bf16, with the names of the releases, for the model
// Dir(tb, "dense").
var drafterNames = []string{"dflash_swa", "dflash2", "dspark_nested", "eagle3", "eagle31"}

// DrafterFixture is what a drafter drafts, in float32: rounds behind a text, of which some drafts are taken as accepted.
type DrafterFixture struct {
	Name   string        `json:"-"`
	Target string        `json:"target"` // name of the model
	Dir    string        `json:"-"`      // with config.json and model.safetensors
	Taps   []int         `json:"taps"`
	Drafts int           `json:"drafts_per_round"`
	Block  int           `json:"block"` // rows of a block of the trained drafter, and drafts
	Cases  []DrafterCase `json:"cases"`

	arrays arrays
}

// DrafterCase is a text and the rounds behind its prompt.
type DrafterCase struct {
	Prompt []int32        `json:"prompt"`
	Tokens []int32        `json:"tokens"` // prompt, the target's token after it, and what the rounds commit
	Rounds []DrafterRound `json:"rounds"`
}

// DrafterRound is a round. Drafts are compared up to the first whose Margin, the best logit or score minus the
// second, is at most Tol.DraftMargin.
type DrafterRound struct {
	Start    int       `json:"start"` // position of the last token, Anchor
	Anchor   int32     `json:"anchor"`
	Drafts   []int32   `json:"drafts"`
	Margins  []float32 `json:"margins"`
	Accepted int       `json:"accepted"`
}

// Sure are the drafts that have to be equal.
func (r *DrafterRound) Sure() []int32 {
	for i, m := range r.Margins {
		if float64(m) <= Tol.DraftMargin {
			return r.Drafts[:i]
		}
	}
	return r.Drafts
}

// Drafters reads the fixtures of drafterNames. With a folder of fixtures, FORETOKEN_FIXTURES, it also reads those of
// its folder drafters: all of them would make the repository too large.
func Drafters(tb testing.TB, fixtures string) []*DrafterFixture {
	tb.Helper()
	var all []*DrafterFixture
	for _, name := range drafterNames {
		all = append(all, packedDrafter(tb, name))
	}
	if fixtures != "" {
		files, _ := filepath.Glob(filepath.Join(fixtures, "drafters", "*", "golden.json")) // the pattern is valid
		for _, file := range files {
			dir := filepath.Dir(file)
			all = append(all, loadDrafter(tb, "fixtures/"+filepath.Base(dir), dir, dir))
		}
	}
	return all
}

// TinyDrafter reads the trained drafter for Dir(tb, "tiny"), of DSpark's kind: two layers with three taps, 8 bits in MLX's
// layout. It was trained on texts that tiny wrote, and it has no arrays. Its rounds are
// those of five greedy texts with 8 drafts each, of which tiny accepts Accepted.
func TinyDrafter(tb testing.TB) *DrafterFixture {
	tb.Helper()
	return packedDrafter(tb, "tiny")
}

func packedDrafter(tb testing.TB, name string) *DrafterFixture {
	tb.Helper()
	from := filepath.Join(root(tb), "internal", "golden", "testdata", "drafters", name)
	dir, err := unpack(from, filepath.Join(root(tb), "bin", "golden"))
	if err != nil {
		tb.Fatalf("golden: %s: %v", name, err)
	}
	return loadDrafter(tb, name, from, dir)
}

func loadDrafter(tb testing.TB, name, from, dir string) *DrafterFixture {
	tb.Helper()
	f := &DrafterFixture{Name: name, Dir: dir}
	if err := json.Unmarshal(filetest.Read(tb, filepath.Join(from, "golden.json")), f); err != nil {
		tb.Fatalf("golden: %s: %v", name, err)
	}
	if f.Target == "" { // a trained drafter, of which there are only drafts
		f.Target, f.Drafts = "tiny", f.Block
		return f
	}
	f.arrays = readArrays(tb, filepath.Join(from, "golden.safetensors"))
	return f
}

// Array returns an array by name. For some cases i and rounds r there are
//
//	i.r.taps        [new positions, taps*width]  tapped rows of the model, side by side
//	i.r.fused       [new positions, width]       the fused rows
//	i.r.hidden      [rows, width]                rows of a block after the last norm; of EAGLE-3 before it, one for each draft
//	i.r.confidence  [drafts]                     DSpark: before the sigmoid
func (f *DrafterFixture) Array(name string) (Array, bool) {
	a, ok := f.arrays[name]
	return a, ok
}
