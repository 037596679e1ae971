package convert

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
)

// The specification lists 32 mistakes of other converters. Those about
// files are tested here by their number, for the output of convert. Those about loading are
// tested in internal/model/qwen35, and those about running in engine and spec:
//
//	 3   TestNormConventionOfHead, TestOpenLayoutsAreOneModel
//	 4   TestNormGuardWarns, TestNormConventionOfModel
//	 5   TestNormMixedHeadsAreOneModel
//	 6   the tests of broken_test.go
//	 8   TestOpenMixedEncodings
//	25   TestOpenLayoutsAreOneModel, and the specification's vectors
//	26   the same; order of value heads in GGUF: the tests of gguf_test.go
//	28   TestOpenLayoutsAreOneModel with all layouts of experts
//	29   TestOpenEncodedEqualsDecoded
//
// Numbers 2, 10 to 22 and 32 are about decoding, 23 and 24 in part about chat.

// gains are the effective gains of a folder's norms.
func gains(t *testing.T, dir string) map[string][]float32 {
	t.Helper()
	list := effective(t, dir)
	for name := range list {
		if !strings.Contains(name, "norm") {
			delete(list, name)
		}
	}
	return list
}

// configOf is the config of a folder.
func configOf(t *testing.T, dir string) (top, text map[string]any) {
	t.Helper()
	filetest.Decode(t, golden.Open(t, dir).Config(), &top)
	text, _ = top["text_config"].(map[string]any)
	return top, text
}

func TestPitfall01HiddenModeIsKept(t *testing.T) {
	dir := fixture(t, "dense", func(s *stored) {
		s.config["text_config"].(map[string]any)["mtp_hidden_state_mode"] = "pre_norm"
	}).write(t)
	out, _ := converted(t, dir, Options{Quantize: fourBits})
	if _, text := configOf(t, out); text["mtp_hidden_state_mode"] != "pre_norm" {
		t.Errorf("config %v", text)
	}
}

// Raw and converted copies of one head, inside and beside, come to the same gains.
func TestPitfall03HeadNormsGetTheirOne(t *testing.T) {
	want := gains(t, base(t, "dense"))
	for name, edits := range map[string][]edit{
		"raw inside":       nil,
		"raw beside":       {beside("mtp.safetensors")},
		"converted inside": {vlm},
		"converted beside": {float32s, shift(1, isHead), beside("mtp.safetensors")},
		"raw by converted": {vlm, shift(-1, isHead), beside("mtp.safetensors")},
	} {
		out, _ := converted(t, fixture(t, "dense", edits...).write(t), Options{Quantize: fourBits})
		got := gains(t, out)
		for norm, v := range want {
			if !same(got[norm], v) {
				t.Errorf("%s: %s differs", name, norm)
			}
		}
	}
}

// Files that were converted are converted again, three times over.
func TestPitfall04NormShiftedTwice(t *testing.T) {
	dir := base(t, "dense")
	want := gains(t, dir)
	for range 3 {
		dir, _ = converted(t, dir, Options{})
		compare(t, gains(t, dir), want, nil)
	}
	mean, n := 0.0, 0
	for name, v := range gains(t, dir) {
		if strings.HasSuffix(name, "input_layernorm.weight") {
			for _, x := range v {
				mean += float64(x)
				n++
			}
		}
	}
	if mean /= float64(n); math.Abs(mean-1) > 0.2 {
		t.Errorf("the mean gain is %.3f", mean)
	}
}

// One head has norms of both conventions; the result has one, and declares it.
func TestPitfall05MixedConventions(t *testing.T) {
	want := gains(t, base(t, "dense"))
	for _, mixed := range []string{"q_norm", "k_norm", "input_layernorm", "post_attention_layernorm"} {
		dir := fixture(t, "dense", float32s, shift(1, func(name string) bool { return isHead(name) && strings.Contains(name, mixed) }),
			beside("mtp.safetensors")).write(t)
		out, _ := converted(t, dir, Options{})
		compare(t, gains(t, out), want, nil)
	}
}

// A config that promises a head which the weights lack is put right.
func TestPitfall06HeadStripped(t *testing.T) {
	dir := fixture(t, "dense", func(s *stored) { s.take(isHead) }).write(t)
	if _, text := configOf(t, dir); text["mtp_num_hidden_layers"] != 1.0 {
		t.Fatalf("the source does not promise a head: %v", text)
	}
	out, s := converted(t, dir, Options{})
	if _, text := configOf(t, out); text["mtp_num_hidden_layers"] != 0.0 || !strings.Contains(s.String(), "no multi-token-prediction head") {
		t.Errorf("config %v, summary %s", text, &s)
	}
}

// A quantized head gives nearly the same logits.
func TestPitfall07QuantizedHeadWorks(t *testing.T) {
	four := &Encoding{Format: dtype.Affine, Bits: 4, Group: 64}
	text := golden.Load(t, "tiny").Cases[0].Tokens[:24]
	answer := func(dir string) [][]float32 {
		_, head := modeltest.Open(t, dir, 1, model.Options{Compute: backend.Float32}).Answers(t, text)
		return head
	}
	out, _ := converted(t, golden.Dir(t, "tiny"), Options{Head: four})
	want, got := answer(golden.Dir(t, "tiny")), answer(out)
	for i := range want {
		if c := cosine(got[i], want[i]); c < 0.99 {
			t.Errorf("row %d: cosine %.4f", i, c)
		}
	}
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	return ab / math.Sqrt(aa*bb)
}

// The scales of fused experts, whose tensors have no .weight in their names, are there.
func TestPitfall08FusedExpertsKeepTheirScales(t *testing.T) {
	four := &Encoding{Format: dtype.Affine, Bits: 4, Group: 64}
	dir := fixture(t, "moe", fuse).write(t)
	out, s := converted(t, dir, Options{Quantize: four, Head: four})
	c := golden.Open(t, out)
	for _, p := range []string{"language_model.model.layers.0.", "language_model.mtp.layers.0."} {
		for _, name := range []string{"gate_proj", "up_proj", "down_proj"} {
			for _, part := range []string{".weight", ".scales", ".biases"} {
				if !c.Has(p + "mlp.switch_mlp." + name + part) {
					t.Errorf("no %smlp.switch_mlp.%s%s", p, name, part)
				}
			}
		}
	}
	// All 13 matrices of the head are quantized: three tensors each, and seven norms.
	if s.HeadOut != 7+13*3 {
		t.Errorf("%d tensors of the head, want 46", s.HeadOut)
	}
	raw, got := effective(t, dir), effective(t, out)
	for name, v := range raw {
		if c := cosine(v, got[name]); c < 0.99 {
			t.Errorf("%s: cosine %.4f", name, c)
		}
	}
}

// Numbers beyond float16 are refused by name instead of becoming infinite.
func TestPitfall09Float16DoesNotOverflow(t *testing.T) {
	for _, name := range []string{"mtp.fc.weight", "mtp.norm.weight"} {
		dir := fixture(t, "dense", func(s *stored) {
			s.each(func(x *tensor) {
				if x.name == name {
					v := x.values()
					v[len(v)-1] = -70000
					*x = values(x.name, x.typ, x.shape, v)
				}
			})
		}).write(t)
		_, err := Convert(t.Context(), golden.Open(t, dir), filepath.Join(t.TempDir(), "out"), Options{Type: dtype.F16})
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "too large") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The ids that end a text, the template and the tokenizer are the source's, byte for byte.
func TestPitfall23StopIDsAreCopied(t *testing.T) {
	checkCopied(t, "generation_config.json")
}

func TestPitfall24TemplateIsCopied(t *testing.T) {
	checkCopied(t, "chat_template.jinja", "tokenizer_config.json")
}

func TestPitfall31TokenizerIsCopied(t *testing.T) {
	checkCopied(t, "tokenizer.json")
}

func checkCopied(t *testing.T, names ...string) {
	t.Helper()
	out, _ := converted(t, golden.Dir(t, "tiny"), Options{})
	for _, name := range names {
		got := filetest.Read(t, filepath.Join(out, name))
		want := filetest.Read(t, filepath.Join(golden.Dir(t, "tiny"), name))
		if !slices.Equal(got, want) {
			t.Errorf("%s differs", name)
		}
	}
}

// The gated norm has its whole gain in the file: 1 is not added.
func TestPitfall27GatedNormIsNotShifted(t *testing.T) {
	out, _ := converted(t, base(t, "dense"), Options{})
	c, source := golden.Open(t, out), golden.Open(t, base(t, "dense"))
	const name = "layers.0.linear_attn.norm.weight"
	got, want := read(t, c, mlxName(name)), read(t, source, "model.language_model."+name)
	if !same(got.values(), want.values()) {
		t.Errorf("%v, want %v", got.values(), want.values())
	}
}

// The first half of the rows of a fused expert is the gate; nothing is transposed.
func TestPitfall28ExpertHalves(t *testing.T) {
	out, _ := converted(t, base(t, "moe"), Options{})
	c, source := golden.Open(t, out), golden.Open(t, base(t, "moe"))
	fused := read(t, source, "model.language_model.layers.1.mlp.experts.gate_up_proj")
	n, rows, cols := fused.shape[0], fused.shape[1], fused.shape[2]
	gate := read(t, c, "language_model.model.layers.1.mlp.switch_mlp.gate_proj.weight")
	up := read(t, c, "language_model.model.layers.1.mlp.switch_mlp.up_proj.weight")
	if want := []int{n, rows / 2, cols}; !slices.Equal(gate.shape, want) || !slices.Equal(up.shape, want) {
		t.Fatalf("shapes %v and %v, want %v", gate.shape, up.shape, want)
	}
	half := rows / 2 * cols * fused.typ.Size()
	for e := range n {
		at := 2 * e * half
		if !slices.Equal(gate.data[e*half:(e+1)*half], fused.data[at:at+half]) || !slices.Equal(up.data[e*half:(e+1)*half], fused.data[at+half:at+2*half]) {
			t.Errorf("expert %d differs", e)
		}
	}
}

// FP8 becomes bfloat16 and not another small float: the statistics stay.
func TestPitfall29FP8BecomesNumbers(t *testing.T) {
	dir := fixture(t, "dense", fp8).write(t)
	out, _ := converted(t, dir, Options{})
	want, got := effective(t, dir), effective(t, out)
	c := golden.Open(t, out)
	for name, v := range want {
		if x, ok := c.Look(mlxName(name)); strings.HasSuffix(name, "_proj.weight") && (!ok || x.Type != dtype.BF16) {
			t.Errorf("%s is %v", name, x.Type)
		}
		for i := range v {
			if d := math.Abs(float64(v[i] - got[name][i])); d > math.Abs(float64(v[i]))/256 {
				t.Fatalf("%s[%d] is %g, want %g", name, i, got[name][i], v[i])
			}
		}
	}
}

// Ids of image tokens are those of the source, present or not: none is invented.
func TestPitfall30VisionIDsAreTheSources(t *testing.T) {
	dir := fixture(t, "dense", func(s *stored) { s.config["vision_start_token_id"] = 248053 }).write(t)
	out, _ := converted(t, dir, Options{})
	top, text := configOf(t, out)
	if top["vision_start_token_id"] != 248053.0 || top["vision_end_token_id"] != nil || text["vision_end_token_id"] != nil {
		t.Errorf("config %v", top)
	}
}
