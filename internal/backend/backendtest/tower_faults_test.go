package backendtest

import "github.com/foretoken/foretoken/internal/backend"

// towerFaults are those of the operations of a vision tower.
var towerFaults = []planted{
	{"LayerNorm", "eps is fixed", func(f *faulty, b *Opaque) {
		f.layerNorm = func(dst, x, gain, bias backend.Tensor, _ float32) { b.LayerNorm(dst, x, gain, bias, 1e-6) }
	}},
	{"LayerNorm", "the last column of odd rows", func(f *faulty, b *Opaque) {
		f.layerNorm = func(dst, x, gain, bias backend.Tensor, eps float32) {
			b.LayerNorm(dst, x, gain, bias, eps)
			if x.Cols%16 == 1 {
				spoil(b, lastCol(dst))
			}
		}
	}},
	{"LayerNorm", "gain and bias are one", func(f *faulty, b *Opaque) {
		f.layerNorm = func(dst, x, gain, bias backend.Tensor, eps float32) {
			if gain.Cols == bias.Cols {
				bias = gain
			}
			b.LayerNorm(dst, x, gain, bias, eps)
		}
	}},
	{"LayerNorm", "a row depends on its neighbor", func(f *faulty, b *Opaque) {
		f.layerNorm = func(dst, x, gain, bias backend.Tensor, eps float32) {
			b.LayerNorm(dst, x, gain, bias, eps)
			if x.Rows == 17 {
				b.Copy(dst.RowRange(1, 2), dst.RowRange(0, 1))
			}
		}
	}},
	{"LayerNorm", "a number instead of none", func(f *faulty, b *Opaque) {
		f.layerNorm = func(dst, x, gain, bias backend.Tensor, eps float32) {
			b.LayerNorm(dst, x, gain, bias, eps)
			if x.Cols == 70 {
				b.Fill(lastRow(dst), 1)
			}
		}
	}},
	{"GELU", "always by tanh", func(f *faulty, b *Opaque) {
		f.gelu = func(dst, x backend.Tensor, _ bool) { b.GELU(dst, x, true) }
	}},
	{"GELU", "never by tanh", func(f *faulty, b *Opaque) {
		f.gelu = func(dst, x backend.Tensor, _ bool) { b.GELU(dst, x, false) }
	}},
	{"GELU", "stride is ignored", func(f *faulty, b *Opaque) {
		f.gelu = func(dst, x backend.Tensor, tanh bool) { b.GELU(dst, flat(x), tanh) }
	}},
	{"GELU", "the end of a long row", func(f *faulty, b *Opaque) {
		f.gelu = func(dst, x backend.Tensor, tanh bool) {
			b.GELU(dst, x, tanh)
			if x.Cols > 4096 {
				spoil(b, lastCol(dst))
			}
		}
	}},
	{"Rotate", "cosines of the first row", func(f *faulty, b *Opaque) {
		f.rotate = func(x, cos, sin backend.Tensor, heads int) {
			if cos.Cols == sin.Cols {
				cos.Stride = 0
			}
			b.Rotate(x, cos, sin, heads)
		}
	}},
	{"Rotate", "the last head is left out", func(f *faulty, b *Opaque) {
		f.rotate = func(x, cos, sin backend.Tensor, heads int) {
			if heads > 2 {
				x, heads = x.ColRange(0, x.Cols/heads*(heads-1)), heads-1
			}
			b.Rotate(x, cos, sin, heads)
		}
	}},
	{"Rotate", "shapes are not compared", func(f *faulty, b *Opaque) {
		f.rotate = func(x, cos, sin backend.Tensor, heads int) {
			if cos.Cols == sin.Cols {
				b.Rotate(x, cos, sin, heads)
			}
		}
	}},
	{"Mix", "scale is fixed", func(f *faulty, b *Opaque) {
		f.mix = func(dst, q, k, v backend.Tensor, heads int, _ float32) { b.Mix(dst, q, k, v, heads, 0.125) }
	}},
	{"Mix", "the last key is not seen", func(f *faulty, b *Opaque) {
		f.mix = func(dst, q, k, v backend.Tensor, heads int, scale float32) {
			if k.Rows > 1 && k.Rows == v.Rows {
				k, v = k.RowRange(0, k.Rows-1), v.RowRange(0, v.Rows-1)
			}
			b.Mix(dst, q, k, v, heads, scale)
		}
	}},
	{"Mix", "a row depends on how many there are", func(f *faulty, b *Opaque) {
		f.mix = func(dst, q, k, v backend.Tensor, heads int, scale float32) {
			if q.Rows == 7 {
				scale *= 1.0001
			}
			b.Mix(dst, q, k, v, heads, scale)
		}
	}},
	{"Mix", "stride of values is ignored", func(f *faulty, b *Opaque) {
		f.mix = func(dst, q, k, v backend.Tensor, heads int, scale float32) { b.Mix(dst, q, k, flat(v), heads, scale) }
	}},
	{"Mix", "keys are overwritten", func(f *faulty, b *Opaque) {
		f.mix = func(dst, q, k, v backend.Tensor, heads int, scale float32) {
			b.Mix(dst, q, k, v, heads, scale)
			if q.Rows > 0 && k.Mem != q.Mem {
				spoil(b, lastCol(k))
			}
		}
	}},
	{"Mix", "no number becomes one", func(f *faulty, b *Opaque) {
		f.mix = func(dst, q, k, v backend.Tensor, heads int, scale float32) {
			b.Mix(dst, q, k, v, heads, scale)
			if q.Rows == 100 {
				b.Fill(dst.RowRange(5, 6), 0)
			}
		}
	}},
	{"Mix", "shapes are not compared", func(f *faulty, b *Opaque) {
		f.mix = func(dst, q, k, v backend.Tensor, heads int, scale float32) {
			if q.Cols%heads == 0 {
				b.Mix(dst, q, k, v, heads, scale)
			}
		}
	}},
}
