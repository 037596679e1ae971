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
}

// Cut is the rows [From, To) of a group.
type Cut struct{ From, To int }

// apart reports whether experts are stored one by one.
func (s *Storage) apart() bool { return strings.Contains(s.Module, "%d") }

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
