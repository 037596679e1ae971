package state

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
)

// Lend describes row first of a call of another model: a token at position at that reads the keys and values of the tokens before
// that. The call writes nothing to s.
func (s *State) Lend(first, at int) backend.Seq {
	if at < 1 || at > s.len {
		panic(fmt.Sprintf("state: Lend(%d) of %d tokens", at, s.len))
	}
	for i := range s.tables {
		t := &s.tables[i]
		if t.first > t.shape.first(at) {
			panic(fmt.Sprintf("state: Lend(%d) of %d tokens, but %d pages behind a window are released", at, s.len, t.first))
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
