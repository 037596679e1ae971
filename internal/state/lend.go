package state

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
)

// Lend describes a call of another model for one token as row first, which reads the memory of the first at tokens. The
// token's own position is at; nothing is written.
func (s *State) Lend(first, at int) backend.Seq {
	if at < 1 || at > s.len {
		panic(fmt.Sprintf("state: %d of %d tokens are lent", at, s.len))
	}
	for i := range s.tables {
		t := &s.tables[i]
		if t.first > t.shape.first(at) {
			panic(fmt.Sprintf("state: %d of %d tokens are lent, but pages behind a window are released up to %d", at, s.len, t.first))
		}
		if i > 0 {
			s.windows[i-1] = backend.Window{First: t.first, Pages: t.tensors}
		}
	}
	q := backend.Seq{First: first, N: 1, Pos: at, Pages: s.tables[0].tensors, Windows: s.windows}
	if by := shift(s.steps, at); by != 0 {
		p := int32(at + by)
		q.Positions = [][3]int32{{p, p, p}}
	}
	return q
}
