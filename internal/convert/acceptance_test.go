package convert

import (
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
)

// TestConvertKeepsAcceptance measures the trained head over the golden texts: how often its
// draft token equals its own model's next token. Quantization of the head alone and of the whole
// model must not reduce it.
func TestConvertKeepsAcceptance(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 3,000 tokens")
	}
	plain, _ := converted(t, golden.Dir(t, "tiny"), Options{Dequantize: true, Type: dtype.BF16})
	base := acceptance(t, plain)
	t.Logf("bf16: %.4f", base)
	if base < 0.65 {
		t.Errorf("the head's drafts are accepted at %.4f of the positions, which is not the trained head", base)
	}
	eight, four := &Encoding{Format: dtype.Affine, Bits: 8, Group: 64}, &Encoding{Format: dtype.Affine, Bits: 4, Group: 64}
	for _, c := range []struct {
		name string
		o    Options
		most float64
	}{
		{"8 bits", Options{Quantize: eight, Head: eight}, 0.02},
		{"4 bits", Options{Quantize: four, Head: four}, 0.05},
		{"4 bits, head 8", Options{Quantize: four, Head: eight}, 0.05},
	} {
		t.Run("encoding="+c.name, func(t *testing.T) {
			out, _ := converted(t, plain, c.o)
			got := acceptance(t, out)
			t.Logf("%.4f", got)
			if got < base-c.most {
				t.Errorf("the head's drafts are accepted at %.4f of the positions, in bf16 at %.4f", got, base)
			}
		})
	}
}

// acceptance is the share of positions of some golden texts at which the head's draft token is the
// model's choice, both fed the text.
func acceptance(t *testing.T, dir string) float64 {
	t.Helper()
	r := modeltest.Open(t, dir, 1, model.Options{})
	hits, positions := 0, 0
	for _, c := range golden.Load(t, "tiny").Cases[:4] {
		target, head := r.Answers(t, c.Tokens)
		for row := len(c.Prompt) - 1; row < len(head); row++ {
			positions++
			if argmax(head[row]) == argmax(target[row+1]) {
				hits++
			}
		}
	}
	return float64(hits) / float64(positions)
}

func argmax(x []float32) int { return slices.Index(x, slices.Max(x)) }
