package convert

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
)

// paroQuant is a fixture without a head in ParoQuant's layout, whose config promises one, and the same numbers in float32 with the
// head.
func paroQuant(t *testing.T, arch string) (folder, plain string) {
	t.Helper()
	coded := fixture(t, arch, separate)
	text := coded.config["text_config"].(map[string]any)
	for _, key := range []string{"moe_intermediate_size", "shared_expert_intermediate_size"} {
		if text[key] != nil {
			text[key] = dtype.RotationGroup
		}
	}
	numbers := &stored{config: coded.config, texts: coded.texts, files: map[string][]tensor{}, format: coded.format}
	var list []tensor
	for _, x := range coded.files[mainFile] {
		m := golden.WidenExpert(golden.Named{Name: x.name, Shape: x.shape, Values: x.values()})
		x = values(x.name, dtype.F32, m.Shape, m.Values)
		parts, decoded := golden.ParoQuant(m)
		for _, p := range parts {
			list = append(list, tensor{p.Suffix, p.Type, p.Shape, p.Data})
		}
		if parts != nil {
			x = values(x.name, dtype.F32, m.Shape, decoded)
		} else if !isHead(x.name) {
			list = append(list, x)
		}
		numbers.add(x)
	}
	plain = numbers.write(t)
	coded.files[mainFile] = list
	coded.config["quantization_config"] = map[string]any{"quant_method": "paroquant", "bits": 4, "group_size": 128, "krot": 8}
	return coded.write(t), plain
}

// TestInjectHeadIntoParoQuant puts the head of the release beside the weights of ParoQuant's folders. The models answer as the same
// numbers in float32 do, the head included, and by integers choose the same tokens where these are clear.
func TestInjectHeadIntoParoQuant(t *testing.T) {
	for _, arch := range []string{"dense", "moe"} {
		t.Run(arch, func(t *testing.T) {
			dir, plain := paroQuant(t, arch)
			head := openHead(t, plain, dir)
			_, err := InjectHead(t.Context(), open(t, dir), head, filepath.Join(t.TempDir(), "whole"), Options{})
			if err == nil || !strings.Contains(err.Error(), "rotated or reordered inputs, which the layout of a new folder cannot store: inject the head without a new folder") {
				t.Errorf("a new folder: %v", err)
			}
			if _, err := InjectHead(t.Context(), open(t, dir), head, "", Options{}); err != nil {
				t.Fatal(err)
			}
			want := answers(t, plain)
			near(t, answers(t, dir), want, golden.Tol.Spec)
			clearTokens(t, logits(t, dir, backend.Int8), logits(t, plain, backend.Float32))
		})
	}
}

// logits are those of a text in which rounding changes no choice of experts.
func logits(t *testing.T, dir string, how backend.Compute) [][]float32 {
	t.Helper()
	target, drafts := load(t, dir, model.Options{Compute: how}).logits(t, []int32{92, 65, 14, 15})
	return slices.Concat(target, drafts)
}

// near compares logits within a tolerance.
func near(t *testing.T, got, want [][]float32, tolerance float64) {
	t.Helper()
	var worst golden.Worst
	for i := range want {
		worst.Add(fmt.Sprintf("row %d", i), got[i], want[i])
	}
	worst.Check(t, "logits", tolerance)
}

// clearTokens compares the tokens of the highest logits where these are clear.
func clearTokens(t *testing.T, got, want [][]float32) {
	t.Helper()
	for i := range want {
		best := func(row []float32) int { return slices.Index(row, slices.Max(row)) }
		a, b := best(got[i]), best(want[i])
		if margin := float64(want[i][b] - want[i][a]); margin > golden.Tol.Int8Margin {
			t.Errorf("row %d: token %d, want %d, whose logit is higher by %g", i, a, b, margin)
		}
	}
}

// TestConvertWidensRotations converts ParoQuant's folders: the result has the numbers without rotations, in half precision as the
// scales, or quantized.
func TestConvertWidensRotations(t *testing.T) {
	dir, plain := paroQuant(t, "moe")
	if _, err := InjectHead(t.Context(), open(t, dir), openHead(t, plain, dir), "", Options{}); err != nil {
		t.Fatal(err)
	}
	out, _ := converted(t, dir, Options{})
	want := effective(t, plain)
	for name, got := range effective(t, out) {
		largest := float64(max(slices.Max(want[name]), -slices.Min(want[name])))
		for i, v := range got {
			if math.Abs(float64(v-want[name][i])) > largest/1000 {
				t.Fatalf("%s: number %d is %g, want %g", name, i, v, want[name][i])
			}
		}
	}
	out, _ = converted(t, dir, Options{Quantize: &Encoding{Format: dtype.Affine, Bits: 8, Group: 64}})
	clearTokens(t, logits(t, out, backend.Int8), logits(t, plain, backend.Float32))
}
