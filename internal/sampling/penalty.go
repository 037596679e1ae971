package sampling

import "slices"

// A text has the counts for the penalties: which ids are in the repetition
// window, and how often each was generated. Tokens are rolled back in reverse
// order.
type text struct {
	window  int     // tokens; 0: everything
	history []int32 // kept only for a window, to know what leaves it
	at      map[int32]int32
	entries []entry
}

type entry struct {
	id   int32
	near int32 // times in the window
	said int32 // times generated
}

func newText(window int, prompt []int32) *text {
	t := &text{window: window, at: make(map[int32]int32)}
	tokens := slices.DeleteFunc(slices.Clone(prompt), func(id int32) bool { return id < 0 })
	if window > 0 {
		tokens = tokens[max(len(tokens)-window, 0):]
	}
	for _, id := range tokens {
		t.near(id)
	}
	return t
}

// push adds a generated token.
func (t *text) push(id int32) {
	t.near(id).said++
}

// near moves the window on by one token.
func (t *text) near(id int32) *entry {
	if t.window > 0 {
		if n := len(t.history); n >= t.window {
			t.entry(t.history[n-t.window]).near--
		}
		t.history = append(t.history, id)
	}
	e := t.entry(id)
	e.near++
	return e
}

// pop rolls the last pushed token back.
func (t *text) pop(id int32) {
	e := t.entry(id)
	e.near--
	e.said--
	if t.window > 0 {
		t.history = t.history[:len(t.history)-1]
		if n := len(t.history); n >= t.window {
			t.entry(t.history[n-t.window]).near++
		}
	}
}

// extend adds tokens that may be generated; retract rolls the same ones back.
func (t *text) extend(ahead []int32) {
	for _, id := range ahead {
		t.push(id)
	}
}

func (t *text) retract(ahead []int32) {
	for _, id := range slices.Backward(ahead) {
		t.pop(id)
	}
}

// find is the entry of an id, maybe empty.
func (t *text) find(id int32) entry {
	if i, ok := t.at[id]; ok {
		return t.entries[i]
	}
	return entry{id: id}
}

// entry is valid until the next call.
func (t *text) entry(id int32) *entry {
	i, ok := t.at[id]
	if !ok {
		i = int32(len(t.entries))
		t.at[id] = i
		t.entries = append(t.entries, entry{id: id})
	}
	return &t.entries[i]
}

// A bias is one entry of Options.LogitBias.
type bias struct {
	id    int32
	value float32
}

// adjust returns the row with bias and penalties applied as if ahead had been
// generated: the row itself if there is nothing to apply, otherwise a copy in
// s.row.
func (s *Sampler) adjust(row []float32, ahead []int32) []float32 {
	if len(s.biases) == 0 && (s.text == nil || len(s.text.entries)+len(ahead) == 0) {
		return row
	}
	s.row = append(s.row[:0], row...)
	for _, b := range s.biases {
		if int(b.id) < len(row) {
			s.row[b.id] += b.value
		}
	}
	if s.text == nil {
		return s.row
	}
	s.text.extend(ahead)
	for _, e := range s.text.entries {
		if uint32(e.id) < uint32(len(row)) {
			s.row[e.id] = s.penalize(s.row[e.id], e)
		}
	}
	s.text.retract(ahead)
	return s.row
}

// penalize works in float64 and rounds once.
func (s *Sampler) penalize(logit float32, e entry) float32 {
	z := float64(logit)
	if e.near > 0 {
		if z > 0 {
			z /= s.options.RepetitionPenalty
		} else {
			z = float64(z * s.options.RepetitionPenalty)
		}
	}
	if e.said > 0 {
		z -= float64(s.options.FrequencyPenalty * float64(e.said))
		z -= s.options.PresencePenalty
	}
	return float32(z)
}
