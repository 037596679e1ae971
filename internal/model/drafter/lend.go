package drafter

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// Files often have copies of the model's embedding and output matrix. A matrix is taken as a copy if rows of both, of which the model's
// may be quantized, have nearly the same direction. A matrix of the same shape that was trained apart has others.
const (
	comparedRows = 32
	leastCosine  = 0.9
)

// lend is w, or the model's matrix if w is a copy of that.
func (n *transformer) lend(w weights.Weight, from *backend.Weight) weights.Weight {
	if m := *from; m == nil || m.Rows() != w.Rows || m.Cols() != w.Cols {
		return w
	}
	return w.Lent(from, func(m *dtype.Matrix) (bool, error) { return n.alike(m, *from) })
}

// alike reports whether a matrix of the file is the model's.
func (n *transformer) alike(m *dtype.Matrix, lent backend.Weight) (bool, error) {
	ids := make([]int32, min(comparedRows, m.Rows))
	for i := range ids {
		ids[i] = int32(i * m.Rows / len(ids))
	}
	rows, err := n.Backend.Alloc(dtype.F32, len(ids), m.Cols)
	if err != nil {
		return false, err
	}
	defer n.Backend.Free(rows)
	n.Backend.Embed(rows, lent, ids, 0)
	all, err := n.Backend.Host(rows)
	if err != nil {
		return false, err
	}
	own := make([]float32, m.Cols)
	for i, id := range ids {
		m.Row(own, int(id))
		var product, a, b float64
		for j, x := range all[i*m.Cols:][:m.Cols] {
			product, a, b = product+float64(x)*float64(own[j]), a+float64(x)*float64(x), b+float64(own[j])*float64(own[j])
		}
		if product < 0 || product*product < leastCosine*leastCosine*a*b {
			return false, nil
		}
	}
	return true, nil
}
