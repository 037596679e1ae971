package drafter_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/convert"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/drafter"
)

// TestConvertedDraftersAreAsSurveyed converts drafters to other encodings. The planned memory is that of the loaded drafter, and an
// unchanged drafter drafts as before.
func TestConvertedDraftersAreAsSurveyed(t *testing.T) {
	for name, o := range map[string]convert.Options{
		"as stored": {},
		"4 bits":    {Quantize: &convert.Encoding{Format: dtype.Affine, Bits: 4, Group: 32}},
		"mxfp8":     {Quantize: &convert.Encoding{Format: dtype.MXFP8}},
	} {
		for _, f := range golden.Drafters(t, "") {
			dir := filepath.Join(t.TempDir(), "out")
			sum, err := convert.Convert(t.Context(), golden.Open(t, f.Dir), dir, o)
			if err != nil {
				t.Fatal(err)
			}
			s := surveyed(t, golden.Open(t, dir))
			r := openComputed(t, f.Target, golden.Open(t, dir), backend.Int8)
			short := f.Name == "dflash2" || f.Name == "dspark_nested" // rows of 16 numbers, which the CPU pads
			if (r.d.Bytes != s.Loaded) != short || !sum.Drafter || s.Parameters != sum.Parameters {
				t.Errorf("%s of %s: planned %d bytes, loaded %d; %d parameters in the survey, %d converted", name, f.Name, s.Loaded, r.d.Bytes, s.Parameters, sum.Parameters)
			}
			if strings.Contains(sum.String(), "multi-token") {
				t.Errorf("%s of %s: %s", name, f.Name, &sum)
			}
			if f.Name == "eagle31" && name == "as stored" { // in no GGUF file
				open(t, f.Target, dir, backend.Options{}).rounds(t, f, 0)
			}
		}
	}
}

// TestDraftersAreNoModels opens a drafter in the place of a model, and a model in the place of a drafter.
func TestDraftersAreNoModels(t *testing.T) {
	d, m := golden.Open(t, golden.Drafters(t, "")[0].Dir), golden.Open(t, golden.Dir(t, "dense"))
	if _, err := model.Open(d, nil, model.Options{}); err == nil || !strings.Contains(err.Error(), "config.json is that of a drafter") {
		t.Error(err)
	}
	if _, err := model.Fit(m, model.Target{}); err == nil || !strings.Contains(err.Error(), "is not a drafter") {
		t.Error(err)
	}
	if _, err := drafter.Open(m, openComputed(t, "dense", d, backend.Int8).Model.(model.Lender), nil, model.Options{}); err == nil || !strings.Contains(err.Error(), "unknown kind") {
		t.Error(err)
	}
	if _, err := model.Fit(d, model.Target{Width: 64, Vocab: 512, Layers: 4}); err == nil || !strings.Contains(err.Error(), "hidden_size is 128, but the model's hidden rows have 64") {
		t.Error(err)
	}
}
