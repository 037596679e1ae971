package backendtest

import (
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
)

// readerFaults are those of operations that families with norms behind their layers, and drafters that
// read the memory of another model, brought.
var readerFaults = []planted{
	{"Embed", "the factor is ignored", func(f *faulty, b *Opaque) {
		f.embed = func(dst backend.Tensor, table backend.Weight, ids []int32, _ float32) { b.Embed(dst, table, ids, 0) }
	}},
	{"Draw", "far columns do not count", func(f *faulty, b *Opaque) {
		f.draw = func(drawn, logits, tokens backend.Tensor, draws []backend.Draw) {
			b.Draw(drawn, logits, tokens, near(draws))
		}
	}},
	{"Candidates", "far columns do not count", func(f *faulty, b *Opaque) {
		f.candidates = func(ids, best, logits backend.Tensor, draws []backend.Draw) {
			b.Candidates(ids, best, logits, near(draws))
		}
	}},
	{"EmbedDrawn", "the factor is ignored", func(f *faulty, b *Opaque) {
		f.embedDrawn = func(dst backend.Tensor, table backend.Weight, ids backend.Tensor, _ float32) {
			b.EmbedDrawn(dst, table, ids, 0)
		}
	}},
	{"NormAdd", "the scale is of the norm only", func(f *faulty, b *Opaque) {
		f.normAdd = func(dst, x, gain backend.Tensor, eps, _ float32) { b.NormAdd(dst, x, gain, eps, 1) }
	}},
	{"NormAdd", "nothing is added", func(f *faulty, b *Opaque) {
		f.normAdd = func(dst, x, gain backend.Tensor, eps, scale float32) {
			b.Fill(dst, 0)
			b.NormAdd(dst, x, gain, eps, scale)
		}
	}},
	{"NormAdd", "stride is ignored", func(f *faulty, b *Opaque) {
		f.normAdd = func(dst, x, gain backend.Tensor, eps, scale float32) { b.NormAdd(dst, flat(x), gain, eps, scale) }
	}},
	{"GLU", "always by SiLU", func(f *faulty, b *Opaque) {
		f.glu = func(dst, gate, up backend.Tensor, _ backend.Activation) { b.GLU(dst, gate, up, backend.SiLU) }
	}},
	{"Cap", "what is left out becomes a number", func(f *faulty, b *Opaque) {
		f.cap = func(x backend.Tensor, c float32) {
			b.Cap(x, c)
			if x.Cols > 1000 && x.Cols < 5000 {
				b.Fill(x.ColRange(2, 3), -c)
			}
		}
	}},
	{"Cap", "the end of a long row", func(f *faulty, b *Opaque) {
		f.cap = func(x backend.Tensor, c float32) {
			if x.Cols > 4096 {
				x.Cols--
			}
			b.Cap(x, c)
		}
	}},
	{"Cap", "any limit is one", func(f *faulty, b *Opaque) {
		f.cap = func(x backend.Tensor, c float32) {
			if c > 0 {
				b.Cap(x, 30)
			}
		}
	}},
	{"Experts", "the router's own row is ignored", func(f *faulty, b *Opaque) {
		f.experts = func(dst, x, _ backend.Tensor, e *backend.Experts) { b.Experts(dst, x, backend.Tensor{}, e) }
	}},
	{"Attend", "a row sees itself", func(f *faulty, b *Opaque) {
		f.attend = func(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
			own := *a
			if own.Before {
				own.Before = false
				own.Window = max(0, own.Window-1) // in a window as many
			}
			b.Attend(dst, &own, at, q, k, v, batch)
		}
	}},
	{"Attend", "what is read is overwritten", func(f *faulty, b *Opaque) {
		f.attend = func(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
			b.Attend(dst, a, at, q, k, v, batch)
			if k.Mem == nil {
				for _, s := range batch {
					b.Fill(s.Pages[0], 3)
				}
			}
		}
	}},
}

// near is draws from the first columns of long rows.
func near(draws []backend.Draw) []backend.Draw {
	draws = slices.Clone(draws)
	for i := range draws {
		if d := &draws[i]; d.First == 0 && d.Cols == 0 {
			d.First = 1 << 17 / backend.RowBlock
		}
	}
	return draws
}
