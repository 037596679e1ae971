package weights

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
)

// allForms are the names of all forms, with every width of those of several.
func allForms() []string {
	names := slices.Clone(FormNames()[len(openForms):])
	for _, width := range []string{"2", "3", "4:32", "5", "6", "8:16"} {
		for _, o := range openForms {
			names = append(names, o.name+":"+width)
		}
	}
	return append(names, "zero-point:8:512", "zero-point:4:256")
}

// TestFormsMakeNumbersNearOne: products of generated weights of every form with ones of a normal
// size are of a normal size, no number is infinite, and the mean is small beside the numbers.
func TestFormsMakeNumbersNearOne(t *testing.T) {
	const rows, cols = 37, 512
	row := make([]float32, cols)
	for _, name := range allForms() {
		f, err := ParseForm(name, 4)
		if err != nil {
			t.Fatal(err)
		}
		m, err := f.Matrix(rows, cols)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if (m.Input != nil) != (strings.HasPrefix(name, "act-order") || strings.HasPrefix(name, "paro")) {
			t.Errorf("%s: input %v", name, m.Input)
		}
		if m.Format == dtype.Plain != slices.Contains([]string{"bf16", "f16", "f32"}, name) {
			t.Errorf("%s: %v", name, m.Format)
		}
		sum, mean := 0.0, 0.0
		for r := range rows {
			m.Row(row, r)
			for _, x := range row {
				sum += float64(x) * float64(x)
				mean += float64(x) / (rows * cols)
			}
		}
		if size := math.Sqrt(sum / rows); math.IsNaN(size) || size < 0.5 || size > 1.5 {
			t.Errorf("%s: rows have a length of %g, want 1", name, size)
		}
		if mean *= math.Sqrt(cols); math.Abs(mean) > 0.5 {
			t.Errorf("%s: the mean is %g of the deviation, want less than a half", name, mean)
		}
	}
}

// TestFormsTakeThePlannedMemory: weights of every form take what is planned for them.
func TestFormsTakeThePlannedMemory(t *testing.T) {
	const rows, cols = 48, 512
	b := backendtest.Open(t, backend.Options{})
	for _, name := range allForms() {
		f, err := ParseForm(name, 4)
		if err != nil {
			t.Fatal(err)
		}
		m, err := f.Matrix(rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		w, err := b.Load(backend.Int8, m)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if planned := int64(rows*m.LoadedRowBytes()) + m.InputBytes(); w.Bytes() != planned {
			t.Errorf("%s: %d bytes are loaded, %d are planned", name, w.Bytes(), planned)
		}
		b.Unload(w)
	}
}

// TestParseFormMistakes names what is wrong.
func TestParseFormMistakes(t *testing.T) {
	for name, says := range map[string]string{
		"affine:7": "affine matrix of 7 bits", "zero-point:4:24": "groups of 24, want a multiple of 16", "paro:x": "want paro:BITS or paro:BITS:GROUP",
		"affine:4:y": "want affine:BITS", "q9_k": `format "q9_k" is unknown; known: affine`, "fp8:8": "unknown", "": "unknown",
	} {
		if _, err := ParseForm(name, 4); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", name, err, says)
		}
	}
	if f, err := ParseForm("Q2_K", 4); err != nil || f.Bits() != 2 || f.String() != "q2_k" {
		t.Errorf("Q2_K: %v, %v", f, err)
	}
}

// TestWritingNamesEveryForm: inspect names formats with what tells them apart.
func TestWritingNamesEveryForm(t *testing.T) {
	for name, want := range map[string]string{
		"affine:4:64": "affine 4 bits in groups of 64", "symmetric:4:32": "int4 in groups of 32", "zero-point:8": "int8 with zero points in groups of 128",
		"act-order": "int4 with zero points in groups of 128, act-order", "paro": "int4 with zero points in groups of 128, rotated inputs",
		"fp8": "fp8 in blocks of 128", "mxfp4": "mxfp4", "nvfp4": "nvfp4", "mxfp8": "mxfp8", "bf16": "bf16", "iq2_xs": "IQ2_XS", "q3_k": "Q3_K", "gguf-nvfp4": "NVFP4",
	} {
		f, err := ParseForm(name, 4)
		if err != nil {
			t.Fatal(err)
		}
		m, err := f.Matrix(1, 512)
		if err != nil {
			t.Fatal(err)
		}
		if got := writing(&m); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
