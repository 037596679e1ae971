package qwen35

import (
	"bytes"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/tokenizer"
)

// TestInt8StaysCloseToFloat measures what 8-bit activations and 4-bit weights cost the
// trained model: its perplexity on the reference's texts, and its choices where the
// reference was sure.
func TestInt8StaysCloseToFloat(t *testing.T) {
	if testing.Short() {
		t.Skip("reads hundreds of tokens three times")
	}
	f := golden.Load(t, "tiny")
	dir := golden.Dir(t, "tiny")
	float, _ := perplexity(t, f, open(t, dir, 0, model.Options{Compute: backend.Float32}))
	for _, c := range []struct {
		name string
		o    model.Options
		tol  float64
		sure bool
	}{
		{"as the file is", model.Options{}, golden.Tol.Perplexity, true},
		{"4 bits", model.Options{Quantize: 4}, golden.Tol.Perplexity4, false},
	} {
		got, wrong := perplexity(t, f, open(t, dir, 0, c.o))
		change := got/float - 1
		t.Logf("%s: perplexity %.4f, float path %.4f, change %+.3f %%, tolerance %g %%", c.name, got, float, 100*change, 100*c.tol)
		if math.Abs(change) > c.tol {
			t.Errorf("%s: perplexity changes by %+.3f %%", c.name, 100*change)
		}
		if c.sure && wrong > 0 {
			t.Errorf("%s: %d tokens differ where the reference has a margin above %g", c.name, wrong, golden.Tol.Int8Margin)
		}
	}
}

// TestKVOfFewBitsStaysClose measures what keys and values of 8 and 4 bits cost the trained model, and
// what they save.
func TestKVOfFewBitsStaysClose(t *testing.T) {
	if testing.Short() {
		t.Skip("reads hundreds of tokens three times")
	}
	f := golden.Load(t, "tiny")
	dir := golden.Dir(t, "tiny")
	half := open(t, dir, 0, model.Options{})
	want, _ := perplexity(t, f, half)
	for _, c := range []struct {
		bits     int
		tol      float64
		key, row func(d int) int // bytes of a key and of a value
	}{
		{8, golden.Tol.PerplexityKV, func(d int) int { return d + d/64*4 }, func(d int) int { return d + 4 }},
		{4, golden.Tol.PerplexityKV4, func(d int) int { return d/2 + d/64*(4+4) }, func(d int) int { return d/2 + d/64*4 + 4 }},
	} {
		r := open(t, dir, 0, model.Options{KVBits: c.bits})
		got, _ := perplexity(t, f, r)
		change := got/want - 1
		t.Logf("%d bits: perplexity %.4f, with 16 bits %.4f, change %+.3f %%, tolerance %g %%", c.bits, got, want, 100*change, 100*c.tol)
		if math.Abs(change) > c.tol || change == 0 {
			t.Errorf("%d bits: perplexity changes by %+.3f %%", c.bits, 100*change)
		}
		coded, plain := r.Layout(), half.Layout()
		ratio := float64(coded.PageBytes()) / float64(plain.PageBytes())
		t.Logf("a page has %.3f of the bytes", ratio)
		d := configOf(r).headDim
		if want := float64(c.key(d)+c.row(d)) / float64(2*2*d); ratio != want {
			t.Errorf("%d bits: a page has %.3f of the bytes, want %.3f", c.bits, ratio, want)
		}
	}
}

// TestKVFindsNeedles reads texts that give a name, 240 tokens about other things, and then ask for the name. It compares how much more
// probable the name is than after texts that gave another one, in nats, with keys and values of 16, 8 and 4 bits.
func TestKVFindsNeedles(t *testing.T) {
	if testing.Short() {
		t.Skip("reads thousands of tokens")
	}
	dir := golden.Dir(t, "tiny")
	tok, err := tokenizer.New(filetest.Read(t, filepath.Join(dir, "tokenizer.json")))
	if err != nil {
		t.Fatal(err)
	}
	between := strings.Repeat(" The sun was warm and the birds sang in the trees. A dog ran across the grass to find a stick. The wind moved the leaves, and the sky was blue. Some children sat near the water and ate cake.", 5)
	names := []string{"Zora", "Rupert", "Wanda", "Boris"}
	half := 0.0
	for _, bits := range []int{16, 8, 4} {
		r := open(t, dir, 0, model.Options{KVBits: bits})
		probability := func(given, name string) (log float64) {
			ids := tok.Encode(" " + name)
			text := append(tok.Encode("Once there was a wise old owl named "+given+"."+between+" Then the wise old owl named"), ids...)
			logits, _ := r.Feed(t, model.Span{State: r.Sequence(t), Tokens: text, Want: len(ids) + 1})
			for i, id := range ids {
				log += logProb(logits[i], id)
			}
			return log
		}
		gain := 0.0
		for i, name := range names {
			gain += (probability(name, name) - probability(names[(i+1)%len(names)], name)) / float64(len(names))
		}
		if bits == 16 {
			half = gain
		}
		t.Logf("%d bits: the name is e^%.2f times as probable", bits, gain)
		if half < 4 || math.Abs(gain-half) > 0.5 {
			t.Errorf("%d bits: a gain of %.2f, with 16 bits %.2f", bits, gain, half)
		}
	}
}

// perplexity is that of the cases' texts, of all of them in the long version and else of every other,
// and how often the model's choice differs from the reference's although that was sure.
func perplexity(t *testing.T, f *golden.Fixture, r *rig) (ppl float64, wrong int) {
	t.Helper()
	loss, n := 0.0, 0
	step := 2
	if long {
		step = 1
	}
	for i := 0; i < len(f.Cases); i += step {
		c := &f.Cases[i]
		logits, _ := r.Feed(t, model.Span{State: r.Sequence(t), Tokens: c.Tokens, Want: len(c.Tokens)})
		for row, x := range logits {
			if argmax(x) != c.Argmax[row] && float64(c.Margin[row]) > golden.Tol.Int8Margin {
				wrong++
			}
			if row+1 < len(c.Tokens) {
				loss -= logProb(x, c.Tokens[row+1])
				n++
			}
		}
	}
	return math.Exp(loss / float64(n)), wrong
}

func logProb(logits []float32, id int32) float64 {
	top, sum := math.Inf(-1), 0.0
	for _, x := range logits {
		top = max(top, float64(x))
	}
	for _, x := range logits {
		sum += math.Exp(float64(x) - top)
	}
	return float64(logits[id]) - top - math.Log(sum)
}

// TestFP8BecomesIntegers measures what integer products cost the trained model in FP8.
func TestFP8BecomesIntegers(t *testing.T) {
	if testing.Short() {
		t.Skip("reads hundreds of tokens twice")
	}
	f := golden.Load(t, "tiny")
	dir := fp8Folder(t, "tiny").write(t)
	want, _ := perplexity(t, f, open(t, dir, 0, model.Options{Compute: backend.Float32}))
	got, _ := perplexity(t, f, open(t, dir, 0, model.Options{}))
	change := got/want - 1
	t.Logf("perplexity %.4f, of FP8 %.4f, change %+.3f %%, tolerance %g %%", got, want, 100*change, 100*golden.Tol.Perplexity)
	if math.Abs(change) > golden.Tol.Perplexity {
		t.Errorf("perplexity changes by %+.3f %%", 100*change)
	}
	if got == want {
		t.Error("nothing was quantized")
	}
}

// fp8Folder is a fixture whose matrices, those of the tower apart, are FP8 with a scale per row.
func fp8Folder(t *testing.T, name string) *folder {
	t.Helper()
	c := golden.Open(t, golden.Dir(t, name))
	f := newFolder(t, c.Config())
	delete(f.config, "quantization")
	f.config["quantization_config"] = map[string]any{"quant_method": "compressed-tensors"}
	for _, name := range c.Tensors() {
		s, err := c.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		module, ok := strings.CutSuffix(name, ".weight")
		tower := strings.Contains(name, "visual")
		if !tower && (strings.HasSuffix(name, ".scales") || strings.HasSuffix(name, ".biases")) {
			continue
		}
		if !ok || len(s.Shape) != 2 || tower {
			f.main().add(tensor{name: name, typ: s.Type, shape: s.Shape, data: bytes.Clone(s.Data)})
			continue
		}
		cols := s.Shape[1]
		if s.Type == dtype.U32 { // four codes of 8 bits
			cols *= 4
		}
		m, err := c.Matrix(module, s.Shape[0], cols)
		if err != nil {
			t.Fatal(err)
		}
		row, scales, data := make([]float32, m.Cols), make([]float32, m.Rows), make([]byte, m.Rows*m.Cols)
		for r := range m.Rows {
			m.Row(row, r)
			scales[r] = max(largest(row)/448, 1e-9)
			for i, v := range row {
				data[r*m.Cols+i] = dtype.ToE4M3(v / scales[r])
			}
		}
		f.main().add(tensor{name, dtype.F8E4M3, []int{m.Rows, m.Cols}, data}, numbers(name+"_scale", dtype.F32, []int{m.Rows, 1}, scales))
	}
	return f
}
