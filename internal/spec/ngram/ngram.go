// Package ngram drafts by lookup: where the last tokens of a text stood in it before, what
// followed them there is the draft. It needs no model and costs next to nothing, so it is good
// for texts that repeat their prompt or themselves (edits, code, quotations, tables) and harmless
// for others. It knows tokens, not what they mean; a negative id stands for something else, of
// which it knows nothing: no match reaches across it, and it is never copied.
package ngram

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// Options configure a Drafter. The zero value is the default.
type Options struct {
	Min int // minimum number of tokens that must be the same; 0: 2
	Max int // tokens compared to find a place; a longer match is not preferred; 0: 4
}

// Limits of what is looked up.
const (
	maxMax   = 16      // of Options.Max
	maxMatch = 64      // longest match that is measured
	window   = 16      // tokens that an edit may add to a copy or leave out of it
	minSlots = 1 << 10 // of a new index
	maxSlots = 1 << 19 // 2 MiB a sequence; in texts that would need more, old places are lost
)

// Drafter looks drafts up. It belongs to one goroutine at a time.
type Drafter struct {
	o   Options
	out []spec.Draft
}

var _ spec.Planner = (*Drafter)(nil)

// New returns a drafter. The error names an option out of range.
func New(o Options) (*Drafter, error) {
	if o.Min == 0 {
		o.Min = 2
	}
	if o.Max == 0 {
		o.Max = max(o.Min, 4)
	}
	if o.Min < 1 || o.Max < o.Min || o.Max > maxMax {
		return nil, fmt.Errorf("ngram: matches of %d to %d tokens, want lengths from 1 to %d", o.Min, o.Max, maxMax)
	}
	return &Drafter{o: o}, nil
}

// Name is what a user calls it.
func (d *Drafter) Name() string { return "ngram" }

// Layout is empty: nothing is kept on the device.
func (d *Drafter) Layout() state.Layout { return state.Layout{} }

// Plan indexes what is new in each run and sets a source where there is a match. Its cost
// grows with the number of new tokens, not with the text.
func (d *Drafter) Plan(batch []spec.Run) {
	for i := range batch {
		r := &batch[i]
		r.Sources = 0
		if x := d.index(r); x.found.at > 0 && r.Depth > 0 {
			r.Sources = r.Sources.With(spec.Copy(x.found.match))
		}
	}
}

// Draft copies what followed the match, up to each run's depth. Runs without a match get no
// draft.
func (d *Drafter) Draft(batch []spec.Run) ([]spec.Draft, error) {
	for len(d.out) < len(batch) {
		d.out = append(d.out, spec.Draft{})
	}
	out := d.out[:len(batch)]
	for i := range batch {
		r := &batch[i]
		tokens := out[i].Tokens[:0]
		if x := d.index(r); x.found.at > 0 {
			// A copy that reaches the end of the text goes on with itself: a text that has
			// just begun to repeat is taken to repeat on.
			for j := x.found.at; len(tokens) < r.Depth; j++ {
				id := int32(0)
				if j < len(r.Text) {
					id = r.Text[j]
				} else {
					id = tokens[j-len(r.Text)]
				}
				if id < 0 {
					break
				}
				tokens = append(tokens, id)
			}
		}
		out[i].Tokens = tokens
	}
	return out, nil
}

// index brings a run's index up to its text.
func (d *Drafter) index(r *spec.Run) *index {
	x, ok := (*r.HostState).(*index)
	if !ok {
		x = new(index)
		*r.HostState = x
	}
	if x.end != len(r.Text) || !ok {
		if len(r.Text) < x.end {
			*x = index{}
		}
		prompt := min(r.Prompt, len(r.Text))
		x.prompt.extend(r.Text[:prompt], &d.o, 0)
		x.answer.extend(r.Text, &d.o, prompt)
		x.end = len(r.Text)
		if r.Dists {
			x.last = place{} // drafts that shape the text are a function of it alone
		}
		x.find(r.Text, &d.o)
	}
	return x
}

// index knows where the n-grams of a text stand.
type index struct {
	prompt, answer table
	end            int   // length of the text that is known
	found          place // of the match of the text's end; zero: no match
	last           place // of the last match that was found, when the text had lastEnd tokens
	lastEnd        int
}

// place is where the text may go on with a copy.
type place struct {
	at    int // of the token to copy first
	match int // tokens that are the same before it and before the text's end
}

// find looks for the text's last tokens. The longest match counts. Of equal ones, that at the place of the
// last copy comes first, then one in the prompt.
func (x *index) find(text []int32, o *Options) {
	x.found = x.follow(text, o)
	for _, t := range []*table{&x.prompt, &x.answer} {
		if p := t.find(text, o); p.match > x.found.match {
			x.found = p
		}
	}
	if x.found.at > 0 {
		x.last, x.lastEnd = x.found, len(text)
	}
}

// follow looks for the text's last tokens near the place of the last copy: an edit replaces a few
// tokens, adds some or leaves some out, and goes on copying.
func (x *index) follow(text []int32, o *Options) (best place) {
	if x.last.at == 0 {
		return best
	}
	next := x.last.at + len(text) - x.lastEnd // if no token was added or left out
	for d := 0; d <= window && best.match == 0; d++ {
		for _, at := range [...]int{next + d, next - d} {
			if at <= x.last.at || at >= len(text) || text[at] < 0 {
				continue
			}
			if n := matched(text, at); n >= o.Min && n > best.match {
				best = place{at, n}
			}
		}
	}
	return best
}

// matched is how many tokens, at most maxMatch, are the same before a place and before the text's end.
func matched(text []int32, at int) (n int) {
	for n < min(at, maxMatch) && text[at-n-1] >= 0 && text[at-n-1] == text[len(text)-n-1] {
		n++
	}
	return n
}

// table knows where in a part of a text each n-gram ended last. It stores places only and
// compares the text itself, so that a place lost or overwritten by another n-gram of the same
// hash costs a match but never makes a false one.
type table struct {
	slots []int32 // by hash: where the token after an n-gram stands; 0: nowhere
	end   int     // length of the text that is known
}

// extend adds every n-gram of the text that has a token after it, at place from or behind it, and is not yet
// known.
func (t *table) extend(text []int32, o *Options, from int) {
	if n := slotsFor((len(text) - from) * (o.Max - o.Min + 1)); n > len(t.slots) {
		t.slots, t.end = make([]int32, n), 0
	}
	for end := max(from, t.end, 1); end < len(text); end++ {
		if text[end] < 0 {
			continue // there would be nothing to copy
		}
		h := uint64(0)
		for n := 1; n <= min(o.Max, end); n++ {
			h = mix(h, text[end-n])
			if n >= o.Min {
				t.slots[t.slot(h)] = int32(end)
			}
		}
	}
	t.end = len(text)
}

// find is the latest place of the text's last tokens, of as many of them as there are in the table.
func (t *table) find(text []int32, o *Options) place {
	var hashes [maxMax + 1]uint64
	longest := 0
	for n := 1; n <= min(o.Max, len(text)) && text[len(text)-n] >= 0; n++ {
		hashes[n] = mix(hashes[n-1], text[len(text)-n])
		longest = n
	}
	for n := longest; n >= o.Min; n-- {
		at := int(t.slots[t.slot(hashes[n])])
		if at < n || at >= len(text) {
			continue
		}
		if m := matched(text, at); m >= n {
			return place{at, m}
		}
	}
	return place{}
}

// slot is the place of a hash; the number of slots is a power of two.
func (t *table) slot(h uint64) uint64 { return h >> 32 & uint64(len(t.slots)-1) }

// slotsFor is the number of slots that keeps an index of n-grams at most a third full.
func slotsFor(ngrams int) int {
	n := minSlots
	for n < maxSlots && n < 3*ngrams {
		n *= 2
	}
	return n
}

// mix continues a hash with one more token.
func mix(h uint64, id int32) uint64 {
	h = (h ^ uint64(uint32(id)) + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	return h ^ h>>29
}
