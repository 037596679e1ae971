package bench

import (
	"math"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/model/weights"
)

func open(t *testing.T) backend.Backend {
	t.Helper()
	b := backendtest.Open(t, backend.Options{})
	return b
}

func TestSharesAddUp(t *testing.T) {
	b := newTimed(nil)
	b.spent["a"], b.spent["b"] = 30*time.Millisecond, 50*time.Millisecond
	got := b.shares(100 * time.Millisecond)
	want := []Share{{"b", 0.5}, {"a", 0.3}, {"other", 0.2}}
	for i := range want {
		if got[i].Op != want[i].Op || math.Abs(got[i].Part-want[i].Part) > 1e-9 {
			t.Errorf("shares %v, want %v", got, want)
		}
	}
}

// TestKernelsReportWhatWasAsked measures with little memory: the figures mean nothing, but
// they must be there and fit together.
func TestKernelsReportWhatWasAsked(t *testing.T) {
	r, err := Kernels(open(t), KernelOptions{Types: []string{"q4", "bf16"}, Rows: []int{1, 3}, Repeats: 2, Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kernels) != 2 || r.ReadGBs <= 0 {
		t.Fatalf("report %+v", r)
	}
	for _, k := range r.Kernels {
		for i, p := range k.Passes {
			if p.Rows != []int{1, 3}[i] || p.Seconds <= 0 || math.Abs(p.OfRead*r.ReadGBs-p.GBs) > 1e-9*p.GBs ||
				math.Abs(p.OfOne*k.Passes[0].Seconds-p.Seconds) > 1e-9 {
				t.Errorf("%s: %+v", k.Type, p)
			}
		}
	}
	// A product of r rows is 2·r·n² operations.
	if p := r.Kernels[0].Passes[1]; math.Abs(p.GOps*p.Seconds*1e9-2*3*4096*4096) > 1 {
		t.Errorf("%+v", p)
	}
	if _, err := Kernels(open(t), KernelOptions{Types: []string{"x9"}, Rows: []int{1}, Repeats: 1, Memory: 1 << 20}); err == nil {
		t.Error("weights of type x9 were measured")
	}
}

func TestModelReportsWhatWasAsked(t *testing.T) {
	if testing.Short() {
		t.Skip("generates a model of 0.8 G parameters")
	}
	r, err := Model(open(t), ModelOptions{
		Shape: "0.8b", Form: weights.BitsForm(4), Rows: []int{1, 4}, Prompts: []int{8}, Context: 70, Repeats: 1, Memory: 1 << 20,
		Images: [][2]int{{300, 200}}, MaxPixels: 1 << 16, VisionBits: 4, Blocks: []int{4},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Parameters != 752_393_024 || len(r.Passes) != 2 || len(r.Prompts) != 1 || r.Draft.Seconds <= 0 {
		t.Errorf("report %+v", r)
	}
	// All weights but the embedding are multiplied with each row, and there are fewer than all.
	if p := r.Passes[0]; p.GOps*p.Seconds*1e9 > 2*float64(r.Parameters) || p.GOps*p.Seconds*1e9 < float64(r.Parameters) {
		t.Errorf("%.0f operations for %d parameters", p.GOps*p.Seconds*1e9, r.Parameters)
	}
	// 65,536 pixels are 256 patches of 16×16, more or less by the shape of this image. A patch is
	// multiplied with all weights of the tower but a few.
	if len(r.Images) != 1 {
		t.Fatalf("%d images", len(r.Images))
	}
	s := r.Images[0]
	if s.Patches != 4*s.Tokens || s.Patches < 200 || s.Patches > 300 || s.LongestStep > s.Seconds || s.FirstToken < s.Seconds {
		t.Errorf("image %+v", s)
	}
	if perPatch := s.ProductsGOps * s.Seconds * 1e9 / float64(s.Patches); perPatch < 1.5*86e6 || perPatch > 2*100e6 {
		t.Errorf("%.0f operations for a patch", perPatch)
	}
	if len(r.Blocks) != 1 || r.Blocks[0].Rows != 4 || r.Blocks[0].Vocab != 32_768 || r.Blocks[0].Bytes < 58e6 || r.Blocks[0].Bytes > 60e6 || r.Blocks[0].Seconds <= r.Blocks[0].Append || r.Blocks[0].OfOne <= 0 {
		t.Errorf("blocks %+v", r.Blocks)
	}
	for _, shares := range append(r.Shares, r.DraftShare, s.TowerShares) {
		total := 0.0
		for _, s := range shares {
			total += s.Part
		}
		if math.Abs(total-1) > 1e-9 {
			t.Errorf("shares %v add up to %v", shares, total)
		}
	}
	if _, err := Model(open(t), ModelOptions{Shape: "3b", Form: weights.BitsForm(4), Rows: []int{1}}); err == nil {
		t.Error("a shape that does not exist was generated")
	}
}
