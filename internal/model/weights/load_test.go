package weights

import (
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// TestRequantizeSurvivesPanics has the quantizing of rows panic on goroutines of their own: the
// matrix has fewer bytes than it says.
func TestRequantizeSurvivesPanics(t *testing.T) {
	m := dtype.Matrix{Rows: 64, Cols: 64, Type: dtype.F32, Data: make([]byte, 8)}
	if _, err := (&Loader{}).requantize(&m, 4); err == nil || !strings.Contains(err.Error(), "panic: ") {
		t.Errorf("%v, want the panic", err)
	}
}

// TestFloatsOf8BitsBecomeIntegers quantizes to 8 bits: FP8 and MXFP8 become symmetric integers, what has
// integers of 8 bits stays, and so does what no group divides. The transformation of the input stays in any case.
func TestFloatsOf8BitsBecomeIntegers(t *testing.T) {
	const rows, cols = 40, 96
	in := &dtype.Input{Order: make([]int32, cols)}
	for i := range in.Order {
		in.Order[i] = int32(cols - 1 - i)
	}
	fp8 := dtype.Matrix{Rows: rows, Cols: cols, Format: dtype.FP8, Group: 128, ScaleType: dtype.F32, Data: make([]byte, rows*cols), Scales: make([]byte, 4*rows), Input: in}
	for i := range fp8.Data {
		fp8.Data[i] = byte(i%0x70 | i%2<<7)
	}
	scales := make([]float32, rows)
	for i := range scales {
		scales[i] = float32(1+i) / 1024
	}
	dtype.FromF32(fp8.Scales, dtype.F32, scales)
	mxfp8, err := dtype.NewMicroscale(rows, cols, dtype.MXFP8)
	if err != nil {
		t.Fatal(err)
	}
	if err := dtype.MicroscaleRows(&mxfp8, &fp8, 0, rows); err != nil {
		t.Fatal(err)
	}
	affine, err := dtype.Quantize(&fp8, 8, 32, dtype.BF16)
	if err != nil {
		t.Fatal(err)
	}
	odd := fp8
	odd.Rows, odd.Cols, odd.Data, odd.Input = 1, 40, fp8.Data[:40], nil
	odd.Scales = fp8.Scales[:4]
	for name, c := range map[string]struct {
		m    dtype.Matrix
		bits int
		want dtype.Format
	}{
		"FP8 to 8 bits": {fp8, 8, dtype.ZeroPoint}, "MXFP8 to 8 bits": {mxfp8, 8, dtype.ZeroPoint}, "FP8 to 6 bits": {fp8, 6, dtype.Affine},
		"affine to 8 bits": {affine, 8, dtype.Affine}, "columns that 32 does not divide": {odd, 8, dtype.FP8},
	} {
		q, err := (&Loader{from: &generator{}}).requantize(&c.m, c.bits)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if q.Format != c.want || q.Input != c.m.Input {
			t.Errorf("%s: %v with input %p, want %v with input %p", name, q.Format, q.Input, c.want, c.m.Input)
		}
		if err := q.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
