package weights

import (
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Storage is a way in which some checkpoints store a weight that others store under its
// canonical name: as some rows of another module, or expert by expert.
type Storage struct {
	Marks  []string // modules: if any of them is stored, the weight is stored so; nil: it is if not otherwise
	Module string   // that the weight is in; with a %d: one module for each expert
	Groups int      // a stored matrix is that many groups of Size rows; 0: it is the weight's own
	Size   int
	Parts  []Cut // the weight is, part by part, these rows of each group
	// Stacked has every group be a matrix of the weight, which is a stack of Groups: the rows of
	// the one of Parts.
	Stacked bool
	// Transposed has such a matrix be stored by columns.
	Transposed bool
}

// Cut is the rows [From, To) of a group.
type Cut struct{ From, To int }

// apart reports whether experts are stored one by one.
func (s *Storage) apart() bool { return strings.Contains(s.Module, "%d") }

// stack cuts a stored matrix into those of the weight, in its encoding. A matrix stored by
// columns cannot keep its groups or blocks: it becomes numbers.
func (s *Storage) stack(from *checkpoint.Weights, m *dtype.Matrix) []dtype.Matrix {
	list := make([]dtype.Matrix, s.Groups)
	for g := range list {
		list[g] = m.RowRange(g*s.Size+s.Parts[0].From, g*s.Size+s.Parts[0].To)
		if s.Transposed {
			list[g] = transposed(&list[g])
		}
	}
	if s.Transposed {
		from.ReleaseMatrix(*m) // they are copies
	}
	return list
}

// transposed is the columns of m as rows: in its type if it is plain, in float32 if it is not.
func transposed(m *dtype.Matrix) dtype.Matrix {
	t := dtype.Matrix{Rows: m.Cols, Cols: m.Rows, Type: dtype.F32}
	if m.Format == dtype.Plain {
		t.Type = m.Type
	}
	if m.Data == nil {
		return t
	}
	v := make([]float32, m.Rows*m.Cols)
	for r := range m.Rows {
		m.PlainRow(v[r*m.Cols:][:m.Cols], r)
	}
	t.Data = make([]byte, t.Rows*t.RowBytes())
	dtype.FromF32(t.Data, t.Type, transpose(v, m.Rows, m.Cols))
	return t
}

// take is the rows of a stored matrix that are the weight's.
func (s *Storage) take(from *checkpoint.Weights, m *dtype.Matrix) dtype.Matrix {
	switch {
	case s.Groups == 0:
		return *m
	case s.Groups == 1 && len(s.Parts) == 1:
		return m.RowRange(s.Parts[0].From, s.Parts[0].To)
	}
	rows := m.Gather(s.rows())
	from.ReleaseMatrix(*m) // they are copies
	return rows
}

// rows are the rows of a stored matrix that are the weight's, in its order.
func (s *Storage) rows() []int {
	var list []int
	for _, p := range s.Parts {
		for g := range s.Groups {
			for i := p.From; i < p.To; i++ {
				list = append(list, g*s.Size+i)
			}
		}
	}
	return list
}

// Order is another order of the rows or columns of a weight in a checkpoint: of those
// from First on, in pieces of Size. The numbers of a weight that is not a matrix count as its rows.
type Order struct {
	Columns     bool // all of them: First is 0
	First, Size int
	Pieces      []int // the place of each piece in the checkpoint
}

// Reordered is w, which the checkpoint has in another order.
func (w Weight) Reordered(o Order) Weight {
	w.order = &o
	return w
}

// matrix is a stored matrix in the order of the weight.
func (o *Order) matrix(from *checkpoint.Weights, m *dtype.Matrix) (ordered dtype.Matrix) {
	if o == nil {
		return *m
	}
	if o.Columns {
		ordered = m.Arrange(o.Pieces)
	} else {
		ordered = m.Gather(o.list())
	}
	from.ReleaseMatrix(*m) // it is a copy
	return ordered
}

// values are stored numbers in the order of the weight.
func (o *Order) values(v []float32) []float32 {
	if o == nil {
		return v
	}
	ordered := make([]float32, len(v))
	for i, from := range o.list() {
		ordered[i] = v[from]
	}
	return ordered
}

// list is the place of each row in the checkpoint.
func (o *Order) list() []int {
	var list []int
	for i := range o.First {
		list = append(list, i)
	}
	for _, p := range o.Pieces {
		for i := range o.Size {
			list = append(list, o.First+p*o.Size+i)
		}
	}
	return list
}
