package dtype

import (
	"bytes"
	"math"
	"testing"
)

// TestZeroPointRow decodes codes with zero points that are stored and that are not.
func TestZeroPointRow(t *testing.T) {
	m := Matrix{Rows: 2, Cols: 32, Format: ZeroPoint, Bits: 4, Group: 16, ScaleType: F32, Data: make([]byte, 32), Scales: make([]byte, 16)}
	for i := range m.Data {
		m.Data[i] = byte(2*i%16 | (2*i+1)%16<<4)
	}
	FromF32(m.Scales, F32, []float32{1, 0.5, -2, 3})
	for _, zeros := range [][]byte{nil, {0, 15, 8, 3}} {
		m.Zeros = zeros
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		for r := range m.Rows {
			got := make([]float32, m.Cols)
			m.Row(got, r)
			for c, x := range got {
				z := 8
				if zeros != nil {
					z = int(zeros[2*r+c/16])
				}
				if want := []float32{1, 0.5, -2, 3}[2*r+c/16] * float32(c%16-z); x != want {
					t.Fatalf("row %d, column %d: %g, want %g", r, c, x, want)
				}
			}
		}
	}
	for name, zeros := range map[string][]byte{"three zero points for four groups": make([]byte, 3), "a zero point of five bits": {0, 0, 16, 0}} {
		if m.Zeros = zeros; m.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestInputRefusesWhatIsNoTransformation has permutations and pairs with a place twice.
func TestInputRefusesWhatIsNoTransformation(t *testing.T) {
	good := func() *Rotation {
		r := &Rotation{
			Rounds: 1, Scales: make([]float32, 128), Pairs: make([]uint8, 128),
			Cos: make([]float32, 64), Sin: make([]float32, 64),
		}
		for i := range r.Pairs {
			r.Pairs[i] = uint8(127 - i)
		}
		return r
	}
	twice := good()
	twice.Pairs[3] = twice.Pairs[4]
	outside := good()
	outside.Pairs[3] = 128
	short := good()
	short.Sin = short.Sin[1:]
	for name, in := range map[string]*Input{
		"short": {Order: []int32{0}}, "twice": {Order: []int32{0, 0}}, "outside": {Order: []int32{0, 2}},
	} {
		if in.Validate(2) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for name, r := range map[string]*Rotation{"twice": twice, "outside": outside, "short": short} {
		if (&Input{Rotation: r}).Validate(128) == nil {
			t.Errorf("rotation, %s: accepted", name)
		}
	}
	if err := (&Input{Rotation: good()}).Validate(128); err != nil {
		t.Error(err)
	}
}

// TestRotationKeepsLengths rotates by angles, which changes no length, and back.
func TestRotationKeepsLengths(t *testing.T) {
	r := &Rotation{
		Rounds: 2, Scales: make([]float32, 256), Pairs: make([]uint8, 512),
		Cos: make([]float32, 256), Sin: make([]float32, 256),
	}
	for i := range r.Scales {
		r.Scales[i] = 1
	}
	for i := range r.Pairs {
		r.Pairs[i] = uint8(i * 5 % 128)
	}
	for i := range r.Cos {
		r.Cos[i], r.Sin[i] = float32(math.Cos(float64(i))), float32(math.Sin(float64(i)))
	}
	x, y := make([]float32, 256), make([]float32, 256)
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	(&Input{Rotation: r}).Apply(y, x)
	for g := 0; g < 256; g += 128 {
		var before, after float64
		for i := g; i < g+128; i++ {
			before += float64(x[i]) * float64(x[i])
			after += float64(y[i]) * float64(y[i])
		}
		if math.Abs(before-after) > 1e-4*before {
			t.Errorf("group at %d: squared length %g became %g", g, before, after)
		}
	}
}

// TestQuantizeUndoesInput quantizes a matrix that multiplies rotated inputs: the result multiplies inputs as they are.
func TestQuantizeUndoesInput(t *testing.T) {
	const rows, cols, rounds = 3, 256, 3
	scales, angles, values := make([]float32, cols), make([]float32, rounds*cols/2), make([]float32, rows*cols)
	for i := range scales {
		scales[i] = 0.5 + float32(i%5)/4
	}
	for i := range angles {
		angles[i] = float32(i%17) / 5
	}
	for i := range values {
		values[i] = float32(i*i%41-20) / 16
	}
	pairs := make([]uint8, rounds*cols)
	for i := range pairs {
		pairs[i] = uint8((i%128*37 + i/128) % 128)
	}
	m := Matrix{Rows: rows, Cols: cols, Type: F32, Data: make([]byte, 4*rows*cols), Input: NewRotation(scales, angles, pairs)}
	FromF32(m.Data, F32, values)
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	plain := m.Numbers()
	got := valid(t)(Quantize(&m, 4, 64, F16))
	want := valid(t)(Quantize(&plain, 4, 64, F16))
	if got.Input != nil || !bytes.Equal(got.Data, want.Data) || !bytes.Equal(got.Scales, want.Scales) {
		t.Error("a matrix with an input is quantized otherwise than without it")
	}
	x, turned, row := values[:cols], make([]float32, cols), make([]float32, cols)
	m.Input.Apply(turned, x)
	for r := range rows {
		var rotated, same, size float64
		m.Row(row, r)
		for i, w := range row {
			rotated += float64(w) * float64(turned[i])
		}
		plain.Row(row, r)
		for i, w := range row {
			same += float64(w) * float64(x[i])
			size += math.Abs(float64(w) * float64(x[i]))
		}
		if math.Abs(rotated-same) > 1e-5*size {
			t.Errorf("row %d: product %g, with rotated inputs %g", r, same, rotated)
		}
	}
}

// TestQuantizeWithAnInput quantizes a matrix whose columns are in another order: with that order, and without.
func TestQuantizeWithAnInput(t *testing.T) {
	m := Matrix{Rows: 1, Cols: 32, Type: F32, Data: make([]byte, 128), Input: &Input{Order: make([]int32, 32)}}
	values := make([]float32, 32)
	for i := range values {
		values[i], m.Input.Order[i] = float32(i), int32(31-i)
	}
	FromF32(m.Data, F32, values)
	for _, in := range []*Input{nil, m.Input} {
		q := valid(t)(NewAffine(1, 32, 8, 32, F32))
		q.Input = in
		if err := QuantizeRows(&q, &m, 0, 1); err != nil {
			t.Fatal(err)
		}
		row := make([]float32, 32)
		q.PlainRow(row, 0)
		for i, x := range row {
			if math.Abs(float64(x)-float64(31-i)) > 0.1 {
				t.Fatalf("input %p: column %d is %g, want %d", in, i, x, 31-i)
			}
		}
	}
}
