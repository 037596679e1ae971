package convert

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
)

// paroQuant is a fixture without a head in ParoQuant's layout, whose config promises one, and the same numbers in
// float32 with the head.
func paroQuant(t *testing.T, arch string) (folder, plain string) {
	t.Helper()
	coded := fixture(t, arch, separate)
	text := coded.config["text_config"].(map[string]any)
	for _, key := range []string{"moe_intermediate_size", "shared_expert_intermediate_size"} {
		if text[key] != nil {
			text[key] = dtype.RotationGroup
		}
	}
	if text["num_experts"] != nil { // all are chosen: rounding changes no choice
		text["num_experts_per_tok"] = text["num_experts"]
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

// TestInjectHeadIntoParoQuant puts the head of the release beside the weights of ParoQuant's folders. The models
// answer as the same numbers in float32 do, the head included, and by integers within the error of rounding. That
// finds a model in which one weight leaves out a round of its rotation.
func TestInjectHeadIntoParoQuant(t *testing.T) {
	for _, arch := range []string{"dense", "moe"} {
		t.Run(arch, func(t *testing.T) {
			dir, plain := paroQuant(t, arch)
			head := openHead(t, plain, dir)
			_, err := InjectHead(t.Context(), golden.Open(t, dir), head, filepath.Join(t.TempDir(), "whole"), Options{})
			if err == nil || !strings.Contains(err.Error(), "rotated or reordered inputs, which the layout of a new folder cannot store: inject the head without a new folder") {
				t.Errorf("a new folder: %v", err)
			}
			if _, err := InjectHead(t.Context(), golden.Open(t, dir), head, "", Options{}); err != nil {
				t.Fatal(err)
			}
			want := answers(t, plain)
			near(t, answers(t, dir), want, golden.Tol.Spec)
			exact := logits(t, plain, backend.Float32, nil)
			if far := distance(logits(t, dir, backend.Int8, nil), exact); far > golden.Tol.Int8Rows {
				t.Errorf("by integers logits are off by %g", far)
			}
			for n := range 12 {
				if far := distance(logits(t, dir, backend.Int8, &shortened{left: n}), exact); far < golden.Tol.Int8Rows {
					t.Errorf("without a round of rotation %d logits are off by only %g", n, far)
				}
			}
		})
	}
}

// shortened is a device that leaves out the last round of a rotation.
type shortened struct {
	backend.Backend
	left int // weights with rotations before that
}

func (s *shortened) Load(c backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	if in := stack[0].Input; in != nil {
		if s.left == 0 {
			r := *in.Rotation
			cols := len(r.Scales)
			r.Rounds--
			r.Pairs, r.Cos, r.Sin = r.Pairs[:r.Rounds*cols], r.Cos[:r.Rounds*cols/2], r.Sin[:r.Rounds*cols/2]
			stack = slices.Clone(stack)
			for i := range stack {
				stack[i].Input = &dtype.Input{Rotation: &r}
			}
		}
		s.left--
	}
	return s.Backend.Load(c, stack...)
}

// logits are those of a few texts, on a device with an optional fault.
func logits(t *testing.T, dir string, how backend.Compute, fault *shortened) (all [][]float32) {
	t.Helper()
	b := backendtest.Open(t, backend.Options{Threads: 1})
	if fault != nil {
		fault.Backend = b
		b = fault
	}
	r := modeltest.OpenOn(t, b, dir, model.Options{Compute: how})
	rng := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		text := make([]int32, 6)
		for i := range text {
			text[i] = int32(rng.IntN(r.Info().Vocab))
		}
		target, drafts := r.Answers(t, text)
		all = append(append(all, target...), drafts...)
	}
	return all
}

// distance is the median over rows of the root mean square of the differences, relative to that of
// the row. A few rows of any text are near a step of the model, and rounding moves them far.
func distance(got, want [][]float32) float64 {
	var rows []float64
	for i := range want {
		off, size := 0.0, 0.0
		for j, w := range want[i] {
			d := float64(got[i][j]) - float64(w)
			off, size = off+d*d, size+float64(w)*float64(w)
		}
		rows = append(rows, math.Sqrt(off/size))
	}
	slices.Sort(rows)
	return rows[len(rows)/2]
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

// TestConvertWidensRotations converts ParoQuant's folders: the result has the numbers without rotations, in half
// precision as the scales, or quantized.
func TestConvertWidensRotations(t *testing.T) {
	dir, plain := paroQuant(t, "moe")
	if _, err := InjectHead(t.Context(), golden.Open(t, dir), openHead(t, plain, dir), "", Options{}); err != nil {
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
	if far := distance(logits(t, out, backend.Int8, nil), logits(t, plain, backend.Float32, nil)); far > golden.Tol.Int8Rows {
		t.Errorf("quantized, logits are off by %g", far)
	}
}
