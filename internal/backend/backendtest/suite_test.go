package backendtest

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/conformance"
	"github.com/foretoken/foretoken/internal/dtype"
)

// planted is a fault, and the method that has it.
type planted struct {
	op, what string
	plant    func(f *faulty, b *Opaque)
}

// flat is a tensor that ignores gaps between rows.
func flat(t backend.Tensor) backend.Tensor {
	t.Stride = t.Cols
	return t
}

// lastRow and lastCol are views of t.
func lastRow(t backend.Tensor) backend.Tensor { return t.RowRange(t.Rows-1, t.Rows) }
func lastCol(t backend.Tensor) backend.Tensor { return t.ColRange(t.Cols-1, t.Cols) }

// spoil makes a view wrong.
func spoil(b *Opaque, t backend.Tensor) { b.Fill(t, 1e6) }

var memoryFaults = []planted{
	{"Alloc", "memory is not zero", func(f *faulty, b *Opaque) {
		f.alloc = func(t dtype.Type, rows, cols int) (backend.Tensor, error) {
			x, err := b.Alloc(t, rows, cols)
			if err == nil && t == dtype.F32 {
				b.Fill(x, 3)
			}
			return x, err
		}
	}},
	{"Alloc", "memory has no end", func(f *faulty, b *Opaque) {
		f.alloc = func(t dtype.Type, rows, cols int) (backend.Tensor, error) {
			if rows > 1<<20 {
				return b.Alloc(t, 1, 1)
			}
			return b.Alloc(t, rows, cols)
		}
	}},
	{"Alloc", "tensors share memory", func(f *faulty, b *Opaque) {
		var last backend.Tensor
		f.alloc = func(t dtype.Type, rows, cols int) (backend.Tensor, error) {
			if t == last.Type && rows == last.Rows && cols == last.Cols && rows*cols == 15 && !last.Mem.(*secret).freed {
				return last, nil
			}
			x, err := b.Alloc(t, rows, cols)
			last = x
			return x, err
		}
	}},
	{"FreeMemory", "nothing is ever free", func(f *faulty, _ *Opaque) { f.free = func() int64 { return 0 } }},
	{"Usage", "what was freed still counts", func(f *faulty, b *Opaque) {
		most := int64(0)
		f.usage = func() []backend.Usage {
			list := b.Usage()
			most = max(most, list[0].Used)
			list[0].Used = most + 1
			most++
			return list
		}
	}},
	{"Usage", "tensors do not count", func(f *faulty, b *Opaque) {
		f.usage = func() []backend.Usage { return []backend.Usage{{Device: "none"}} }
	}},
	{"Free", "others are cleared", func(f *faulty, b *Opaque) {
		var live []backend.Tensor
		f.alloc = func(t dtype.Type, rows, cols int) (backend.Tensor, error) {
			x, err := b.Alloc(t, rows, cols)
			if err == nil && t == dtype.F32 {
				live = append(live, x)
			}
			return x, err
		}
		f.release = func(t backend.Tensor) {
			live = slices.DeleteFunc(live, func(x backend.Tensor) bool { return x.Mem == t.Mem })
			b.Free(t)
			for _, x := range live {
				b.Fill(x, 0)
			}
		}
	}},
	{"Free", "twice is a panic", func(f *faulty, b *Opaque) {
		f.release = func(t backend.Tensor) {
			if m, ok := t.Mem.(*secret); ok && m.freed {
				panic("freed twice")
			}
			b.Free(t)
		}
	}},
	{"Host", "the last row is missing", func(f *faulty, b *Opaque) {
		f.host = func(t backend.Tensor) ([]float32, error) {
			x, err := b.Host(t)
			if t.Rows > 1 && len(x) > 0 {
				clear(x[(t.Rows-1)*t.Cols:])
			}
			return x, err
		}
	}},
	{"Host", "gaps are not seen", func(f *faulty, b *Opaque) {
		f.host = func(t backend.Tensor) ([]float32, error) { return b.Host(flat(t)) }
	}},
	{"Host", "an error is swallowed", func(f *faulty, b *Opaque) {
		f.host = func(t backend.Tensor) ([]float32, error) {
			x, err := b.Host(t)
			if errors.Is(err, conformance.ErrReported) {
				return make([]float32, t.Rows*t.Cols), nil
			}
			return x, err
		}
	}},
	{"Fill", "the last column is left out", func(f *faulty, b *Opaque) {
		f.fill = func(t backend.Tensor, x float32) { b.Fill(t.ColRange(0, max(t.Cols-1, 0)), x) }
	}},
	{"Fill", "stride is ignored", func(f *faulty, b *Opaque) {
		f.fill = func(t backend.Tensor, x float32) { b.Fill(flat(t), x) }
	}},
	{"Write", "stride is ignored", func(f *faulty, b *Opaque) {
		f.write = func(t backend.Tensor, x []float32) error { return b.Write(flat(t), x) }
	}},
	{"Write", "too few numbers pass", func(f *faulty, b *Opaque) {
		f.write = func(t backend.Tensor, x []float32) error {
			_ = b.Write(t, x)
			return nil
		}
	}},
	{"Copy", "stride of the source is ignored", func(f *faulty, b *Opaque) {
		f.copy = func(dst, src backend.Tensor) { b.Copy(dst, flat(src)) }
	}},
	{"Copy", "the last row is missing", func(f *faulty, b *Opaque) {
		f.copy = func(dst, src backend.Tensor) {
			if dst.Rows == src.Rows && dst.Rows > 16 {
				dst, src = dst.RowRange(1, dst.Rows), src.RowRange(1, src.Rows)
			}
			b.Copy(dst, src)
		}
	}},
	{"ReadBytes", "stride is ignored", func(f *faulty, b *Opaque) {
		f.readBytes = func(dst []byte, src backend.Tensor) error { return b.ReadBytes(dst, flat(src)) }
	}},
	{"ReadBytes", "an error is swallowed", func(f *faulty, b *Opaque) {
		f.readBytes = func(dst []byte, src backend.Tensor) error {
			if err := b.ReadBytes(dst, src); !errors.Is(err, conformance.ErrReported) {
				return err
			}
			return nil
		}
	}},
	{"WriteBytes", "the last row is missing", func(f *faulty, b *Opaque) {
		f.writeBytes = func(dst backend.Tensor, src []byte) error {
			if dst.Rows < 2 || len(src)%dst.Rows != 0 {
				return b.WriteBytes(dst, src)
			}
			return b.WriteBytes(dst.RowRange(0, dst.Rows-1), src[:len(src)/dst.Rows*(dst.Rows-1)])
		}
	}},
	{"WriteBytes", "halves are swapped", func(f *faulty, b *Opaque) {
		f.writeBytes = func(dst backend.Tensor, src []byte) error {
			if dst.Type == dtype.F16 {
				src = slices.Clone(src)
				slices.Reverse(src)
			}
			return b.WriteBytes(dst, src)
		}
	}},
	{"Load", "the last row is lost", func(f *faulty, b *Opaque) {
		f.load = func(c backend.Compute, stack []dtype.Matrix) (backend.Weight, error) {
			stack = slices.Clone(stack)
			for i, m := range stack {
				if m.Validate() == nil && m.Rows > 16 {
					stack[i].Data = slices.Clone(m.Data)
					clear(stack[i].Data[(m.Rows-1)*m.RowBytes():])
				}
			}
			return b.Load(c, stack...)
		}
	}},
	{"Load", "shapes are not compared", func(f *faulty, b *Opaque) {
		f.load = func(c backend.Compute, stack []dtype.Matrix) (backend.Weight, error) {
			if len(stack) == 2 && stack[0].Rows != stack[1].Rows {
				stack = stack[:1]
			}
			return b.Load(c, stack...)
		}
	}},
	{"Unload", "others go, too", func(f *faulty, b *Opaque) {
		var live []backend.Weight
		f.load = func(c backend.Compute, stack []dtype.Matrix) (backend.Weight, error) {
			w, err := b.Load(c, stack...)
			if err == nil {
				live = append(live, w)
			}
			return w, err
		}
		f.unload = func(backend.Weight) {
			for _, w := range live {
				b.Unload(w)
			}
		}
	}},
	{"Unload", "twice is a panic", func(f *faulty, b *Opaque) {
		gone := map[backend.Weight]int{}
		f.unload = func(w backend.Weight) {
			if gone[w]++; gone[w] == 2 {
				panic("unloaded twice")
			}
			b.Unload(w)
		}
	}},
}

var rowFaults = []planted{
	{"Embed", "the last row of the table is another", func(f *faulty, b *Opaque) {
		f.embed = func(dst backend.Tensor, table backend.Weight, ids []int32, factor float32) {
			ids = slices.Clone(ids)
			for i, id := range ids {
				if int(id) == table.Rows()-1 {
					ids[i] = max(id-1, 0)
				}
			}
			b.Embed(dst, table, ids, factor)
		}
	}},
	{"Embed", "stride is ignored", func(f *faulty, b *Opaque) {
		f.embed = func(dst backend.Tensor, table backend.Weight, ids []int32, factor float32) {
			b.Embed(flat(dst), table, ids, factor)
		}
	}},
	{"Embed", "ids are not checked", func(f *faulty, b *Opaque) {
		f.embed = func(dst backend.Tensor, table backend.Weight, ids []int32, factor float32) {
			ids = slices.Clone(ids)
			for i, id := range ids {
				ids[i] = min(id, int32(table.Rows()-1))
			}
			b.Embed(dst, table, ids, factor)
		}
	}},
	{"Gather", "a row is taken once only", func(f *faulty, b *Opaque) {
		f.gather = func(dst, x backend.Tensor, rows []int32) {
			b.Gather(dst, x, rows)
			if n := len(rows); n > 1 && slices.Contains(rows[:n-1], rows[n-1]) {
				spoil(b, lastRow(dst))
			}
		}
	}},
	{"Gather", "stride of the source is ignored", func(f *faulty, b *Opaque) {
		f.gather = func(dst, x backend.Tensor, rows []int32) { b.Gather(dst, flat(x), rows) }
	}},
	{"RMSNorm", "eps is fixed", func(f *faulty, b *Opaque) {
		f.rmsnorm = func(dst, x, gain backend.Tensor, _ float32) { b.RMSNorm(dst, x, gain, 1e-6) }
	}},
	{"RMSNorm", "the last column of odd rows", func(f *faulty, b *Opaque) {
		f.rmsnorm = func(dst, x, gain backend.Tensor, eps float32) {
			b.RMSNorm(dst, x, gain, eps)
			if x.Cols%16 == 1 {
				spoil(b, lastCol(dst))
			}
		}
	}},
	{"RMSNorm", "beyond the last column", func(f *faulty, b *Opaque) {
		f.rmsnorm = func(dst, x, gain backend.Tensor, eps float32) {
			b.RMSNorm(dst, x, gain, eps)
			if dst.Stride > dst.Cols {
				dst.Offset, dst.Cols = dst.Offset+dst.Cols, 1
				spoil(b, dst)
			}
		}
	}},
	{"RMSNorm", "gains are not counted", func(f *faulty, b *Opaque) {
		f.rmsnorm = func(dst, x, gain backend.Tensor, eps float32) {
			if gain.Cols == x.Cols {
				b.RMSNorm(dst, x, gain, eps)
			}
		}
	}},
	{"GLU", "not in place", func(f *faulty, b *Opaque) {
		f.glu = func(dst, gate, up backend.Tensor, kind backend.Activation) {
			if dst == gate {
				spoil(b, lastRow(dst))
			}
			b.GLU(dst, gate, up, kind)
		}
	}},
	{"GLU", "the end of a long row", func(f *faulty, b *Opaque) {
		f.glu = func(dst, gate, up backend.Tensor, kind backend.Activation) {
			b.GLU(dst, gate, up, kind)
			if dst.Cols > 4096 {
				spoil(b, lastCol(dst))
			}
		}
	}},
}

// forgetful are faults of devices that do not know an option.
func forgetful() (list []planted) {
	for name, forget := range map[string]func(a *backend.Attention){
		"scale":         func(a *backend.Attention) { a.Scale = 0 },
		"window":        func(a *backend.Attention) { a.Window = 0 },
		"interleaved":   func(a *backend.Attention) { a.Interleaved = false },
		"turn":          func(a *backend.Attention) { a.Turn = 0 },
		"sections":      func(a *backend.Attention) { a.Sections = nil },
		"rotation":      func(a *backend.Attention) { a.Freqs = nil },
		"norm of keys":  func(a *backend.Attention) { a.KNorm = backend.Tensor{} },
		"norm of query": func(a *backend.Attention) { a.QNorm = backend.Tensor{} },
	} {
		list = append(list, planted{"Attend", name + " is ignored", func(f *faulty, b *Opaque) {
			f.attend = func(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
				own := *a
				forget(&own)
				b.Attend(dst, &own, at, q, k, v, batch)
			}
		}})
	}
	for name, forget := range map[string]func(e *backend.Experts){
		"sigmoid":           func(e *backend.Experts) { e.Sigmoid = false },
		"bias":              func(e *backend.Experts) { e.Bias = backend.Tensor{} },
		"groups":            func(e *backend.Experts) { e.Groups = 0 },
		"scale":             func(e *backend.Experts) { e.Scale = 0 },
		"factors":           func(e *backend.Experts) { e.PerExpert = backend.Tensor{} },
		"GELU":              func(e *backend.Experts) { e.Activation = backend.SiLU },
		"the shared expert": func(e *backend.Experts) { e.SharedRouter, e.SharedGate = nil, nil },
		"the shared gate":   func(e *backend.Experts) { e.SharedRouter = nil },
	} {
		list = append(list, planted{"Experts", name + " is ignored", func(f *faulty, b *Opaque) {
			f.experts = func(dst, x, router backend.Tensor, e *backend.Experts) {
				own := *e
				forget(&own)
				b.Experts(dst, x, router, &own)
			}
		}})
	}
	return append(list, planted{"Attend", "positions are ignored", func(f *faulty, b *Opaque) {
		f.attend = func(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
			batch = slices.Clone(batch)
			for i := range batch {
				batch[i].Positions = nil
			}
			b.Attend(dst, a, at, q, k, v, batch)
		}
	}})
}

var topFaults = []planted{
	{"Top", "one of several equals is listed", func(f *faulty, b *Opaque) {
		f.top = answers(b, func(_ backend.Ask, best *backend.Best) {
			if n := len(best.IDs); n > 1 && best.Logits[n-1] == best.Logits[n-2] {
				best.IDs, best.Logits = best.IDs[:n-1], best.Logits[:n-1]
			}
		})
	}},
	{"Top", "minus infinity is listed", func(f *faulty, b *Opaque) {
		f.top = answers(b, func(a backend.Ask, best *backend.Best) {
			if a.K > 0 && len(best.IDs) == 0 {
				best.IDs, best.Logits = []int32{0}, []float32{float32(math.Inf(-1))}
			}
		})
	}},
	{"Top", "the bound is too high", func(f *faulty, b *Opaque) {
		f.top = answers(b, func(_ backend.Ask, best *backend.Best) { best.Low += 0.5 })
	}},
	{"Top", "the likeliest comes first", func(f *faulty, b *Opaque) {
		f.top = answers(b, func(_ backend.Ask, best *backend.Best) {
			if n := len(best.IDs); n > 1 && best.Logits[0] < best.Logits[n-1] {
				slices.Reverse(best.IDs)
				slices.Reverse(best.Logits)
			}
		})
	}},
	{"Top", "all columns count", func(f *faulty, b *Opaque) {
		f.top = func(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
			asks = slices.Clone(asks)
			for i := range asks {
				asks[i].Cols = 0
			}
			return b.Top(src, asks)
		}
	}},
	{"Top", "all rows are asked alike", func(f *faulty, b *Opaque) {
		f.top = func(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
			if len(asks) != src.Rows || len(asks) == 0 {
				return b.Top(src, asks)
			}
			return b.Top(src, slices.Repeat(asks[:1], len(asks)))
		}
	}},
	{"Top", "stride is ignored", func(f *faulty, b *Opaque) {
		f.top = func(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) { return b.Top(flat(src), asks) }
	}},
	{"Top", "the sum leaves out what is not listed", func(f *faulty, b *Opaque) {
		f.top = answers(b, func(_ backend.Ask, best *backend.Best) {
			if best.Sum > 1 {
				best.Sum = 1
			}
		})
	}},
	{"Top", "a draw with coarse filters", func(f *faulty, b *Opaque) {
		f.top = answers(b, func(a backend.Ask, best *backend.Best) {
			if a.Draw != nil && a.Draw.TopK > 0 && len(best.IDs) > 0 {
				best.Drawn = best.IDs[0]
			}
		})
	}},
	{"Top", "an error is swallowed", func(f *faulty, b *Opaque) {
		f.top = func(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
			best, err := b.Top(src, asks)
			if errors.Is(err, conformance.ErrReported) {
				return make([]backend.Best, len(asks)), nil
			}
			return best, err
		}
	}},
}

var drawFaults = []planted{
	{"Draw", "one noise for all rows", func(f *faulty, b *Opaque) {
		f.draw = func(ids, logits, tokens backend.Tensor, draws []backend.Draw) {
			draws = slices.Clone(draws)
			for i := range draws {
				draws[i].Noise = draws[0].Noise
			}
			b.Draw(ids, logits, tokens, draws)
		}
	}},
	{"Draw", "filters are ignored", func(f *faulty, b *Opaque) {
		f.draw = func(drawn, logits, tokens backend.Tensor, draws []backend.Draw) {
			draws = slices.Clone(draws)
			for i := range draws {
				draws[i].TopK, draws[i].TopP, draws[i].Levels = 0, 0, 0
			}
			b.Draw(drawn, logits, tokens, draws)
		}
	}},
	{"Draw", "columns of other rows count", func(f *faulty, b *Opaque) {
		f.draw = func(drawn, logits, tokens backend.Tensor, draws []backend.Draw) {
			draws = slices.Clone(draws)
			for i := range draws {
				draws[i].First = 0
			}
			b.Draw(drawn, logits, tokens, draws)
		}
	}},
	{"Draw", "all columns count", func(f *faulty, b *Opaque) {
		f.draw = func(ids, logits, tokens backend.Tensor, draws []backend.Draw) {
			draws = slices.Clone(draws)
			for i := range draws {
				draws[i].Cols = 0
			}
			b.Draw(ids, logits, tokens, draws)
		}
	}},
	{"Draw", "noise of columns", func(f *faulty, b *Opaque) {
		f.draw = func(drawn, logits, tokens backend.Tensor, draws []backend.Draw) {
			b.Draw(drawn, logits, backend.Tensor{}, draws)
			for i := 0; tokens.Rows > 0 && i < drawn.Rows; i++ {
				row := b.row(b.tensor(drawn), i)
				if row[0] >= 0 {
					row[0] = b.row(b.tensor(tokens), min(i, tokens.Rows-1))[int(row[0])]
				}
				must(b.Write(drawn.RowRange(i, i+1), row))
			}
		}
	}},
	{"Draw", "tokens of the first row", func(f *faulty, b *Opaque) {
		f.draw = func(drawn, logits, tokens backend.Tensor, draws []backend.Draw) {
			b.Draw(drawn, logits, tokens.RowRange(0, min(tokens.Rows, 1)), draws)
		}
	}},
	{"Candidates", "all columns count", func(f *faulty, b *Opaque) {
		f.candidates = func(ids, best, logits backend.Tensor, draws []backend.Draw) {
			b.Candidates(ids, best, logits, make([]backend.Draw, len(draws)))
		}
	}},
	{"Candidates", "the last is missing", func(f *faulty, b *Opaque) {
		f.candidates = func(ids, best, logits backend.Tensor, draws []backend.Draw) {
			b.Candidates(ids, best, logits, draws)
			n := ids.Cols - 1
			b.Copy(ids.ColRange(n, n+1), ids.ColRange(n-1, n))
			b.Copy(best.ColRange(n, n+1), best.ColRange(n-1, n))
		}
	}},
	{"Score", "scores are replaced", func(f *faulty, b *Opaque) {
		f.score = func(scores, left, mid, right backend.Tensor) {
			b.Fill(scores, 0)
			b.Score(scores, left, mid, right)
		}
	}},
	{"EmbedDrawn", "stride is ignored", func(f *faulty, b *Opaque) {
		f.embedDrawn = func(dst backend.Tensor, table backend.Weight, ids backend.Tensor, factor float32) {
			b.EmbedDrawn(flat(dst), table, ids, factor)
		}
	}},
}

// answers is Top with every answer changed.
func answers(b *Opaque, change func(a backend.Ask, best *backend.Best)) func(backend.Tensor, []backend.Ask) ([]backend.Best, error) {
	return func(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
		best, err := b.Top(src, asks)
		for i := range best {
			change(asks[i], &best[i])
		}
		return best, err
	}
}

var layerFaults = []planted{
	{"MatMul", "the last column", func(f *faulty, b *Opaque) {
		f.matmul = func(x backend.Tensor, products []backend.Product) {
			b.MatMul(x, products...)
			for _, p := range products {
				if p.Dst.Cols%16 != 0 {
					spoil(b, lastCol(p.Dst))
				}
			}
		}
	}},
	{"MatMul", "the last row of an odd number", func(f *faulty, b *Opaque) {
		f.matmul = func(x backend.Tensor, products []backend.Product) {
			b.MatMul(x, products...)
			if x.Rows > 8 && x.Rows%8 != 0 {
				spoil(b, lastRow(products[0].Dst))
			}
		}
	}},
	{"MatMul", "a row depends on its neighbor", func(f *faulty, b *Opaque) {
		f.matmul = func(x backend.Tensor, products []backend.Product) {
			b.MatMul(x, products...)
			for _, p := range products {
				if x.Rows == 40 && p.Dst.Cols == 90 {
					b.Copy(p.Dst.RowRange(1, 2), p.Dst.RowRange(0, 1))
				}
			}
		}
	}},
	{"MatMul", "nothing is added", func(f *faulty, b *Opaque) {
		f.matmul = func(x backend.Tensor, products []backend.Product) {
			products = slices.Clone(products)
			for i := range products {
				products[i].Add = false
			}
			b.MatMul(x, products...)
		}
	}},
	{"MatMul", "all blocks are computed", func(f *faulty, b *Opaque) {
		f.matmul = func(x backend.Tensor, products []backend.Product) {
			products = slices.Clone(products)
			for i := range products {
				products[i].Only = nil
			}
			b.MatMul(x, products...)
		}
	}},
	{"MatMul", "all heads meet the first matrix", func(f *faulty, b *Opaque) {
		f.matmul = func(x backend.Tensor, products []backend.Product) {
			for _, p := range products {
				if !p.Each {
					b.MatMul(x, p)
					continue
				}
				in, out := x.Cols/p.W.Count(), p.Dst.Cols/p.W.Count()
				for i := range p.W.Count() {
					dst := p.Dst.ColRange(i*out, i*out+p.W.Rows())
					b.MatMul(x.ColRange(i*in, i*in+p.W.Cols()), backend.Product{Dst: dst, W: p.W, Add: p.Add})
				}
			}
		}
	}},
	{"MatMul", "infinities are rounded away", func(f *faulty, b *Opaque) {
		f.matmul = func(x backend.Tensor, products []backend.Product) {
			b.MatMul(x, products...)
			if x.Rows == 2 && x.Cols == 128 {
				b.Fill(lastRow(products[0].Dst), 1)
			}
		}
	}},
	{"Pass", "nothing is done", func(f *faulty, _ *Opaque) { f.pass = func(backend.Pass, func()) {} }},
	{"Pass", "the lists are those of the first", func(f *faulty, b *Opaque) {
		first := map[any]backend.Pass{}
		f.pass = func(p backend.Pass, queue func()) {
			if _, ok := first[p.Of]; !ok {
				first[p.Of] = p
			}
			b.Pass(first[p.Of], queue)
		}
	}},
	{"Pass", "networks are not told apart", func(f *faulty, b *Opaque) {
		f.pass = func(p backend.Pass, queue func()) {
			p.Of = nil
			b.Pass(p, queue)
		}
	}},
	{"Pass", "memory given back is used again", func(f *faulty, b *Opaque) {
		f.pass = func(p backend.Pass, queue func()) {
			for key, r := range b.recordings {
				r.uses = nil
				b.recordings[key] = r
			}
			b.Pass(p, queue)
		}
	}},
	{"Experts", "nothing is added", func(f *faulty, b *Opaque) {
		f.experts = func(dst, x, router backend.Tensor, e *backend.Experts) {
			b.Fill(dst, 0)
			b.Experts(dst, x, router, e)
		}
	}},
	{"Experts", "a row depends on how many there are", func(f *faulty, b *Opaque) {
		f.experts = func(dst, x, router backend.Tensor, e *backend.Experts) {
			own := *e
			own.Normalize = e.Normalize != (x.Rows == 13)
			b.Experts(dst, x, router, &own)
		}
	}},
	{"Experts", "one expert too few", func(f *faulty, b *Opaque) {
		f.experts = func(dst, x, router backend.Tensor, e *backend.Experts) {
			own := *e
			own.TopK--
			b.Experts(dst, x, router, &own)
		}
	}},
	{"Attend", "keys without queries are lost", func(f *faulty, b *Opaque) {
		f.attend = func(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
			if q.Rows > 0 {
				b.Attend(dst, a, at, q, k, v, batch)
			}
		}
	}},
	{"Attend", "all layers are the first", func(f *faulty, b *Opaque) {
		f.attend = func(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
			b.Attend(dst, a, backend.Place{Type: at.Type}, q, k, v, batch)
			if q.Rows == 1 { // or the order of layers would hide it
				b.Attend(dst, a, at, q, k, v, batch)
			}
		}
	}},
	{"Attend", "all windows are the first", func(f *faulty, b *Opaque) {
		f.attend = func(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
			if batch = slices.Clone(batch); at.Window > 1 {
				for i := range batch {
					w := slices.Clone(batch[i].Windows)
					w[1].Pages = slices.Clone(w[1].Pages)
					copy(w[1].Pages, w[0].Pages)
					batch[i].Windows = w
				}
			}
			b.Attend(dst, a, at, q, k, v, batch)
		}
	}},
	{"Attend", "a sequence of a batch is late by one", func(f *faulty, b *Opaque) {
		f.attend = func(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
			if len(batch) > 1 {
				batch = slices.Clone(batch)
				batch[1].Pos++
			}
			b.Attend(dst, a, at, q, k, v, batch)
		}
	}},
	{"Attend", "a piece depends on its length", func(f *faulty, b *Opaque) {
		f.attend = func(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
			own := *a
			if q.Rows == 7 {
				own.Eps *= 100
			}
			b.Attend(dst, &own, at, q, k, v, batch)
		}
	}},
	{"Attend", "rejected drafts stay", func(f *faulty, b *Opaque) {
		last := 0
		f.attend = func(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
			b.Attend(dst, a, at, q, k, v, batch)
			if last == 6 && q.Rows == 8 {
				spoil(b, dst)
			}
			last = q.Rows
		}
	}},
	{"DeltaNet", "an accepted draft is replayed twice", func(f *faulty, b *Opaque) {
		f.deltaNet = changed(b, func(s *backend.Seq) {
			if s.Accepted == 1 {
				s.Accepted++
			}
		})
	}},
	{"DeltaNet", "accepted drafts are forgotten", func(f *faulty, b *Opaque) {
		f.deltaNet = changed(b, func(s *backend.Seq) { s.Accepted = 0 })
	}},
	{"DeltaNet", "drafts go into the state", func(f *faulty, b *Opaque) {
		f.deltaNet = changed(b, func(s *backend.Seq) { s.Drafts = 0 })
	}},
	{"DeltaNet", "the second chunk of a long call", func(f *faulty, b *Opaque) {
		f.deltaNet = func(dst backend.Tensor, d *backend.DeltaNet, at backend.Place, in backend.DeltaInput, batch []backend.Seq) {
			b.DeltaNet(dst, d, at, in, batch)
			if dst.Rows > 64 {
				spoil(b, lastRow(dst).ColRange(0, 1))
			}
		}
	}},
	{"DeltaNet", "tiled value heads are neighbors", func(f *faulty, b *Opaque) {
		f.deltaNet = func(dst backend.Tensor, d *backend.DeltaNet, at backend.Place, in backend.DeltaInput, batch []backend.Seq) {
			other := *d
			other.Tiled = false
			b.DeltaNet(dst, &other, at, in, batch)
		}
	}},
	{"DeltaNet", "a batch shares a state", func(f *faulty, b *Opaque) {
		f.deltaNet = func(dst backend.Tensor, d *backend.DeltaNet, at backend.Place, in backend.DeltaInput, batch []backend.Seq) {
			batch = slices.Clone(batch)
			for i := range batch {
				batch[i].Delta = batch[0].Delta
			}
			b.DeltaNet(dst, d, at, in, batch)
		}
	}},
}

// changed is DeltaNet with every sequence described otherwise.
func changed(b *Opaque, change func(s *backend.Seq)) func(backend.Tensor, *backend.DeltaNet, backend.Place, backend.DeltaInput, []backend.Seq) {
	return func(dst backend.Tensor, d *backend.DeltaNet, at backend.Place, in backend.DeltaInput, batch []backend.Seq) {
		batch = slices.Clone(batch)
		for i := range batch {
			change(&batch[i])
		}
		b.DeltaNet(dst, d, at, in, batch)
	}
}

// devices spreads faults over as few devices as have at most one in each method. What other checks
// rely on is wrong alone.
func devices(faults []planted) (list [][]planted) {
	lone := []string{"FreeMemory", "Usage", "Embed", "Pass"}
	for _, name := range conformance.Names(true) {
		lone = append(lone, strings.Split(name, " and ")...)
	}
	count := map[string]int{}
	var shared [][]planted
	for _, p := range faults {
		if slices.Contains(lone, p.op) {
			list = append(list, []planted{p})
			continue
		}
		if count[p.op] == len(shared) {
			shared = append(shared, nil)
		}
		shared[count[p.op]] = append(shared[count[p.op]], p)
		count[p.op]++
	}
	return append(list, shared...)
}

// TestFaultsAreFound plants every fault: the checks name the methods that have one, and no other.
func TestFaultsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("what is found does not depend on the instruction set, and the portable code takes long")
	}
	s, b := Brief(t), Open(t, backend.Options{Threads: 1})
	methods := map[string]bool{}
	for _, faults := range devices(slices.Concat(memoryFaults, rowFaults, readerFaults, topFaults, drawFaults, layerFaults, towerFaults, blockFaults, inputFaults, forgetful())) {
		f, wrong := &faulty{Opaque: NewOpaque(b)}, map[string]string{}
		for _, p := range faults {
			p.plant(f, f.Opaque)
			methods[p.op], wrong[p.op] = true, p.what
		}
		found := map[string]bool{}
		for _, x := range s.Check(f) {
			if found[x.Op] = true; wrong[x.Op] == "" {
				t.Errorf("found %v, and planted %v", x, wrong)
			}
		}
		for op, what := range wrong {
			if !found[op] {
				t.Errorf("%s: %s: not found", op, what)
			}
		}
	}
	for _, all := range []reflect.Type{reflect.TypeFor[backend.Backend](), reflect.TypeFor[backend.Drawer](), reflect.TypeFor[backend.Meter]()} {
		for i := range all.NumMethod() {
			if name := all.Method(i).Name; !methods[name] && name != "Name" && name != "Close" {
				t.Errorf("no fault of %s is planted", name)
			}
		}
	}
}
