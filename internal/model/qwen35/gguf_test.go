package qwen35

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/checkpoint/gguf/gguftest"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/tokenizer"
)

// mixed gives matrices all types in turn, as far as the width of their rows allows.
func mixed() func(string, int) string {
	turn := 0
	types := []string{
		"Q4_K", "Q5_K", "Q6_K", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16", "IQ4_NL", "IQ4_XS",
		"NVFP4", "Q2_K", "Q3_K", "TQ1_0", "MXFP4", "TQ2_0", "Q1_0", "Q2_0",
		"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
	}
	return func(_ string, cols int) string {
		for {
			if turn++; cols%gguftest.Columns(types[turn%len(types)]) == 0 {
				return types[turn%len(types)]
			}
		}
	}
}

// The models of the specification with two value heads for each of two key heads.
var (
	specDense = golden.SpecConfig{Name: "B-dense", Heads: 4, KVHeads: 2, KeyHeads: 2, ValueHeads: 4}
	specMoE   = golden.SpecConfig{Name: "B-moe", Heads: 4, KVHeads: 2, KeyHeads: 2, ValueHeads: 4, Experts: 4, ExpertsActive: 2}
)

// sameNumbers compares what two files stand for, by the bits. Decay rates went through a
// logarithm.
func sameNumbers(t *testing.T, got, want map[string][]float32) {
	t.Helper()
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		t.Fatalf("tensors\n%q, want\n%q", g, w)
	}
	for name, v := range want {
		for i, x := range v {
			y := got[name][i]
			if y == x || strings.HasSuffix(name, "ssm_a") && math.Abs(float64(y/x-1)) < 1e-6 {
				continue
			}
			t.Errorf("%s: number %d is %g, want %g", name, i, y, x)
			break
		}
	}
}

// TestGGUFGivesBackEveryNumber: converting what was loaded from a GGUF file gives the
// numbers of that file, whatever the types; and in float32 those of the original. So names,
// shapes, norms and experts are undone exactly, those of the head too, and heads stay in order.
// The config is the original's in all that counts.
func TestGGUFGivesBackEveryNumber(t *testing.T) {
	type fixture struct {
		fixture, arch, name string
		choose              func(string, int) string
		parts               int
		slow                bool
	}
	cases := []fixture{
		{"dense", "qwen35", "F32", oneType("F32"), 1, false},
		{"dense", "qwen35", "BF16", oneType("BF16"), 3, false},
		{"moe", "qwen35moe", "F32", oneType("F32"), 2, true},
		{"moe", "qwen35moe", "F16", oneType("F16"), 1, true},
		{"moe", "qwen35moe", "Q8_0", oneType("Q8_0"), 1, true},
		{"moe", "qwen35moe", "mixed", mixed(), 1, false},
		{"dense", "qwen35", "mixed", mixed(), 1, false},
	}
	if long { // the same with more numbers
		cases = append(cases, fixture{"tiny", "qwen35", "mixed", mixed(), 1, true})
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("fixture=%s/type=%s", c.fixture, c.name), func(t *testing.T) {
			if testing.Short() && c.slow {
				t.Skip("quantizes millions of numbers slowly")
			}
			path, l := convertGGUF(t, golden.Dir(t, c.fixture), c.arch, c.choose, c.parts)
			k := openedGGUF(t, path)
			loaded := sourceTensors(t, k, 32)
			again := newLlama(t, k.Config(), c.arch, oneType("F32"))
			again.grouped = true // heads have stayed as they were
			again.convert(loaded)
			sameNumbers(t, again.stored, l.stored)

			block := fmt.Sprintf("blk.%d.", l.n("num_hidden_layers"))
			inFile, inModel := 0, 0
			for name := range l.stored {
				if strings.HasPrefix(name, block) {
					inFile++
				}
			}
			for name := range loaded {
				if strings.HasPrefix(name, "mtp.") {
					inModel++
				}
			}
			if inFile != inModel || inFile < 15 {
				t.Errorf("the head has %d tensors in the file and %d in the checkpoint", inFile, inModel)
			}
			source := golden.Open(t, golden.Dir(t, c.fixture))
			sameConfig(t, k, source)
			if c.name == "F32" {
				original := newLlama(t, source.Config(), c.arch, oneType("F32"))
				original.raw = true
				original.convert(sourceTensors(t, source, 64))
				sameNumbers(t, again.stored, original.stored)
			}
		})
	}
}

// sameConfig checks that the model is built from the values of the original's config.
func sameConfig(t *testing.T, got, want *checkpoint.Checkpoint) {
	t.Helper()
	a, err := readConfig(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := readConfig(want)
	if err != nil {
		t.Fatal(err)
	}
	if a.tiled != (a.valueHeads != a.keyHeads) || b.tiled {
		t.Errorf("value heads tiled: %v, and in the original %v", a.tiled, b.tiled)
	}
	a.tiled = false
	a.vision, b.vision = nil, nil // other files have towers
	if !reflect.DeepEqual(a, b) {
		t.Errorf("config %+v\nwant %+v", a, b)
	}
}

// TestGGUFVariants: what converters of different times and makers do differently, on the
// models of the specification, whose logits tell every mistake.
func TestGGUFVariants(t *testing.T) {
	prompt := []int32{1, 2, 3, 4, 5}
	set := func(key string, v any) func(*llama) { return func(l *llama) { l.out.Set(key, v) } }
	for _, c := range []struct {
		name, arch string
		config     golden.SpecConfig
		edit       func(l *llama)
	}{
		{"dense", "qwen35", specDense, func(*llama) {}},
		{"experts", "qwen35moe", specMoE, func(*llama) {}},
		{"experts with gate and up in one", "qwen35moe", specMoE, func(l *llama) { l.fused = true }},
		{"qwen3next", "qwen3next", specMoE, func(*llama) {}},
		{"heads as they were", "qwen35", specDense, func(l *llama) {
			l.grouped = true
			l.out.Set("qwen35.ssm.v_head_reordered", false)
		}},
		{"order of heads said", "qwen35", specDense, set("qwen35.ssm.v_head_reordered", true)},
		{"bias without its suffix", "qwen35", specDense, func(l *llama) { l.names = strings.NewReplacer("ssm_dt.bias", "ssm_dt") }},
		{"images too", "qwen35", specDense, func(l *llama) {
			l.out.Add("v.blk.0.ln1.weight", "F32", []int{4}, make([]float32, 4))
			l.out.Add("mm.0.weight", "F16", []int{2, 2}, make([]float32, 4))
		}},
		{"heads by layer", "qwen35", specDense, func(l *llama) {
			delete(l.text, "num_key_value_heads")
			l.out.Set("qwen35.attention.head_count_kv", []int32{0, 0, 0, 2, 2})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := specFolder(t, c.config).write(t)
			path, _ := convertGGUF(t, dir, c.arch, oneType("F32"), 1, c.edit)
			got, want := answers(t, path, prompt), answers(t, dir, prompt)
			for i, row := range want {
				for j, x := range row {
					if d := math.Abs(float64(got[i][j] - x)); d > 1e-5 { // decay rates went through a logarithm
						t.Fatalf("row %d, logit %d is off by %g", i, j, d)
					}
				}
			}
		})
	}
}

// TestGGUFWritesTheReferencesText: the trained model from a GGUF file goes on as the
// reference does: in halves exactly, with 8 bits where the reference was sure. Its head
// draft tokens as often right as the original's.
func TestGGUFWritesTheReferencesText(t *testing.T) {
	if testing.Short() {
		t.Skip("quantizes 21 million numbers slowly")
	}
	f := golden.Load(t, "tiny")
	c := &f.Cases[0]
	for typ, margin := range map[string]float64{"F16": 0.02, "Q8_0": golden.Tol.Int8Margin} {
		if typ == "F16" && !long {
			continue // TestGGUFGivesBackEveryNumber has it, and nothing is as close to the reference
		}
		path, _ := convertGGUF(t, golden.Dir(t, "tiny"), "qwen35", oneType(typ), 1)
		r := open(t, path, 0, model.Options{Compute: backend.Int8})
		if !r.Info().Head {
			t.Fatal("no head")
		}
		logits, hidden := r.Feed(t, model.Span{State: r.Sequence(t), Tokens: c.Tokens, Want: len(c.Tokens)})
		for row, x := range logits {
			if argmax(x) != c.Argmax[row] && float64(c.Margin[row]) > margin {
				t.Errorf("%s: row %d: argmax %d, want %d (margin %g)", typ, row, argmax(x), c.Argmax[row], c.Margin[row])
			}
		}
		n := len(c.Tokens) - 1
		head := headLogits(t, r, hidden[:n*r.Info().Width], c.Tokens[1:])
		same := 0
		for row, x := range head {
			if argmax(x) == c.Draft1[row] {
				same++
			}
		}
		t.Logf("%s: %d of %d draft tokens of the head are the reference's", typ, same, n)
		if same < n*97/100 {
			t.Errorf("%s: only %d of %d draft tokens of the head are the reference's", typ, same, n)
		}
	}
}

func TestGGUFTokenizerGivesTheSameIDs(t *testing.T) {
	dir := golden.Dir(t, "tiny")
	path, _ := convertGGUF(t, specFolder(t, specDense).write(t), "qwen35", oneType("F32"), 1, func(l *llama) { l.words = dir })
	c := openedGGUF(t, path)
	read := func(name string) string {
		t.Helper()
		text, err := c.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	original := filetest.Read(t, filepath.Join(dir, "tokenizer.json"))
	want, err := tokenizer.New(original)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tokenizer.New([]byte(read("tokenizer.json")))
	if err != nil {
		t.Fatal(err)
	}
	if got.Size() != want.Size() {
		t.Errorf("%d tokens, want %d", got.Size(), want.Size())
	}
	for id := range int32(want.Size()) {
		a, okA := got.Token(id)
		b, okB := want.Token(id)
		if a != b || okA != okB || got.Special(id) != want.Special(id) {
			t.Errorf("token %d: %q %v, want %q %v", id, a, got.Special(id), b, want.Special(id))
		}
	}
	texts := []string{
		"", "Once upon a time, there was a cat.", "I've 123 things  to\n\n do\t— naïve café e\u0301 नमस्ते 👩‍👩‍👧",
		"<|im_start|>user\nHi<|im_end|>\n<think>\n</think>", "func main() {\r\n\treturn\r\n}", "<b>&amp;</b> \"quoted\" \\n",
	}
	for _, c := range golden.Load(t, "tiny").Cases {
		texts = append(texts, c.Text+c.Output)
	}
	for _, text := range texts {
		if a, b := got.Encode(text), want.Encode(text); !slices.Equal(a, b) {
			t.Errorf("%q: ids %v, want %v", text, a, b)
		}
	}
	template, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja"))
	if err != nil || read("chat_template.jinja") != string(template) {
		t.Errorf("the template is another (%v)", err)
	}
	if text := read("tokenizer_config.json"); !strings.Contains(text, `"eos_token": "\u003c|im_end|\u003e"`) {
		t.Errorf("tokenizer_config.json: %s", text)
	}
	if g, err := c.Generation(); err != nil || !slices.Equal(g.EOS, checkpoint.TokenIDs{8183, 8185}) || *g.TopK != 20 || float32(*g.Temperature) != 0.8 || !*g.DoSample {
		t.Errorf("generation: %+v, %v", g, err)
	}
	if _, err := c.ReadFile("other.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("other.json: %v", err)
	}
}

func TestGGUFRefuses(t *testing.T) {
	dir := specFolder(t, specDense).write(t)
	replace := func(key string, v any) func(*llama) {
		return func(l *llama) { l.replace = map[string]any{key: v} }
	}
	extra := func(name string, typ uint32, shape []int, bytes int) func(*llama) {
		return func(l *llama) { l.out.AddRaw(name, typ, shape, make([]byte, bytes)) }
	}
	for _, c := range []struct {
		name string
		edit func(*llama)
		want string
	}{
		{"another architecture", replace("general.architecture", "llama"), `architecture "llama" is not supported; supported: qwen35, qwen35moe, qwen3next`},
		{"no architecture", replace("general.architecture", nil), `no key "general.architecture"`},
		{"no blocks", replace("qwen35.block_count", nil), `no key "qwen35.block_count"`},
		{"many blocks", replace("qwen35.block_count", uint32(1<<31)), "qwen35.block_count is 2147483648, want a number from 1 to 4096"},
		{"only a head", replace("qwen35.block_count", uint32(1)), "all blocks belong to the head"},
		{"fewer blocks", replace("qwen35.block_count", uint32(4)), `it is not part of a qwen35 model of 4 blocks`},
		{"odd heads", replace("qwen35.ssm.group_count", uint32(3)), "3 key heads do not divide 4 value heads"},
		{"no width", replace("qwen35.embedding_length", nil), `no key "qwen35.embedding_length"`},
		{"text for a number", replace("qwen35.context_length", "long"), `key "qwen35.context_length": not numbers`},
		{"eps not a number", replace("qwen35.attention.layer_norm_rms_epsilon", float32(math.NaN())), "qwen35.attention.layer_norm_rms_epsilon is NaN"},
		{"b and a in one", extra("blk.0.ssm_ba.weight", 0, []int{8, 8}, 256), `tensor "blk.0.ssm_ba.weight": the tensor needs value heads that follow their key heads`},
		{"unknown tensor", extra("blk.0.lora_a", 0, []int{8}, 32), `tensor "blk.0.lora_a": it is not part of a qwen35 model of 5 blocks`},
		{"an embedding of the head", extra("blk.4.nextn.embed_tokens.weight", 0, []int{8}, 32), `tensor "blk.4.nextn.embed_tokens.weight": it is not part`},
		{"the head's tensor elsewhere", extra("blk.0.nextn.enorm.weight", 0, []int{8}, 32), `tensor "blk.0.nextn.enorm.weight": it is not part`},
		{"bias twice", extra("blk.0.ssm_dt", 0, []int{4}, 16), `has two tensors "language_model.model.layers.0.linear_attn.dt_bias"`},
		{"unsupported type", extra("blk.3.ffn_gate_shexp.weight", 15, []int{1, 256}, 96), `types that are not supported, with the number of their tensors: Q8_K (1): use another file of this model, or quantize it to one of BF16, F16`},
		{"factor of nothing", extra("blk.0.ffn_gate.scale", 0, []int{1}, 32), `tensor "blk.0.ffn_gate.scale": it is not part`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, _ := convertGGUF(t, dir, "qwen35", oneType("F32"), 1, c.edit)
			k, err := model.OpenGGUF(path, "")
			if err == nil {
				_ = k.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestGGUFRefusesQuantizedDecays(t *testing.T) {
	l := newLlama(t, specDense.JSON(), "qwen35", nil)
	l.text["linear_num_value_heads"] = 32.0
	l.metadata()
	l.out.Add("token_embd.weight", "F32", []int{2, 8}, make([]float32, 16))
	l.out.Add("blk.0.ssm_a", "Q8_0", []int{32}, make([]float32, 32))
	path := filetest.Write(t, filepath.Join(t.TempDir(), "x.gguf"), l.out.Bytes())
	if _, err := model.OpenGGUF(path, ""); err == nil || !strings.Contains(err.Error(), `tensor "blk.0.ssm_a": Q8_0, want F32, F16 or BF16`) {
		t.Error(err)
	}
}

func TestGGUFRefusesWhenRead(t *testing.T) {
	path, _ := convertGGUF(t, specFolder(t, specDense, change("layers.1.linear_attn.A_log", func(x *tensor) {
		x.set([]float32{1, -200, 1, 1}) // its exponential is zero in float32
	})).write(t), "qwen35", oneType("F32"), 1)
	if _, err := model.Open(openedGGUF(t, path), backendtest.Open(t, backend.Options{}), model.Options{}); err == nil || !strings.Contains(err.Error(), `layers.1.linear_attn.A_log": decay rate -0, want a negative number`) {
		t.Errorf("decay rate: %v", err)
	}
	path, _ = convertGGUF(t, specFolder(t, specDense).write(t), "qwen35", oneType("F32"), 1, func(l *llama) {
		l.replace = map[string]any{"qwen35.ssm.time_step_rank": uint32(8)}
	})
	if _, err := model.Open(openedGGUF(t, path), backendtest.Open(t, backend.Options{}), model.Options{}); err == nil || !strings.Contains(err.Error(), "linear_attn.in_proj_b") {
		t.Errorf("another number of heads: %v", err)
	}
	path, _ = convertGGUF(t, specFolder(t, specDense).write(t), "qwen35", oneType("F32"), 1, func(l *llama) {
		l.words, l.replace = golden.Dir(t, "tiny"), map[string]any{"tokenizer.ggml.pre": "gpt-2"}
	})
	if _, err := openedGGUF(t, path).ReadFile("tokenizer.json"); err == nil || !strings.Contains(err.Error(), `pre-tokenizer "gpt-2" is not supported, want gpt2 with qwen2 or qwen35`) {
		t.Errorf("tokenizer: %v", err)
	}
}

// FuzzGGUF: any file is refused, or is a checkpoint that can be asked for everything.
func FuzzGGUF(f *testing.F) {
	for _, c := range []golden.SpecConfig{specDense, specMoE} {
		arch := "qwen35"
		if c.Experts > 0 {
			arch = "qwen35moe"
		}
		l := newLlama(f, c.JSON(), arch, oneType("F32"))
		l.raw, l.fused = true, c.Experts > 0
		l.metadata()
		l.set("tokenizer.ggml.model", "gpt2")
		l.set("tokenizer.ggml.pre", "qwen2")
		l.set("tokenizer.ggml.tokens", []string{"a", "b", "<|im_end|>"})
		l.set("tokenizer.ggml.token_type", []int32{1, 1, 3})
		l.set("tokenizer.ggml.merges", []string{"a b"})
		l.set("tokenizer.ggml.eos_token_id", uint32(2))
		list := map[string]plainTensor{}
		for _, x := range c.Tensors() {
			if name, _ := canonical(x.Name); strings.HasPrefix(name, "layers.0.") && len(x.Values) <= 256 { // headers are what is read
				list[name] = plainTensor{x.Shape, x.Values}
			}
		}
		l.convert(list)
		f.Add(l.out.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filetest.Write(t, filepath.Join(t.TempDir(), "x.gguf"), data)
		c, err := model.OpenGGUF(path, "")
		if err != nil {
			return
		}
		for _, name := range c.Tensors() {
			_, _ = c.Tensor(name)
		}
		for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} {
			_, _ = c.ReadFile(name)
		}
		_, _ = c.Generation()
		_, _ = readConfig(c)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
