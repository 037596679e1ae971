package golden

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func tensor(t *testing.T, c SpecConfig, name string) SpecTensor {
	t.Helper()
	for _, x := range c.Tensors() {
		if x.Name == name {
			return x
		}
	}
	t.Fatalf("%s: no tensor %q", c.Name, name)
	return SpecTensor{}
}

// multiply is y = Wx in float64, rounded at the end.
func multiply(w SpecTensor, x []float32) []float32 {
	y := make([]float32, w.Shape[0])
	for r := range y {
		sum := 0.0
		for c, v := range x {
			sum += float64(w.Values[r*len(x)+c]) * float64(v)
		}
		y[r] = float32(sum)
	}
	return y
}

func argmax(x []float32) int32 { return int32(slices.Index(x, slices.Max(x))) }

// The specification prints the first values of three tensors.
func TestSpecTensorsAreTheSpecifications(t *testing.T) {
	c := SpecCases()[0].Config
	tests := []struct {
		name string
		want []float32
	}{
		{"lm_head.weight", []float32{-0.804148316, -0.423581243, -0.966196060}},
		{"mtp.fc.weight", []float32{-0.295268583, -0.038589835, 0.161618471}},
		{"model.language_model.embed_tokens.weight", []float32{0.170936823}},
	}
	for _, tt := range tests {
		var w Worst
		w.Add(tt.name, tensor(t, c, tt.name).Values[:len(tt.want)], tt.want)
		w.Check(t, tt.name, 1e-7)
	}
}

// The specification counts the tensors of a head; those of the model follow
// from its table: 14 in a Gated DeltaNet layer, 11 in an attention layer, 4 more
// in each with experts, and 3 outside of the layers.
func TestSpecTensorsAreComplete(t *testing.T) {
	for _, c := range SpecCases() {
		head, seen := 0, map[string]bool{}
		for _, x := range c.Config.Tensors() {
			if seen[x.Name] {
				t.Errorf("%s: %s twice", c.Config.Name, x.Name)
			}
			seen[x.Name] = true
			if strings.HasPrefix(x.Name, "mtp.") {
				head++
			}
		}
		wantHead, wantAll := 15, 3*14+11+3+15
		if c.Config.Experts > 0 {
			wantHead, wantAll = 19, 3*18+15+3+19
		}
		if head != wantHead || len(seen) != wantAll {
			t.Errorf("%s: %d tensors, %d in the head, want %d and %d", c.Config.Name, len(seen), head, wantAll, wantHead)
		}
	}
}

// The weights and the vectors come from different places; where one product
// leads from vector to vector they must meet.
func TestSpecVectorsFollowFromTheWeights(t *testing.T) {
	var w Worst
	for _, c := range SpecCases() {
		head := tensor(t, c.Config, "lm_head.weight")
		w.Add(c.Config.Name+" logits", multiply(head, c.Want.Hidden), c.Want.Logits)
		if c.Want.MTPHidden != nil {
			w.Add(c.Config.Name+" mtp logits", multiply(head, c.Want.MTPHidden), c.Want.MTPLogits)
		}
		if c.Want.Layers != nil {
			gain := tensor(t, c.Config, "model.language_model.norm.weight").Values
			w.Add(c.Config.Name+" hidden", norm(c.Want.Layers[specLayers-1], gain), c.Want.Hidden)
		}
	}
	w.Check(t, "products", 1e-5)
}

func norm(x, gain []float32) []float32 {
	squares := 0.0
	for _, v := range x {
		squares += float64(v) * float64(v)
	}
	scale := 1 / math.Sqrt(squares/float64(len(x))+specEps)
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(float64(v) * scale * (1 + float64(gain[i])))
	}
	return y
}

// A trace is the greedy text, in rounds.
func TestSpecTracesTellTheGreedyText(t *testing.T) {
	traces := 0
	for _, c := range SpecCases() {
		if c.Want.Greedy[0] != argmax(c.Want.Logits) {
			t.Errorf("%s: first token %d is not the argmax", c.Config.Name, c.Want.Greedy[0])
		}
		for depth, trace := range c.Want.Traces {
			traces++
			if got, want := trace[0].Drafts[0], argmax(c.Want.MTPLogits); got != want {
				t.Errorf("%s depth=%d: first draft %d, argmax %d", c.Config.Name, depth, got, want)
			}
			var text []int32
			for _, cycle := range trace {
				if len(cycle.Drafts) != depth {
					t.Errorf("%s depth=%d: %d drafts", c.Config.Name, depth, len(cycle.Drafts))
				}
				text = append(append(text, cycle.Token), cycle.Drafts[:cycle.Accepted]...)
			}
			if !slices.Equal(text, c.Want.Greedy[:len(text)]) {
				t.Errorf("%s depth=%d: text %v, want a prefix of %v", c.Config.Name, depth, text, c.Want.Greedy)
			}
			if got := len(SpecPrompt) + len(text); got != SpecFinalPairs {
				t.Errorf("%s depth=%d: ends at %d positions, want %d", c.Config.Name, depth, got, SpecFinalPairs)
			}
		}
	}
	if traces != 5 {
		t.Errorf("%d traces, want 5", traces)
	}
}

func TestSpecConfigCountsItsHeads(t *testing.T) {
	for _, c := range SpecCases() {
		t.Run("config="+c.Config.Name, func(t *testing.T) {
			channels := 2*c.Config.KeyHeads*specKeyDim + c.Config.ValueHeads*specValueDim
			got := tensor(t, c.Config, "model.language_model.layers.0.linear_attn.conv1d.weight").Shape
			if want := []int{channels, 1, specKernel}; !slices.Equal(got, want) {
				t.Errorf("convolution %v, want %v", got, want)
			}
			if c.Want.Conv != nil && len(c.Want.Conv) != (specKernel-1)*channels {
				t.Errorf("convolution state of %d numbers, want %d", len(c.Want.Conv), (specKernel-1)*channels)
			}
			if n := c.Config.ValueHeads * specKeyDim * specValueDim; c.Want.Recurrent != nil && len(c.Want.Recurrent) != n {
				t.Errorf("recurrent state of %d numbers, want %d", len(c.Want.Recurrent), n)
			}
		})
	}
}
