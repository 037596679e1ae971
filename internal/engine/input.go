package engine

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/picture"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/state"
)

// Input is a part of a prompt that is not text: an image, whose rows replace
// embedded tokens. The prefix cache identifies them by their hash, so that they are computed only if the
// model or its drafter has to be fed some of them.
type Input struct {
	// The place of the part in the prompt, the hash of its contents, and its positions, which must not
	// change before the request has ended. Text after it continues behind its last row: see
	// state.After.
	prefix.Input
	// Picture is the input of Options.Tower for the rows: N of them, from the First-th on. An image
	// that the tower fails at ends only its request.
	Image *picture.Patches
	First int
}

// inputs are the parts of a sequence's prompt that are no text.
type inputs struct {
	parts []part
	known []prefix.Input // of all parts
	width int            // of a row
}

// part is an image in a prompt.
type part struct {
	*Input
	first int        // position that those of its rows are counted from
	job   *visionJob // of its image, while it is needed
}

func (p *part) end() int { return p.At + p.N }

// at is the position of a slot in the part.
func (p *part) at(slot int) [3]int32 {
	if p.Positions == nil {
		return flat(p.first + slot - p.At)
	}
	x := p.Positions[slot-p.At]
	for axis := range x {
		x[axis] += int32(p.first)
	}
	return x
}

// after is the position of text behind the part.
func (p *part) after() int { return state.After(p.at(p.end() - 1)) }

// flat is a position of text.
func flat(n int) [3]int32 { return [3]int32{int32(n), int32(n), int32(n)} }

// newInputs checks a prompt, in which inputs have their place, against the model.
func newInputs(prompt []int32, list []Input, info model.Info) (x inputs, err error) {
	at, next := 0, 0
	x.width, list = info.Width, slices.Clone(list)
	for i := range list {
		p := part{Input: &list[i], first: next + list[i].At - at}
		switch {
		case p.At < at || p.N <= 0 || p.N > len(prompt)-p.At:
			return x, fmt.Errorf("engine: input %d has %d rows at %d, want at least one row within [%d, %d) of the prompt", i, p.N, p.At, at, len(prompt))
		case p.Positions != nil && len(p.Positions) != p.N:
			return x, fmt.Errorf("engine: input %d has %d rows and %d positions", i, p.N, len(p.Positions))
		case p.Image == nil || p.First < 0:
			return x, fmt.Errorf("engine: input %d has no source for its rows", i)
		}
		for _, at := range p.Positions {
			// Then no position is larger than its slot, and within the context.
			if min(at[0], at[1], at[2]) < 0 || int(max(at[0], at[1], at[2])) >= p.N {
				return x, fmt.Errorf("engine: input %d has a row at position %d, want coordinates from 0 to below %d", i, at, p.N)
			}
		}
		for _, id := range prompt[p.At:p.end()] {
			if id != model.NoToken {
				return x, fmt.Errorf("engine: prompt id %d at the position of input %d, want %d", id, i, model.NoToken)
			}
		}
		if err := checkIDs(prompt[at:p.At], info.Vocab); err != nil {
			return x, err
		}
		at, next = p.end(), p.after()
		x.parts, x.known = append(x.parts, p), append(x.known, p.Input.Input)
	}
	return x, checkIDs(prompt[at:], info.Vocab)
}

func checkIDs(ids []int32, vocab int) error {
	for _, id := range ids {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("engine: prompt id %d is outside of the vocabulary of %d", id, vocab)
		}
	}
	return nil
}

// need requests the rows in [from, to), and those of images that begin before soon, for a request. It reports whether the
// former are available.
func (x *inputs) need(q *visionQueue, salt prefix.Salt, priority, from, to, soon int) (ready bool, err error) {
	ready = true
	for i := range x.parts {
		p := &x.parts[i]
		if p.At >= max(to, soon) || p.end() <= from {
			continue
		}
		if p.job == nil {
			p.job = q.add(salt, priority, p.Image)
		}
		switch v := p.job; {
		case p.At >= to:
		case v.err != nil:
			return false, fmt.Errorf("engine: input %d: %w", i, v.err)
		case !v.done:
			ready = false
		case p.First+p.N > v.rows.Rows:
			return false, fmt.Errorf("engine: input %d: the tower computed %d rows, want %d", i, v.rows.Rows, p.First+p.N)
		default:
			if err := model.CheckRows(v.rows, v.rows.Rows, x.width); err != nil {
				return false, fmt.Errorf("engine: input %d: %w", i, err)
			}
		}
	}
	return ready, nil
}

// end is the length of the prompt up to the last part.
func (x *inputs) end() int {
	if len(x.parts) == 0 {
		return 0
	}
	return x.parts[len(x.parts)-1].end()
}

// close is done with the part.
func (p *part) close() {
	if p.job != nil {
		p.job.release()
		p.job = nil
	}
}

// rows are those in [from, to), which are available; At counts from from.
func (x *inputs) rows(from, to int) (list []backend.Input) {
	for i := range x.parts {
		p := &x.parts[i]
		if first, end := max(from, p.At), min(to, p.end()); first < end {
			list = append(list, backend.Input{At: first - from, Rows: p.job.rows.RowRange(p.First+first-p.At, p.First+end-p.At)})
		}
	}
	return list
}

// position is that of a slot.
func (x *inputs) position(slot int) [3]int32 {
	for i := len(x.parts) - 1; i >= 0; i-- {
		switch p := &x.parts[i]; {
		case slot >= p.end():
			return flat(p.after() + slot - p.end())
		case slot >= p.At:
			return p.at(slot)
		}
	}
	return flat(slot)
}

// positions are those of [from, to), nil if that is text that continues at next.
func (x *inputs) positions(from, to, next int) [][3]int32 {
	own := func(p part) bool { return p.Positions != nil && p.At < to && p.end() > from }
	if from == to || x.position(from) == flat(next) && !slices.ContainsFunc(x.parts, own) {
		return nil
	}
	list := make([][3]int32, 0, to-from)
	for slot := from; slot < to; slot++ {
		list = append(list, x.position(slot))
	}
	return list
}
