package convert

import (
	"bytes"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// TestKeptFormsHaveTheSameNumbers writes matrices of every format without quantizing, and nothing
// may be rounded: MLX's reader gets the same bits.
func TestKeptFormsHaveTheSameNumbers(t *testing.T) {
	const rows, cols = 5, 512
	names := append(weights.FormNames(), "affine:3:32", "symmetric:8:32", "zero-point:2:64", "zero-point:4:16", "symmetric:4:256", "zero-point:8")
	smaller := 0
	for _, name := range names {
		f, err := weights.ParseForm(name, 4)
		if err != nil {
			t.Fatal(err)
		}
		m, err := f.Matrix(rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		form := kept(&m, dtype.Invalid)
		form.Rows, form.Cols = rows, cols
		b, err := encode(&form, &m)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		read := form
		for i, to := range []*[]byte{&read.Data, &read.Scales, &read.Biases}[:len(b)] {
			*to = b[i]
		}
		if read.Zeros = nil; read.Format == dtype.NVFP4 {
			read.Global = m.Global
		}
		if err := read.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if read.Format != dtype.Plain {
			smaller++
		}
		exactly := m.Input == nil && m.Format != dtype.FP8 // matrices with an input are rounded, and so is FP8
		got, want := make([]float32, cols), make([]float32, cols)
		for r := range rows {
			read.Row(got, r)
			m.PlainRow(want, r)
			for c := range want {
				if got[c] != want[c] && exactly {
					t.Fatalf("%s as %v: row %d, column %d is %g, want %g", name, read.Format, r, c, got[c], want[c])
				}
			}
		}
	}
	if smaller < 25 {
		t.Errorf("%d formats are kept in fewer bits, want 25", smaller)
	}
}

// TestKeptFormsByFormat holds the choices against the list of docs/checkpoints.md.
func TestKeptFormsByFormat(t *testing.T) {
	for name, want := range map[string]string{
		"affine:4:64": "affine 4:64 BF16", "symmetric:4:128": "affine 4:128 BF16", "zero-point:4:32": "affine 4:32 F32", "symmetric:4:256": "affine 4:128 BF16",
		"zero-point:4:16": "F32", "paro": "BF16", "act-order": "BF16", "fp8": "BF16", "mxfp8": "mxfp8", "nvfp4": "nvfp4", "gguf-mxfp4": "mxfp4", "gguf-nvfp4": "nvfp4",
		"q4_0": "affine 4:32 F16", "q4_k": "affine 4:32 F32", "q6_k": "F32", "q2_k": "F32", "q3_k": "F32", "iq4_xs": "F32", "tq2_0": "affine 2:128 F16", "q1_0": "affine 2:128 F16",
		"iq3_s": "affine 8:32 F32", "iq2_xs": "F32", "bf16": "BF16",
	} {
		f, err := weights.ParseForm(name, 4)
		if err != nil {
			t.Fatal(err)
		}
		m, err := f.Matrix(1, 512)
		if err != nil {
			t.Fatal(err)
		}
		k := kept(&m, dtype.Invalid)
		got := Encoding{Format: k.Format, Bits: k.Bits, Group: k.Group, Type: k.Type}.text(k.ScaleType)
		if got != want {
			t.Errorf("%s is kept as %s, want %s", name, got, want)
		}
		if k = kept(&m, dtype.F16); strings.HasPrefix(want, "affine") && k.ScaleType != dtype.F16 || k.Format == dtype.Plain && k.Type != dtype.F16 {
			t.Errorf("%s: %v as float16", name, k)
		}
	}
}

// text is an encoding in short, with the type of its scales.
func (e Encoding) text(scales dtype.Type) string {
	switch e.Format {
	case dtype.Plain:
		return e.Type.String()
	case dtype.Affine:
		return "affine " + string(rune('0'+e.Bits)) + ":" + map[int]string{32: "32", 64: "64", 128: "128"}[e.Group] + " " + scales.String()
	}
	return e.Format.String()
}

// TestSmallFloatsHaveNoSign writes scales of NVFP4 blocks as GGUF reads them.
func TestSmallFloatsHaveNoSign(t *testing.T) {
	m := dtype.NewBlocks(dtype.NVFP4Blocks, 1, 64)
	m.Data = append([]byte{0x38, 0xb8, 0x7f, 0xff}, make([]byte, 32)...)
	if got, want := smallFloats(&m)[1], []byte{0x38, 0x38, 0, 0}; !bytes.Equal(got, want) {
		t.Errorf("scales %x, want %x", got, want)
	}
}
