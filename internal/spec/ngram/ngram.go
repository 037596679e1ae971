// Package ngram drafts by lookup: if the last tokens of a text occurred in it before, the draft is a copy of the tokens
// after that occurrence. It needs no model and takes microseconds. It helps texts that repeat their prompt or themselves,
// such as edits, code, quotations and tables. A negative id is not a token of text: no match includes it, and it is
// never copied.
package ngram

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// Options configure a Drafter. The zero value is the default.
type Options struct {
	Min int // minimum number of tokens that must be the same; 0: 2
	Max int // tokens of the longest n-gram in the index; 0: 4
}

// Limits of the lookup.
const (
	maxMax   = 16      // of Options.Max
	maxMatch = 64      // of the length of a match
	window   = 16      // tokens that an edit may add to a copy or leave out of it
	minSlots = 1 << 10 // of a new table
	maxSlots = 1 << 19 // 2 MiB per table; longer texts overwrite old places
)

// Drafter drafts by lookup. It belongs to one goroutine at a time.
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

// Name is the name in options and reports.
func (d *Drafter) Name() string { return "ngram" }

// Layout is empty: there is no state on the device.
func (d *Drafter) Layout() state.Layout { return state.Layout{} }

// Plan indexes the new tokens of each run and sets a source if there is a match. Its cost grows with the number of new
// tokens, not with the length of the text.
func (d *Drafter) Plan(batch []spec.Run) {
	for i := range batch {
		r := &batch[i]
		r.Sources = 0
		if x := d.index(r); x.found.at > 0 && r.Depth > 0 {
			r.Sources = r.Sources.With(spec.Copy(x.found.match))
		}
	}
}

// Draft copies the tokens after the match, up to the depth of each run. Runs without a match get no draft.
func (d *Drafter) Draft(batch []spec.Run) ([]spec.Draft, error) {
	for len(d.out) < len(batch) {
		d.out = append(d.out, spec.Draft{})
	}
	out := d.out[:len(batch)]
	for i := range batch {
		r := &batch[i]
		tokens := out[i].Tokens[:0]
		if x := d.index(r); x.found.at > 0 {
			// A copy that reaches the end of the text continues with its own tokens: the repetition is
			// expected to continue.
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

// index returns the index of a run, extended to its text.
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
			x.last = place{} // under the ratio rule drafts change the text, so they depend on the text alone
		}
		x.find(r.Text, &d.o)
	}
	return x
}

// index has the places of the n-grams of a text.
type index struct {
	prompt, answer table
	end            int   // length of the indexed text
	found          place // of the match of the text's end; zero: no match
	last           place // of the last copy: the last match of at least Options.Max tokens
	lastEnd        int   // length of the text when last was found
}

// place is a place in the text from which the next tokens can be copied.
type place struct {
	at    int // of the first token to copy
	match int // number of equal tokens before it and before the text's end
}

// find sets the longest match of the text's last tokens. Of equally long matches, one near the last copy is preferred,
// then one in the prompt. A short match does not replace the last copy: inside of a change, the text often has a few
// tokens in common with other places, and then returns to the copy.
func (x *index) find(text []int32, o *Options) {
	x.found = x.follow(text, o)
	for _, t := range []*table{&x.prompt, &x.answer} {
		if p := t.find(text, o); p.match > x.found.match {
			x.found = p
		}
	}
	if x.found.match >= o.Max {
		x.last, x.lastEnd = x.found, len(text)
	}
}

// follow looks for the text's last tokens near the last copy: an edit replaces, adds or leaves out a few tokens and then
// continues the copy.
func (x *index) follow(text []int32, o *Options) (best place) {
	if x.last.at == 0 {
		return best
	}
	next := x.last.at + len(text) - x.lastEnd // if the number of tokens did not change
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

// matched is the number of equal tokens before a place and before the text's end, at most maxMatch.
func matched(text []int32, at int) (n int) {
	for n < min(at, maxMatch) && text[at-n-1] >= 0 && text[at-n-1] == text[len(text)-n-1] {
		n++
	}
	return n
}

// table has the last place of each n-gram in a part of a text. It stores places only, and a lookup compares the text
// itself. So an n-gram that overwrites another one of the same hash can cost a match but never makes a false one.
type table struct {
	slots []int32 // by hash: the place after an n-gram; 0: none
	end   int     // length of the indexed text
}

// extend adds the n-grams of the text that are followed by a token at place from or later and are not indexed yet.
func (t *table) extend(text []int32, o *Options, from int) {
	if n := slotsFor((len(text) - from) * (o.Max - o.Min + 1)); n > len(t.slots) {
		t.slots, t.end = make([]int32, n), 0
	}
	for end := max(from, t.end, 1); end < len(text); end++ {
		if text[end] < 0 {
			continue // the copy would be empty
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

// find is the last place of the longest n-gram in the table that ends the text.
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

// slot is the slot of a hash. The number of slots is a power of two.
func (t *table) slot(h uint64) uint64 { return h >> 32 & uint64(len(t.slots)-1) }

// slotsFor is the number of slots for a table of n-grams that is at most a third full.
func slotsFor(ngrams int) int {
	n := minSlots
	for n < maxSlots && n < 3*ngrams {
		n *= 2
	}
	return n
}

// mix adds a token to a hash.
func mix(h uint64, id int32) uint64 {
	h = (h ^ uint64(uint32(id)) + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	return h ^ h>>29
}
