package qwen35

import (
	"fmt"
	"math"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/qwen35/vision"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/state"
)

// TestGenerateCountsAsPublished checks the releasedShapes against the published numbers of
// parameters, without making the weights.
func TestGenerateCountsAsPublished(t *testing.T) {
	want := map[string]int{"0.8b": 752_393_024, "2b": 1_881_825_088, "4b": 4_205_751_296, "9b": 8_953_803_264, "27b": 26_895_998_464, "35b-a3b": 34_660_610_688}
	for _, s := range releasedShapes {
		c := s.config()
		n := c.Vocab * c.Width
		if !c.Tied {
			n *= 2
		}
		n += c.Width
		mlp := 3 * c.Width * c.intermediate
		if c.Experts > 0 {
			mlp = 3*c.Width*(c.Experts*c.expertWidth+c.sharedWidth) + c.Width*(c.Experts+1)
		}
		values := c.valueHeads * c.valueDim
		channels := 2*c.keyHeads*c.keyDim + values
		for _, attention := range c.layers {
			n += 2*c.Width + mlp
			if attention {
				n += c.Width*c.headDim*(3*c.heads+2*c.kvHeads) + 2*c.headDim
			} else {
				n += c.Width*(channels+2*values+2*c.valueHeads) + channels*c.kernel + 2*c.valueHeads + c.valueDim
			}
		}
		if n != want[s.name] {
			t.Errorf("%s has %d parameters, published are %d", s.name, n, want[s.name])
		}
	}
}

// TestGenerateCountsTowersAsPublished does likewise with the towers.
func TestGenerateCountsTowersAsPublished(t *testing.T) {
	want := map[string]int64{"0.8b": 100_592_896, "2b": 331_416_576, "4b": 333_514_240, "9b": 456_010_480, "27b": 460_730_096, "35b-a3b": 446_571_248}
	for _, s := range releasedShapes {
		n := int64(0)
		c := s.config()
		for w := range vision.New(c.vision).Weights() {
			n += w.Parameters()
		}
		if err := c.vision.Check(c.Width); err != nil || n != want[s.name] {
			t.Errorf("%s: a tower of %d parameters, published are %d: %v", s.name, n, want[s.name], err)
		}
	}
}

// TestGenerateTower makes one whose rows cannot all be cut into groups, as of the large ones: what it
// sees are numbers.
func TestGenerateTower(t *testing.T) {
	v := *releasedShapes[0].config().vision
	v.Depth, v.Width, v.Heads, v.Intermediate, v.Output = 2, 128, 4, 100, 64
	for _, bits := range []int{4, 8, 16} {
		l := &weights.Loader{Backend: backendtest.Open(t, backend.Options{})}
		l.Generated(weights.BitsForm(bits))
		tower := vision.New(&v)
		if err := tower.Load(l); err != nil {
			t.Fatal(err)
		}
		for _, x := range see(t, tower, vision.StepOperations, onePicture(t))[0] {
			if y := float64(x); math.IsNaN(y) || math.Abs(y) > 100 {
				t.Fatalf("%d bits: %v", bits, x)
			}
		}
		l.Free()
	}
}

// BenchmarkRound measures a pass of a generated model over a few rows of one sequence.
func BenchmarkRound(b *testing.B) {
	for _, name := range []string{"0.8b", "2b"} {
		b.Run("shape="+name, func(b *testing.B) {
			dev := backendtest.Open(b, backend.Options{})
			m, err := model.Generate(name, weights.BitsForm(4), dev, model.Options{MaxDrafts: 8})
			if err != nil {
				b.Fatal(err)
			}
			s, err := state.NewPool(dev, 1<<34).Open(m.Layout())
			if err != nil {
				b.Fatal(err)
			}
			for _, rows := range []int{1, 2, 4, 8} {
				b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
					b.SetBytes(m.Info().Bytes)
					for b.Loop() {
						out, err := m.Forward([]model.Span{{State: s, Tokens: make([]int32, rows), Drafts: rows - 1, Want: rows}})
						if err != nil {
							b.Fatal(err)
						}
						if rows, err := out.Rows(); err != nil || math.IsNaN(float64(rows[0][0])) {
							b.Fatal(rows, err)
						}
						s.Commit(0)
					}
				})
			}
		})
	}
}
