package golden

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/dtype"
)

// Layout is a weight format of another tool. Encode writes a matrix as that tool does, number by number from the format's
// description, and returns the numbers that it stands for.
type Layout struct {
	Name       string
	Rows, Cols int            // rows and columns must be multiples of these
	Config     map[string]any // quantization_config
	// Rounds: products round in another place or order than those of the decoded matrix.
	Rounds bool
	Encode func(values []float32, rows, cols int) (parts []Part, decoded []float32)
}

// Part is a tensor of a module: the suffix of its name, and its contents.
type Part struct {
	Suffix string
	Type   dtype.Type
	Shape  []int
	Data   []byte
}

// Layouts are the formats of compressed-tensors, ModelOpt, GPTQ, AutoRound, AutoAWQ and ParoQuant.
func Layouts() []Layout {
	gptq := func(more map[string]any) map[string]any {
		more["quant_method"] = "gptq"
		return more
	}
	packed := map[string]any{"quant_method": "compressed-tensors", "format": "pack-quantized"}
	return []Layout{
		integers("awq", ints{bits: 4, group: 32, scale: dtype.F16}, map[string]any{"quant_method": "awq"}, awq),
		integers("gptq", ints{bits: 4, group: 32, symmetric: true, scale: dtype.F16}, gptq(map[string]any{"sym": true}), gptqWords(-1)),
		integers("gptq, first version", ints{bits: 3, group: 64, scale: dtype.F16}, gptq(map[string]any{}), gptqWords(-1)),
		integers("gptq, second version", ints{bits: 8, group: 32, scale: dtype.BF16}, gptq(map[string]any{"checkpoint_format": "gptq_v2"}), gptqWords(0)),
		integers("gptq with act-order", ints{bits: 4, group: 32, scale: dtype.F16, order: true}, gptq(map[string]any{"desc_act": true}), gptqWords(-1)),
		integers("auto-round", ints{bits: 2, group: 64, scale: dtype.BF16}, map[string]any{"quant_method": "auto-round", "packing_format": "auto_round"}, gptqWords(0)),
		integers("pack-quantized", ints{bits: 4, group: 32, symmetric: true, scale: dtype.BF16}, packed, packQuantized),
		integers("pack-quantized with zero points", ints{bits: 4, group: 32, scale: dtype.BF16}, packed, packQuantized),
		integers("pack-quantized, 8 bits by row", ints{bits: 8, symmetric: true, scale: dtype.F32}, packed, packQuantized),
		integers("int-quantized", ints{bits: 8, symmetric: true, scale: dtype.BF16}, map[string]any{"quant_method": "compressed-tensors"}, intQuantized),
		{Name: "fp8 by row", Rows: 1, Cols: 1, Config: packed, Encode: fp8(1, 1<<30, func(r, _ int) []int { return []int{r, 1} })},
		{Name: "fp8 by matrix", Rows: 1, Cols: 1, Config: packed, Encode: fp8(1<<30, 1<<30, func(int, int) []int { return nil })},
		{Name: "fp8 in blocks", Rows: 1, Cols: 1, Config: packed, Encode: fp8(128, 128, func(r, c int) []int { return []int{(r + 127) / 128, (c + 127) / 128} })},
		{Name: "fp8 in ModelOpt's blocks", Rows: 1, Cols: 1, Config: packed, Encode: fp8(128, 128, func(r, c int) []int { return []int{(r + 127) / 128, 1, (c + 127) / 128, 1} })},
		{Name: "nvfp4 of compressed-tensors", Rows: 1, Cols: 16, Rounds: true, Config: packed, Encode: fp4(16, ".weight_packed", ".weight_global_scale", 1000)},
		{Name: "nvfp4 of ModelOpt", Rows: 1, Cols: 16, Rounds: true, Config: map[string]any{"quant_method": "modelopt"}, Encode: fp4(16, ".weight", ".weight_scale_2", 1.0/1000)},
		paroQuant,
		{Name: "mxfp4 of compressed-tensors", Rows: 1, Cols: 32, Config: packed, Encode: fp4(32, ".weight_packed", "", 1)},
	}
}

// ints are the parameters of integers in groups.
type ints struct {
	bits, group      int // group 0: a row
	symmetric, order bool
	scale            dtype.Type
}

// coded is a matrix of integers: w = (q - z)*s, with a zero point and a scale for each group of a row.
type coded struct {
	ints
	rows, cols int
	q, z       []int // [rows, cols], [rows, groups]
	s          []float32
	groupOf    []int // of each column
}

func (c *coded) groups() int { return len(c.z) / c.rows }

// integers is a layout whose tensors write makes of codes.
func integers(name string, p ints, config map[string]any, write func(*coded) []Part) Layout {
	return Layout{Name: name, Rows: 32, Cols: max(p.group, 32), Config: config, Rounds: p.order, Encode: func(values []float32, rows, cols int) ([]Part, []float32) {
		c := &coded{ints: p, rows: rows, cols: cols, groupOf: make([]int, cols)}
		group := p.group
		if group == 0 {
			group = cols
		}
		for i := range c.groupOf {
			if c.groupOf[i] = i / group; p.order {
				c.groupOf[i] = i * 5 % cols / group // 5 divides no width in use
			}
		}
		decoded := c.encode(values, cols/group)
		return write(c), decoded
	}}
}

// encode rounds the values to codes and returns the decoded values.
func (c *coded) encode(values []float32, groups int) []float32 {
	top := 1<<c.bits - 1
	c.q, c.z, c.s = make([]int, len(values)), make([]int, c.rows*groups), make([]float32, c.rows*groups)
	for r := range c.rows {
		low, high := make([]float64, groups), make([]float64, groups)
		for i, v := range values[r*c.cols:][:c.cols] {
			g := c.groupOf[i]
			low[g], high[g] = min(low[g], float64(v)), max(high[g], float64(v))
		}
		for g := range groups {
			if c.symmetric {
				high[g] = max(high[g], -low[g])
				low[g] = -high[g]
			}
			s := numbersOf(c.scale, []float32{float32(max(high[g]-low[g], 1e-6) / float64(top))})
			dtype.ToF32(c.s[r*groups+g:][:1], c.scale, s)
			z := min(max(int(math.Round(-low[g]/float64(c.s[r*groups+g]))), 1), top) // GPTQ's first version cannot write 0
			if c.symmetric {
				z = 1 << (c.bits - 1)
			}
			c.z[r*groups+g] = z
		}
	}
	decoded := make([]float32, len(values))
	for i, v := range values {
		g := i/c.cols*groups + c.groupOf[i%c.cols]
		c.q[i] = min(max(int(math.Round(float64(v)/float64(c.s[g])))+c.z[g], 0), top)
		decoded[i] = float32(c.q[i]-c.z[g]) * c.s[g]
	}
	return decoded
}

// put writes a code at a place of a bit stream that runs through the words number first, first+step, first+2*step ….
func put(words []byte, at, bits, first, step, code int) {
	for b := range bits {
		pos := at*bits + b
		words[4*(first+pos/32*step)+pos%32/8] |= byte(code >> b & 1 << (pos % 8))
	}
}

func numbersOf(t dtype.Type, v []float32) []byte {
	b := make([]byte, len(v)*t.Size())
	dtype.FromF32(b, t, v)
	return b
}

func awq(c *coded) []Part {
	order, wide, groups := [8]int{0, 4, 1, 5, 2, 6, 3, 7}, c.rows/8, c.groups() // the nibble of each of eight rows
	words, zeros, scales := make([]byte, 4*c.cols*wide), make([]byte, 4*groups*wide), make([]float32, groups*c.rows)
	for r := range c.rows {
		for i := range c.cols {
			put(words, order[r%8], 4, i*wide+r/8, 1, c.q[r*c.cols+i])
		}
		for g := range groups {
			put(zeros, order[r%8], 4, g*wide+r/8, 1, c.z[r*groups+g])
			scales[g*c.rows+r] = c.s[r*groups+g]
		}
	}
	return []Part{
		{".qweight", dtype.I32, []int{c.cols, wide}, words},
		{".qzeros", dtype.I32, []int{groups, wide}, zeros},
		{".scales", c.scale, []int{groups, c.rows}, numbersOf(c.scale, scales)},
	}
}

// gptqWords has zero points with an offset.
func gptqWords(offset int) func(c *coded) []Part {
	return func(c *coded) []Part {
		high, wide, groups := c.cols*c.bits/32, c.rows*c.bits/32, c.groups()
		words, zeros, scales := make([]byte, 4*high*c.rows), make([]byte, 4*groups*wide), make([]float32, groups*c.rows)
		for r := range c.rows {
			for i := range c.cols {
				put(words, i, c.bits, r, c.rows, c.q[r*c.cols+i])
			}
			for g := range groups {
				put(zeros, r, c.bits, g*wide, 1, c.z[r*groups+g]+offset)
				scales[g*c.rows+r] = c.s[r*groups+g]
			}
		}
		return []Part{
			{".qweight", dtype.I32, []int{high, c.rows}, words},
			{".qzeros", dtype.I32, []int{groups, wide}, zeros},
			{".scales", c.scale, []int{groups, c.rows}, numbersOf(c.scale, scales)},
			{".g_idx", dtype.I32, []int{c.cols}, int32s(c.groupOf)},
			{".bias", dtype.F16, []int{c.rows}, make([]byte, 2*c.rows)},
		}
	}
}

func int32s(v []int) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return b
}

func packQuantized(c *coded) []Part {
	wide, high, groups := c.cols*c.bits/32, c.rows*c.bits/32, c.groups()
	words, zeros := make([]byte, 4*c.rows*wide), make([]byte, 4*high*groups)
	for r := range c.rows {
		for i := range c.cols {
			put(words, i, c.bits, r*wide, 1, c.q[r*c.cols+i])
		}
		for g := range groups {
			put(zeros, r, c.bits, g, groups, c.z[r*groups+g])
		}
	}
	parts := []Part{
		{".weight_packed", dtype.I32, []int{c.rows, wide}, words},
		{".weight_scale", c.scale, []int{c.rows, groups}, numbersOf(c.scale, c.s)},
		{".weight_shape", dtype.I32, []int{2}, int32s([]int{c.rows, c.cols})},
		{".input_scale", dtype.F32, nil, make([]byte, 4)},
	}
	if !c.symmetric {
		parts = append(parts, Part{".weight_zero_point", dtype.I32, []int{high, groups}, zeros})
	}
	return parts
}

func intQuantized(c *coded) []Part {
	data := make([]byte, len(c.q))
	for i, q := range c.q {
		data[i] = byte(q - 128)
	}
	return []Part{{".weight", dtype.I8, []int{c.rows, c.cols}, data}, {".weight_scale", c.scale, []int{c.rows, 1}, numbersOf(c.scale, c.s)}}
}

// fp8 has a scale for down×across elements, in a tensor of the given shape.
func fp8(down, across int, shape func(rows, cols int) []int) func(values []float32, rows, cols int) ([]Part, []float32) {
	return func(values []float32, rows, cols int) ([]Part, []float32) {
		wide := (cols-1)/across + 1
		scales := make([]float32, ((rows-1)/down+1)*wide)
		for i := range scales {
			scales[i] = float32(1+i%5) / 1024 // near the range of the weights
		}
		data, decoded := make([]byte, len(values)), make([]float32, len(values))
		for i, v := range values {
			s := scales[i/cols/down*wide+i%cols/across]
			data[i] = dtype.ToE4M3(v / s)
			decoded[i] = dtype.FromE4M3(data[i]) * s
		}
		return []Part{{".weight", dtype.F8E4M3, []int{rows, cols}, data}, {".weight_scale", dtype.BF16, shape(rows, cols), numbersOf(dtype.BF16, scales)}}, decoded
	}
}

// fp4 has E2M1 elements with an E4M3 scale per 16 and a separate tensor for the factor, or with an E8M0 scale per 32.
func fp4(group int, elements, global string, stored float32) func(values []float32, rows, cols int) ([]Part, []float32) {
	levels := [8]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}
	factor := stored
	if global == ".weight_global_scale" {
		factor = 1 / stored
	}
	return func(values []float32, rows, cols int) ([]Part, []float32) {
		data, decoded := make([]byte, len(values)/2), make([]float32, len(values))
		scales, typ := make([]byte, len(values)/group), dtype.F8E4M3
		for i, v := range values {
			g, s := i/group, float32(math.Ldexp(1, -6))
			if scales[g] = 127 - 6; global != "" {
				all := values[g*group:][:group]
				scales[g] = dtype.ToE4M3(max(slices.Max(all), -slices.Min(all)) / 6 / factor)
				s = max(dtype.FromE4M3(scales[g]), 1e-9)
			}
			code, near := 0, math.Inf(1)
			for n, level := range levels {
				if d := math.Abs(math.Abs(float64(v/(s*factor))) - float64(level)); d < near {
					code, near = n, d
				}
			}
			if decoded[i] = levels[code] * dtype.FromE4M3(scales[g]) * factor; global == "" {
				decoded[i] = levels[code] * s
			}
			if v < 0 {
				code |= 8
				decoded[i] = -decoded[i]
			}
			data[i/2] |= byte(code << (4 * (i % 2)))
		}
		if global == "" {
			typ = dtype.U8
		}
		parts := []Part{{elements, dtype.U8, []int{rows, cols / 2}, data}, {".weight_scale", typ, []int{rows, cols / group}, scales}}
		if global != "" {
			parts = append(parts, Part{global, dtype.F32, []int{1}, numbersOf(dtype.F32, []float32{stored})})
		}
		return parts, decoded
	}
}
