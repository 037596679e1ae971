package doctor

import (
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// Costs are what rounds take on this machine: of some measurements the lower quartile, since
// whatever else the machine does only makes them longer.
type Costs struct {
	Step float64 `json:"step_seconds"` // a pass over one token
	// Spread is how much longer than the lower quartile the upper one of such passes is, as a
	// factor: 1 on a machine that does nothing else.
	Spread float64   `json:"spread"`
	Beta   []float64 `json:"beta"`  // a pass over 1, 2, … rows, in steps
	Delta  []Drafts  `json:"delta"` // of the whole vocabulary first
}

// Drafts are what it takes to guess.
type Drafts struct {
	DraftVocab int       `json:"among"` // frequent tokens to guess among
	Cost       []float64 `json:"cost"`  // of 1, 2, … guesses, in steps
}

const (
	fewRepeats  = 3
	mostRepeats = 15
)

// bill is the measuring of costs: a sequence that is read on token by token.
type bill struct {
	*patient
	drafter        spec.Drafter
	target, memory *state.State
	notes          any
	sampler        *sample.Sampler
	source         []int32 // tokens to read, again and again
	text           []int32 // tokens read, and the next
	out            model.Output
}

// costs measures passes over up to rows rows, and guesses among each number of tokens.
// Those of different kinds take turns, so that a disturbance meets all of them.
func (p *patient) costs(source []int32, rows int, sizes []int, deadline time.Time) (*Costs, error) {
	b, err := p.newBill(source)
	if err != nil {
		return nil, err
	}
	defer b.close()
	passes := make([][]time.Duration, rows)
	drafts := make([][]time.Duration, len(sizes)*(rows-1))
	for n := range mostRepeats {
		if n >= fewRepeats && time.Now().After(deadline) {
			break
		}
		for r := range rows {
			took, err := b.pass(r)
			if err != nil {
				return nil, err
			}
			passes[r] = append(passes[r], took)
			if b.drafter == nil || r+1 == rows {
				continue
			}
			for i, size := range sizes {
				learned := b.memory.Len()
				took, err := b.guess(r+1, size)
				if err != nil {
					return nil, err
				}
				b.memory.Truncate(learned) // the next is to learn and guess the same
				drafts[i*(rows-1)+r] = append(drafts[i*(rows-1)+r], took)
			}
		}
	}
	c := &Costs{Step: quartiles(passes, 1)[0], Spread: quartile(passes[0], 3) / quartile(passes[0], 1)}
	c.Beta = quartiles(passes, c.Step)
	for i, size := range sizes {
		if b.drafter != nil {
			c.Delta = append(c.Delta, Drafts{DraftVocab: size, Cost: quartiles(drafts[i*(rows-1):(i+1)*(rows-1)], c.Step)})
		}
	}
	return c, nil
}

// newBill reads the source once, so that the caches are warm and the memory is not empty.
func (p *patient) newBill(source []int32) (*bill, error) {
	b := &bill{patient: p, drafter: p.m.Drafter(), source: source}
	var err error
	if b.sampler, err = sample.New(sample.Options{Vocab: p.vocab}, nil); err != nil {
		return nil, err
	}
	if b.target, err = p.pool.Open(p.m.Layout()); err != nil {
		return nil, err
	}
	if b.drafter != nil {
		if b.memory, err = p.pool.Open(b.drafter.Layout()); err != nil {
			b.close()
			return nil, err
		}
	}
	b.text = append(b.text, source[0])
	for range chunk {
		if _, err := b.pass(0); err != nil {
			b.close()
			return nil, err
		}
		if b.drafter == nil {
			continue
		}
		if _, err := b.guess(1, 0); err != nil {
			b.close()
			return nil, err
		}
	}
	return b, nil
}

func (b *bill) close() {
	for _, s := range []*state.State{b.target, b.memory} {
		if s != nil {
			s.Close()
		}
	}
}

// pass feeds the next token with so many guesses after it, checks them, and takes them back.
func (b *bill) pass(drafts int) (time.Duration, error) {
	at := len(b.text) - 1
	tokens := make([]int32, 1+drafts)
	for i := range tokens {
		tokens[i] = b.source[(at+i)%len(b.source)]
	}
	start := time.Now()
	out, err := b.forward([]model.Span{{State: b.target, Tokens: tokens, Drafts: drafts, Want: 1 + drafts}})
	if err != nil {
		return 0, err
	}
	spec.Exact.Verify(b.sampler, spec.Draft{Tokens: tokens[1:]}, out.Logits[0])
	took := time.Since(start)
	b.target.Commit(0)
	b.text = append(b.text, b.source[(at+1)%len(b.source)])
	b.out = out
	return took, nil
}

// guess makes so many guesses after the last pass among so many tokens, 0 for as many as
// before.
func (b *bill) guess(depth, draftVocab int) (time.Duration, error) {
	if list, ok := b.drafter.(spec.VocabLimiter); ok && draftVocab > 0 {
		list.LimitVocab(draftVocab)
	}
	start := time.Now()
	_, err := b.drafter.Draft([]spec.Run{{
		State: b.memory, HostState: &b.notes, Text: b.text, Hidden: b.out.Hidden.RowRange(0, 1), Depth: depth, Sampler: b.sampler,
	}})
	return time.Since(start), err
}

// quartiles are the lower quartiles of times of several kinds, in units of so many seconds.
// None costs less than the one before it: where it seems so the earlier one was disturbed.
func quartiles(kinds [][]time.Duration, unit float64) []float64 {
	costs := make([]float64, len(kinds))
	for i := len(kinds) - 1; i >= 0; i-- {
		costs[i] = quartile(kinds[i], 1) / unit
		if i+1 < len(kinds) {
			costs[i] = min(costs[i], costs[i+1])
		}
	}
	return costs
}

// quartile is the nth quartile of some times, in seconds.
func quartile(times []time.Duration, n int) float64 {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(len(sorted)*n/4, len(sorted)-1)].Seconds()
}
