package state

import "slices"

// A token's slot is its index in the memory of its sequence. Its position is the input of its
// rotation: three numbers, which in a text all equal the slot. Rows of an image have separate
// positions, of which there are fewer than slots, so that the text behind it continues at
// another distance from the slots.

// step: a state of len tokens, and longer ones up to the next step, continues at the
// position len+delta.
type step struct{ len, delta int }

// After is the position, on all axes, of text after a token at p: one behind the largest.
func After(p [3]int32) int { return int(max(p[0], p[1], p[2])) + 1 }

// Next is the position, on all axes, of the next token if it is text.
func (s *State) Next() int { return s.len + shift(s.steps, s.len) }

// shift is the delta of a state of n tokens.
func shift(steps []step, n int) int {
	if steps = upTo(steps, n); len(steps) > 0 {
		return steps[len(steps)-1].delta
	}
	return 0
}

// upTo are the steps of a state of n tokens. Most often that is all of them.
func upTo(steps []step, n int) []step {
	for len(steps) > 0 && steps[len(steps)-1].len > n {
		steps = steps[:len(steps)-1]
	}
	return steps
}

// place is the positions of a call that feeds n tokens, given those of the caller; nil:
// they are the slots.
func (s *State) place(n int, given [][3]int32) [][3]int32 {
	s.given = given
	next := s.Next()
	if given != nil || next == s.len {
		return given
	}
	s.positions = slices.Grow(s.positions[:0], n)
	for i := range n {
		p := int32(next + i)
		s.positions = append(s.positions, [3]int32{p, p, p})
	}
	return s.positions
}

// advance records the positions of the call of place. Steps of rejected drafts are
// forgotten.
func (s *State) advance() {
	s.steps = upTo(s.steps, s.len)
	for i, p := range s.given {
		n := s.len + i + 1
		if d := After(p) - n; d != shift(s.steps, n) {
			s.steps = append(s.steps, step{n, d})
		}
	}
	s.given = nil
}
