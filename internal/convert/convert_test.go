package convert

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
)

// way is how a model with a head may be stored.
type way struct {
	name  string
	arch  string
	edits []edit
	head  int // tensors of the head in the source
}

// Head tensors: 15 of a dense one; of one with 4 experts 17 and 3 per expert, or 2 when
// fused. A converted one has 15, or 17 and 3.
func ways() []way {
	const expert, fused = 17 + 3*4, 17 + 2
	list := []way{
		{"raw", "dense", nil, 15},
		{"raw experts, those of the head one by one", "moe", nil, expert},
		{"raw experts, fused in the head too", "moe", []edit{fuse}, fused},
		{"experts one by one everywhere", "moe", []edit{separate}, expert},
		{"VLM layout", "dense", []edit{vlm}, 15},
		{"VLM layout with experts", "moe", []edit{vlm}, expert},
		{"VLM layout, unmarked", "dense", []edit{vlm, func(s *stored) { s.format = nil }}, 15},
		{"Qwen3-Next", "moe", []edit{qwen3Next}, expert},
		{"Qwen3-Next without experts", "dense", []edit{qwen3Next}, 15},
		{"drafter folder inside", "dense", []edit{drafter("mtp/")}, 15},
		{"drafter folder beside", "moe", []edit{drafter("../source-mtp/")}, expert},
	}
	for _, file := range []string{"mtp.safetensors", "model-mtp.safetensors", "mtp/weights.safetensors"} {
		list = append(list,
			way{"raw " + file, "dense", []edit{beside(file)}, 15},
			way{"raw " + file + " with experts", "moe", []edit{beside(file)}, expert},
			way{"raw " + file + " by a converted model", "dense", []edit{vlm, shift(-1, isHead), beside(file)}, 15},
			way{"converted " + file + " by a raw model", "dense", []edit{float32s, shift(1, isHead), beside(file)}, 15},
			way{"mixed norms in " + file, "dense", []edit{float32s, shift(1, func(name string) bool {
				return isHead(name) && strings.Contains(name, "q_norm")
			}), beside(file)}, 15},
		)
	}
	return list
}

// drafter moves the head to a separate folder, as mlx-vlm splits it.
func drafter(dir string) edit {
	return func(s *stored) {
		file := dir + mainFile
		float32s(s)
		shift(1, isHead)(s)
		list := s.take(isHead)
		for i := range list {
			list[i].name = strings.TrimPrefix(list[i].name, "mtp.")
		}
		s.files[file], s.format[file] = list, "mlx"
		s.texts[dir+"config.json"] = `{"model_type": "qwen3_5_mtp", "block_size": 3}`
	}
}

// TestConvertKeepsTheModel converts every layout without a change of encoding. The same
// weights must be effective, head included, and a model of the same bits must load.
func TestConvertKeepsTheModel(t *testing.T) {
	want, weights := map[string][][]float32{}, map[string]map[string][]float32{}
	for _, arch := range []string{"dense", "moe"} {
		dir := base(t, arch)
		want[arch], weights[arch] = answers(t, dir), effective(t, dir)
	}
	sources := ways()
	if testing.Short() {
		sources = sources[:3]
	}
	for _, p := range sources {
		t.Run(fmt.Sprintf("model=%s/source=%s", p.arch, p.name), func(t *testing.T) {
			dir := fixture(t, p.arch, p.edits...).write(t)
			out, s := converted(t, dir, Options{})
			compare(t, effective(t, out), weights[p.arch], nil)
			head := 15
			if p.arch == "moe" {
				head = 17 + 3
			}
			if s.HeadIn != p.head || s.HeadOut != head {
				t.Errorf("the head is %d tensors of %d, want %d of %d", s.HeadOut, s.HeadIn, head, p.head)
			}
			if !slices.EqualFunc(answers(t, out), want[p.arch], same) {
				t.Error("the model answers differently")
			}
		})
	}
}

// TestConvertFP8KeepsTheModel converts official releases: FP8 becomes numbers.
func TestConvertFP8KeepsTheModel(t *testing.T) {
	for _, p := range []way{
		{"head inside", "dense", []edit{fp8}, 15 + 7},
		{"head inside, experts one by one", "moe", []edit{separate, fp8}, 17 + 3*4 + 4 + 3 + 3*4},
		{"head beside", "dense", []edit{beside("mtp.safetensors"), fp8}, 15 + 7},
		{"fused head beside", "moe", []edit{fuse, beside("mtp.safetensors"), fp8}, 17 + 2 + 4 + 3},
	} {
		for _, typ := range []dtype.Type{dtype.Invalid, dtype.F32} {
			t.Run(fmt.Sprintf("model=%s/source=%s/type=%v", p.arch, p.name, typ), func(t *testing.T) {
				dir := fixture(t, p.arch, p.edits...).write(t)
				out, s := converted(t, dir, Options{Type: typ})
				if s.HeadIn != p.head {
					t.Errorf("%d tensors of the head, want %d", s.HeadIn, p.head)
				}
				compare(t, effective(t, out), effective(t, dir), func(name string, v []float32) []float32 {
					if typ == dtype.Invalid && strings.HasSuffix(name, "_proj.weight") {
						return rounded(dtype.BF16, v)
					}
					return v
				})
				if c := golden.Open(t, out); strings.Contains(string(c.Config()), "fp8") {
					t.Errorf("config still speaks of fp8: %s", c.Config())
				}
			})
		}
	}
}

// TestConvertTypes stores everything in one type: each effective number is rounded once.
// In float32 the model answers with the same bits.
func TestConvertTypes(t *testing.T) {
	for _, arch := range []string{"dense", "moe", "tiny"} {
		want := effective(t, base(t, arch))
		for _, typ := range []dtype.Type{dtype.F16, dtype.BF16, dtype.F32} {
			if arch == "tiny" && (typ != dtype.BF16 || testing.Short()) {
				continue // the largest
			}
			t.Run(fmt.Sprintf("model=%s/type=%v", arch, typ), func(t *testing.T) {
				dir := fixture(t, arch).write(t)
				out, _ := converted(t, dir, Options{Type: typ, Dequantize: true})
				compare(t, effective(t, out), want, func(name string, v []float32) []float32 {
					if strings.HasSuffix(name, "A_log") {
						return v
					}
					return rounded(typ, v)
				})
				c := golden.Open(t, out)
				for _, name := range c.Tensors() {
					if x, _ := c.Look(name); x.Type != typ && !strings.HasSuffix(name, "A_log") {
						t.Errorf("%s is %v", name, x.Type)
					}
				}
				if typ == dtype.F32 && !slices.EqualFunc(answers(t, out), answers(t, dir), same) {
					t.Error("the model answers differently")
				}
			})
		}
	}
}

// TestConvertTwiceChangesNothing converts converted folders with the same settings, and
// without any.
func TestConvertTwiceChangesNothing(t *testing.T) {
	four := &Encoding{Format: dtype.Affine, Bits: 4, Group: 32}
	for name, o := range map[string]Options{
		"as it is":  {},
		"float16":   {Type: dtype.F16},
		"4 bits":    {Quantize: four},
		"head too":  {Quantize: four, Head: &Encoding{Format: dtype.Affine, Bits: 6, Group: 64}},
		"overrides": {Quantize: four, Overrides: []Override{{"*down_proj", Encoding{Format: dtype.Affine, Bits: 8, Group: 64}}, {"lm_head", Encoding{Format: dtype.Plain}}}},
		"mxfp4":     {Quantize: &Encoding{Format: dtype.MXFP4}},
		"nvfp4":     {Quantize: &Encoding{Format: dtype.NVFP4}, Head: &Encoding{Format: dtype.MXFP8}},
		"vision":    {Quantize: four, Vision: &Encoding{Format: dtype.Affine, Bits: 8, Group: 64}},
		"no vision": {Quantize: four, NoVision: true},
	} {
		for _, arch := range []string{"dense", "moe"} {
			t.Run(fmt.Sprintf("model=%s/options=%s", arch, name), func(t *testing.T) {
				o.ShardSize = 1 << 20
				first, _ := converted(t, fixture(t, arch).write(t), o)
				again, _ := converted(t, first, o)
				sameFolders(t, again, first)
				bare, _ := converted(t, first, Options{ShardSize: o.ShardSize, NoVision: o.NoVision})
				sameFolders(t, bare, first)
			})
		}
	}
}

// sameFolders checks that two folders hold the same bytes.
func sameFolders(t *testing.T, got, want string) {
	t.Helper()
	read := func(dir string) map[string]string {
		list := map[string]string{}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			b := filetest.Read(t, filepath.Join(dir, e.Name()))
			list[e.Name()] = string(b)
		}
		return list
	}
	a, b := read(got), read(want)
	if len(a) != len(b) {
		t.Errorf("%d files, want %d", len(a), len(b))
	}
	for name := range b {
		if a[name] != b[name] {
			t.Errorf("%s differs", name)
		}
	}
}
