package convert

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
)

// slowGroup quantizes by the published algorithm, word for word.
func slowGroup(w []float32, bits int) (q []uint32, scale, bias float32) {
	n := float32(int(1)<<bits - 1)
	mn, mx := w[0], w[0]
	for _, x := range w {
		mn, mx = min(mn, x), max(mx, x)
	}
	round := func(x float32) float32 { return float32(math.RoundToEven(float64(x))) }
	scale = max((mx-mn)/n, 1e-7)
	side := math.Abs(float64(mn)) > math.Abs(float64(mx))
	if !side {
		scale = -scale
	}
	edge := mx
	if side {
		edge = mn
	}
	if q0 := round(edge / scale); q0 != 0 {
		scale, bias = edge/q0, edge
	}
	for _, x := range w {
		q = append(q, uint32(min(max(round((x-bias)/scale), 0), n)))
	}
	return q, scale, bias
}

// slowPack writes codes as a stream of bits, one bit at a time.
func slowPack(q []uint32, bits int) []byte {
	words := make([]uint32, (len(q)*bits+31)/32)
	for i, c := range q {
		for b := range bits {
			n := i*bits + b
			words[n/32] |= c >> b & 1 << (n % 32)
		}
	}
	var out []byte
	for _, w := range words {
		out = binary.LittleEndian.AppendUint32(out, w)
	}
	return out
}

// slowRead is element i of a packed row, by the published reader.
func slowRead(row []byte, i, bits int) uint32 {
	word := func(n int) uint32 { return binary.LittleEndian.Uint32(row[4*n:]) }
	pos := i * bits
	lo := word(pos>>5) >> (pos & 31)
	if pos&31+bits > 32 {
		lo |= word(pos>>5+1) << (32 - pos&31)
	}
	return lo & (1<<bits - 1)
}

// read is a tensor of an open checkpoint.
func read(t *testing.T, c *checkpoint.Checkpoint, name string) tensor {
	t.Helper()
	x, err := c.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	return tensor{name, x.Type, x.Shape, x.Data}
}

// TestConvertEqualsTheFormulas quantizes with every width and group, and compares the bytes
// of the files with the slow algorithm, and loaded values with scale*q + bias.
func TestConvertEqualsTheFormulas(t *testing.T) {
	for _, arch := range []string{"dense", "moe"} {
		raw := effective(t, base(t, arch))
		for _, bits := range widths {
			for _, group := range groups {
				if (arch == "moe" || testing.Short()) && (group != 64 || bits == 2 || bits > 5) {
					continue // enough for stacks, and for a short run
				}
				t.Run(fmt.Sprintf("model=%s/bits=%d/group=%d", arch, bits, group), func(t *testing.T) {
					e := &Encoding{Format: dtype.Affine, Bits: bits, Group: group}
					out, s := converted(t, base(t, arch), Options{Quantize: e, Head: e})
					c, loaded := golden.Open(t, out), effective(t, out)
					count := 0
					for name, w := range raw {
						module := strings.TrimSuffix(mlxName(name), ".weight")
						if !c.Has(module + ".scales") {
							continue
						}
						count++
						bits, group := bits, group
						if strings.HasSuffix(module, ".gate") || strings.HasSuffix(module, "shared_expert_gate") {
							bits, group = 8, 64
						}
						if name == "mtp.fc.weight" {
							bits = 8
						}
						checkFormula(t, c, module, w, loaded[name], bits, group)
					}
					if count+len(s.Whole) < 20 {
						t.Errorf("%d matrices are quantized, %d are not", count, len(s.Whole))
					}
					for _, name := range s.Whole {
						if x := read(t, c, mlxName(name)); x.shape[len(x.shape)-1]%group == 0 {
							t.Errorf("%s of %v is not quantized", name, x.shape)
						}
					}
				})
			}
		}
	}
}

// checkFormula compares one quantized matrix, or a stack, with numbers w.
func checkFormula(t *testing.T, c *checkpoint.Checkpoint, module string, w, loaded []float32, bits, group int) {
	t.Helper()
	codes, scales, biases := read(t, c, module+".weight"), read(t, c, module+".scales"), read(t, c, module+".biases")
	var data []byte
	var s, b []float32
	for at := 0; at < len(w); at += group {
		q, scale, bias := slowGroup(w[at:at+group], bits)
		data = append(data, slowPack(q, bits)...)
		s, b = append(s, scale), append(b, bias)
	}
	if !slices.Equal(codes.data, data) {
		t.Fatalf("%s: the codes differ", module)
	}
	s, b = rounded(dtype.BF16, s), rounded(dtype.BF16, b)
	if !same(scales.values(), s) || !same(biases.values(), b) {
		t.Fatalf("%s: scales or biases differ", module)
	}
	for i, x := range loaded {
		g := i / group
		in := slowRead(data[g*group*bits/8:(g+1)*group*bits/8], i%group, bits)
		if want := float32(float64(s[g])*float64(in) + float64(b[g])); x != want {
			t.Fatalf("%s: element %d is %g, want %g", module, i, x, want)
		}
	}
}

// TestConvertEqualsVectors puts the group that the specification works out by hand into a
// matrix and reads it in the file.
func TestConvertEqualsVectors(t *testing.T) {
	group := make([]float32, 32)
	for i := range group {
		group[i] = float32((37*i)%64-20) / 40
	}
	dir := fixture(t, "dense", func(s *stored) {
		s.each(func(x *tensor) {
			if x.name == "lm_head.weight" {
				v := x.values()
				copy(v, group)
				*x = values(x.name, x.typ, x.shape, v)
			}
		})
	}).write(t)
	for _, v := range []struct {
		bits        int
		scale, bias uint16
		words       []uint32
	}{
		{3, 0xbe5d, 0x3f8a, []uint32{0xb3f0d59f, 0x310d5d8a, 0x1567e1ab}},
		{4, 0xbddd, 0x3f8a, []uint32{0xe81a4c6f, 0x5d7193c5, 0xa4d6092b, 0x1a3c6e82}},
		{8, 0xbbcb, 0x3f8a, []uint32{0x41d669ff, 0xf38619ae, 0xa235ca5d, 0x51e67a0d, 0x009629be, 0xb245da6d, 0x61f68a1d, 0x10a639ce}},
	} {
		out, _ := converted(t, dir, Options{Quantize: &Encoding{Format: dtype.Affine, Bits: v.bits, Group: 32}})
		c := golden.Open(t, out)
		const module = "language_model.lm_head"
		data, scales, biases := read(t, c, module+".weight"), read(t, c, module+".scales"), read(t, c, module+".biases")
		for i, want := range v.words {
			if got := binary.LittleEndian.Uint32(data.data[4*i:]); got != want {
				t.Errorf("%d bits: word %d is %08x, want %08x", v.bits, i, got, want)
			}
		}
		if s, b := binary.LittleEndian.Uint16(scales.data), binary.LittleEndian.Uint16(biases.data); s != v.scale || b != v.bias {
			t.Errorf("%d bits: scale %04x, bias %04x, want %04x, %04x", v.bits, s, b, v.scale, v.bias)
		}
	}
}

// TestDequantizeIsWithinHalfAStep dequantizes our own output. float32 holds the
// values of the codes exactly, bfloat16 rounds them by less than half a step, and the distance to
// the original numbers is half a step too, except if zero had to be a code and the far
// end of the group was cut.
func TestDequantizeIsWithinHalfAStep(t *testing.T) {
	source := fixture(t, "dense", float32s).write(t)
	raw := effective(t, source)
	for _, bits := range widths {
		e := &Encoding{Format: dtype.Affine, Bits: bits, Group: 64}
		coded, _ := converted(t, source, Options{Quantize: e, Head: e})
		want := effective(t, coded)
		exact, _ := converted(t, coded, Options{Dequantize: true})
		half, _ := converted(t, coded, Options{Dequantize: true, Type: dtype.BF16})
		compare(t, effective(t, exact), want, nil)
		c := golden.Open(t, coded)
		for name, v := range effective(t, half) {
			module := strings.TrimSuffix(mlxName(name), ".weight")
			if !c.Has(module + ".scales") {
				continue
			}
			x, y := read(t, c, module+".scales"), read(t, c, module+".weight")
			scales := x.values()
			bits := 32 * y.shape[len(y.shape)-1] / (64 * x.shape[len(x.shape)-1])
			top := uint32(1)<<bits - 1
			for i := range v {
				step := math.Abs(float64(scales[i/64]))
				if d := math.Abs(float64(v[i] - want[name][i])); d > 0.5*step {
					t.Fatalf("%d bits: %s[%d] is %g, stands for %g, step %g", bits, name, i, v[i], want[name][i], step)
				}
				limit := 0.5
				if q := slowRead(y.data[i/64*64*bits/8:], i%64, bits); q == 0 || q == top {
					limit = 1
				}
				if d := math.Abs(float64(raw[name][i] - want[name][i])); d > (limit+1e-4)*step {
					t.Fatalf("%d bits: %s[%d] was %g, is %g, step %g", bits, name, i, raw[name][i], want[name][i], step)
				}
			}
		}
		if config := string(golden.Open(t, exact).Config()); strings.Contains(config, "quantization") {
			t.Errorf("the config speaks of quantization: %s", config)
		}
	}
}

// TestConvertFloatingModes stores matrices as small floats, which dtype's own tests hold
// against a search through all codes.
func TestConvertFloatingModes(t *testing.T) {
	raw := effective(t, base(t, "moe"))
	for mode, format := range modes {
		out, _ := converted(t, base(t, "moe"), Options{Quantize: &Encoding{Format: format}})
		c, loaded := golden.Open(t, out), effective(t, out)
		for name, w := range raw {
			module := strings.TrimSuffix(mlxName(name), ".weight")
			x, ok := c.Look(module + ".scales")
			if !ok || x.Type != dtype.U8 {
				continue
			}
			coded, err := dtype.NewMicroscale(1, len(w), format)
			if err != nil {
				t.Fatal(err)
			}
			v := values("", dtype.F32, nil, w)
			if err := dtype.MicroscaleRows(&coded, &dtype.Matrix{Rows: 1, Cols: len(w), Type: dtype.F32, Data: v.data}, 0, 1); err != nil {
				t.Fatal(err)
			}
			want := make([]float32, len(w))
			coded.Row(want, 0)
			if !same(loaded[name], want) {
				t.Errorf("%s: %s differs", mode, name)
			}
		}
	}
}

// TestConvertKeepsGlobalScales copies nvfp4 matrices with a factor for all of them.
func TestConvertKeepsGlobalScales(t *testing.T) {
	plain, _ := converted(t, base(t, "dense"), Options{Quantize: &Encoding{Format: dtype.NVFP4}})
	s := &stored{texts: map[string]string{}, files: map[string][]tensor{}, format: map[string]string{mainFile: "mlx"}}
	c := golden.Open(t, plain)
	filetest.Decode(t, c.Config(), &s.config)
	for i, name := range c.Tensors() {
		s.add(read(t, c, name))
		if module, ok := strings.CutSuffix(name, ".scales"); ok {
			s.add(values(module+".global_scale", dtype.F32, []int{1}, []float32{1000 + 7*float32(i)}))
		}
	}
	dir := s.write(t)
	out, _ := converted(t, dir, Options{})
	compare(t, effective(t, out), effective(t, dir), nil)
	back, _ := converted(t, dir, Options{Dequantize: true, Type: dtype.F32})
	compare(t, effective(t, back), effective(t, dir), nil)
}

// TestConvertExplainsFactorsThatMLXLacks converts nvfp4 matrices of ModelOpt with factors that are the quotient of no
// global_scale: it stops unless rounding is allowed, and then loses the last digit of the factor alone.
func TestConvertExplainsFactorsThatMLXLacks(t *testing.T) {
	plain, _ := converted(t, base(t, "dense"), Options{Quantize: &Encoding{Format: dtype.NVFP4}})
	s := &stored{texts: map[string]string{}, files: map[string][]tensor{}, format: map[string]string{mainFile: "mlx"}}
	c := golden.Open(t, plain)
	filetest.Decode(t, c.Config(), &s.config)
	delete(s.config, "quantization")
	s.config["quantization_config"] = map[string]any{"quant_method": "modelopt"}
	const factor = float32(1) / 1028
	for _, name := range c.Tensors() {
		x := read(t, c, name)
		module, coded := strings.CutSuffix(name, ".scales")
		switch {
		case coded:
			x.name, x.typ = module+".weight_scale", dtype.F8E4M3
			s.add(values(module+".weight_scale_2", dtype.F32, nil, []float32{factor}))
		case c.Has(strings.TrimSuffix(name, ".weight") + ".scales"):
			x.typ, x.shape = dtype.U8, []int{x.shape[0], 4 * x.shape[1]}
		}
		s.add(x)
	}
	dir := s.write(t)
	for _, n := range []float32{factor * 6 * 448, math.Nextafter32(factor*6*448, 0), math.Nextafter32(factor*6*448, 100)} {
		if n/(6*448) == factor {
			t.Fatalf("%g has the quotient %g", n, factor)
		}
	}
	_, err := Convert(t.Context(), golden.Open(t, dir), filepath.Join(t.TempDir(), "out"), Options{})
	for _, want := range []string{"convert: embed_tokens", fmt.Sprintf("no global_scale for the factor %g", factor), "--dtype", "--q-override", "--dequantize"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	out, _ := converted(t, dir, Options{Type: dtype.F32})
	want := effective(t, dir)
	for name, got := range effective(t, out) {
		for i, v := range got {
			if diff := math.Abs(float64(v - want[name][i])); diff > math.Abs(float64(v))/(1<<22) {
				t.Fatalf("%s: number %d is %g, want %g", name, i, v, want[name][i])
			}
		}
	}
}

// TestConvertFollowsTheRulesOfMLX reads files as mlx-lm and mlx-vlm do: by names, shapes
// and the quantization block alone.
func TestConvertFollowsTheRulesOfMLX(t *testing.T) {
	six := Encoding{Format: dtype.Affine, Bits: 6, Group: 32}
	for name, o := range map[string]Options{
		"plain":      {},
		"4 bits":     {Quantize: &Encoding{Format: dtype.Affine, Bits: 4, Group: 64}, Vision: &Encoding{Format: dtype.Affine, Bits: 8, Group: 32}},
		"all of it":  {Quantize: &Encoding{Format: dtype.Affine, Bits: 4, Group: 64}, Head: &Encoding{Format: dtype.Affine, Bits: 4, Group: 32}},
		"mxfp4":      {Quantize: &Encoding{Format: dtype.MXFP4}, Overrides: []Override{{"*.v_proj", six}, {"*down_proj", Encoding{Format: dtype.MXFP8}}}},
		"nvfp4":      {Quantize: &Encoding{Format: dtype.NVFP4}, Overrides: []Override{{"embed_tokens", six}, {"lm_head", Encoding{Format: dtype.Plain, Type: dtype.F16}}}},
		"type float": {Type: dtype.F16},
	} {
		for _, arch := range []string{"dense", "moe", "tiny"} {
			if arch == "tiny" && (name != "4 bits" || testing.Short()) {
				continue // it is quantized already, and the largest
			}
			t.Run(fmt.Sprintf("model=%s/options=%s", arch, name), func(t *testing.T) {
				out, _ := converted(t, base(t, arch), o)
				checkMLX(t, out, effective(t, base(t, arch)))
			})
		}
	}
}

func checkMLX(t *testing.T, dir string, weights map[string][]float32) {
	t.Helper()
	c := golden.Open(t, dir)
	var config struct {
		Text struct {
			Tied bool `json:"tie_word_embeddings"`
			Rope struct {
				Theta, Partial *float64
				Section        []int `json:"mrope_section"`
			} `json:"rope_parameters"`
		} `json:"text_config"`
		Quantization       map[string]json.RawMessage
		QuantizationConfig map[string]json.RawMessage `json:"quantization_config"`
	}
	filetest.Decode(t, c.Config(), &config)
	if !sameJSON(config.Quantization, config.QuantizationConfig) || len(config.Text.Rope.Section) != 3 {
		t.Errorf("config: %s", c.Config())
	}
	for _, file := range c.Files() {
		if c.Metadata(file)["format"] != "mlx" || !strings.HasPrefix(filepath.Base(file), "model") {
			t.Errorf("file %s with metadata %v", file, c.Metadata(file))
		}
	}
	type parameters struct {
		Group int `json:"group_size"`
		Bits  int
		Mode  string
	}
	var general parameters
	for key, to := range map[string]any{"group_size": &general.Group, "bits": &general.Bits, "mode": &general.Mode} {
		if raw, ok := config.Quantization[key]; ok {
			filetest.Decode(t, raw, to)
		}
	}
	for _, name := range c.Tensors() {
		x, _ := c.Look(name)
		switch {
		case !strings.HasPrefix(name, "language_model.") && !strings.HasPrefix(name, "vision_tower."):
			t.Errorf("tensor %s", name)
		case strings.HasSuffix(name, "conv1d.weight") && x.Shape[2] != 1:
			t.Errorf("%s of shape %v makes readers add one to all norms", name, x.Shape)
		}
		module, ok := strings.CutSuffix(name, ".scales")
		if !ok {
			continue
		}
		p := general
		if raw, ok := config.Quantization[module]; ok {
			p = parameters{Mode: "affine"}
			filetest.Decode(t, raw, &p)
		}
		codes, _ := c.Look(module + ".weight")
		canonical := strings.TrimPrefix(strings.TrimPrefix(module, "language_model."), "model.") + ".weight"
		canonical = strings.Replace(canonical, "vision_tower.", "visual.", 1)
		n := 1
		for _, d := range codes.Shape[:len(codes.Shape)-1] {
			n *= d
		}
		cols := len(weights[canonical]) / n
		words, groups := codes.Shape[len(codes.Shape)-1], x.Shape[len(x.Shape)-1]
		if words*32 != p.Bits*cols || groups*p.Group != cols || (p.Mode == "affine") != c.Has(module+".biases") {
			t.Errorf("%s: %v with scales %v, but it is to be %+v with %d columns", module, codes.Shape, x.Shape, p, cols)
		}
	}
}

func sameJSON(a, b map[string]json.RawMessage) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func TestParseEncodingRefuses(t *testing.T) {
	for _, text := range []string{"", "7", "1", "4:48", "4:", ":64", "bf16", "affine", "4:64:2", "-4", "0x4"} {
		if e, err := ParseEncoding(text, 64); err == nil || !strings.Contains(err.Error(), "want bits") {
			t.Errorf("%q: %+v, %v", text, e, err)
		}
	}
	for _, text := range []string{"", "=8", "mtp.*", "[=8", "mtp.*=9"} {
		if o, err := ParseOverride(text, 64); err == nil {
			t.Errorf("override %q: %+v", text, o)
		}
	}
	for text, want := range map[string]Encoding{
		"8": {Format: dtype.Affine, Bits: 8, Group: 32}, "3:128": {Format: dtype.Affine, Bits: 3, Group: 128},
		"nvfp4": {Format: dtype.NVFP4}, "bfloat16": {Type: dtype.BF16},
	} {
		if e, err := ParseEncoding(text, 32); err != nil || e != want {
			t.Errorf("%q: %+v, %v", text, e, err)
		}
	}
}
