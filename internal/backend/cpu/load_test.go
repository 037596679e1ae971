package cpu

import (
	"math"
	"testing"

	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Matrices of every format take what they say, but for a hundredth that some superblocks are padded by.
func TestRowsTakeWhatTheySay(t *testing.T) {
	microscale := func(f dtype.Format, global float32) dtype.Matrix {
		m, err := dtype.NewMicroscale(32, 1024, f)
		if err != nil {
			t.Fatal(err)
		}
		m.Global = global
		return m
	}
	list := []dtype.Matrix{
		{Rows: 32, Cols: 1024, Type: dtype.BF16},
		{Rows: 32, Cols: 1024, Format: dtype.Affine, Bits: 5, Group: 64, ScaleType: dtype.BF16},
		{Rows: 32, Cols: 1024, Format: dtype.ZeroPoint, Bits: 4, Group: 64, ScaleType: dtype.BF16},
		{Rows: 32, Cols: 1024, Format: dtype.ZeroPoint, Bits: 4, Group: 32, ScaleType: dtype.F16, Zeros: []byte{}},
		{Rows: 32, Cols: 1024, Format: dtype.FP8, Group: 128, ScaleType: dtype.F32},
		microscale(dtype.MXFP4, 0), microscale(dtype.MXFP8, 0), microscale(dtype.NVFP4, 1), microscale(dtype.NVFP4, 0.3),
	}
	for f := dtype.Q4_0; f <= dtype.IQ3S; f++ {
		list = append(list, dtype.NewBlocks(f, 32, 1024))
	}
	for i := range list {
		m := &list[i]
		w, err := kernel.Form(true, list[i:][:1])
		if err != nil {
			t.Fatal(err)
		}
		if got, want := w.Size(), m.Rows*m.LoadedRowBytes(); math.Abs(float64(got)/float64(want)-1) > 0.01 {
			t.Errorf("%v, factor %v: %d bytes, want %d", m.Format, m.Global, got, want)
		}
	}
}
