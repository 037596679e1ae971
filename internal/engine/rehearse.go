package engine

import (
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
)

// maxRehearsed is up to how many rows of rounds without prompts a device prepares for.
const maxRehearsed = 48

// rehearse lets a device prepare for rounds before they come, if it can. The number of rows of rounds with drafts
// differs from one to the next, and a round that the device has to prepare for is slow and not typical.
// Without memory for that, rounds are prepared for when they come.
func (e *Engine) rehearse() error {
	device, ok := e.pool.Device().(backend.Rehearser)
	if !ok || !e.o.Rehearse {
		return nil
	}
	var err error
	for range 3 { // memory that grows drops what was prepared before
		before := device.Prepared()
		err = device.Rehearse(e.rehearseRounds)
		if err != nil || device.Prepared() == before {
			break
		}
	}
	if backend.Lost(err) {
		return err
	}
	return nil
}

// rehearseRounds makes the calls of rounds, the longest first.
func (e *Engine) rehearseRounds() error {
	usual := e.o.MaxBatch
	if e.o.Drafter != nil {
		usual *= 1 + spec.MaxDepth
	}
	usual = min(usual, maxRehearsed, e.o.RoundTokens)
	tokens := make([]int32, max(min(e.o.RoundTokens, e.o.Context), usual))
	longest := min(1+e.longest(), e.o.RoundTokens, len(tokens))
	// The first pass has the most rows, with logits and without: no later one makes the memory of its output grow, which drafters
	// read in the end.
	out, err := e.rehearsePass(tokens, len(tokens), max(usual, longest))
	for n := usual; n > 0 && err == nil; n-- {
		_, err = e.rehearsePass(tokens[:n], 1+spec.MaxDepth, n)
	}
	for n := longest; n > 1+spec.MaxDepth && err == nil; n-- {
		_, err = e.rehearsePass(tokens[:n], n, n)
	}
	for k := range e.drafting.parts {
		p := &e.drafting.parts[k]
		if d, ok := p.Drafter.(spec.Rehearser); ok && err == nil {
			err = d.Rehearse(e.pool, p.rows(out), usual, e.o.MaxBatch)
		}
	}
	return err
}

// longest is the maximum number of drafts that one sequence may have.
func (e *Engine) longest() int {
	n := max(spec.MaxDepth, slices.Max(e.drafting.controller.Blocks[:]))
	for k := range e.drafting.parts {
		if _, ok := e.drafting.parts[k].Drafter.(spec.Planner); ok {
			n = spec.MaxCopy
		}
	}
	return n
}

// rehearsePass feeds tokens to new sequences, at most each tokens per sequence.
func (e *Engine) rehearsePass(tokens []int32, each, want int) (out model.Output, err error) {
	defer caught(&err)
	var spans []model.Span
	for list := range slices.Chunk(tokens, each) {
		s, err := e.pool.Open(e.model.Layout())
		if err != nil {
			return out, err
		}
		defer s.Close()
		spans = append(spans, model.Span{State: s, Tokens: list, Want: min(want, len(list))})
	}
	return e.model.Forward(spans)
}
