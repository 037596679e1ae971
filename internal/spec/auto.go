package spec

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/state"
)

// auto drafts by the lookup or by the head, as the controller chooses for each run.
type auto struct {
	head   Drafter
	lookup Planner
	runs   []Run // the batch with the host states and depths of the head or of the lookup
	out    []Draft
}

// hostStates are the host states of the head and of the lookup for one sequence.
type hostStates struct{ head, lookup any }

// Auto joins a head and a lookup. The Source of each run says which of them drafts. The head catches up with all runs in
// every round. The lookup needs no memory on the device: Run.State is the state of the head.
func Auto(head Drafter, lookup Planner) Planner { return &auto{head: head, lookup: lookup} }

// Name is the name in options and reports.
func (a *auto) Name() string { return "auto" }

// Layout is the head's.
func (a *auto) Layout() state.Layout { return a.head.Layout() }

// Taps are the head's.
func (a *auto) Taps() []int { return TapsOf(a.head) }

// Rehearse is the head's: the lookup needs no device.
func (a *auto) Rehearse(p *state.Pool, hidden backend.Tensor, usual, runs int) error {
	if r, ok := a.head.(Rehearser); ok {
		return r.Rehearse(p, hidden, usual, runs)
	}
	return nil
}

// Plan sets the sources of each run: the head, and the lookup if it has a match.
func (a *auto) Plan(batch []Run) {
	a.view(batch, func(r *Run, n *hostStates) { r.HostState = &n.lookup })
	a.lookup.Plan(a.runs)
	for i := range batch {
		batch[i].Sources = a.runs[i].Sources.With(Computed)
	}
}

// Draft has the head catch up with all runs. Runs whose Source is Computed get drafts of the head, all other runs get
// copies.
func (a *auto) Draft(batch []Run) ([]Draft, error) {
	a.out = a.out[:0]
	copies := false
	a.view(batch, func(r *Run, n *hostStates) {
		r.HostState = &n.head
		if r.Source != Computed {
			copies = copies || r.Depth > 0
			r.Depth = 0
		}
	})
	drafts, err := a.head.Draft(a.runs)
	if err != nil {
		return nil, err
	}
	a.out = append(a.out, drafts...)
	if !copies {
		return a.out, nil
	}
	a.view(batch, func(r *Run, n *hostStates) {
		r.HostState = &n.lookup
		if r.Source == Computed {
			r.Depth = 0
		}
	})
	if drafts, err = a.lookup.Draft(a.runs); err != nil {
		return nil, err
	}
	for i := range batch {
		if batch[i].Source != Computed {
			a.out[i] = drafts[i]
		}
	}
	return a.out, nil
}

// view copies the batch to a.runs and applies change to each copy.
func (a *auto) view(batch []Run, change func(r *Run, n *hostStates)) {
	a.runs = append(a.runs[:0], batch...)
	for i := range a.runs {
		n, ok := (*batch[i].HostState).(*hostStates)
		if !ok {
			n = new(hostStates)
			*batch[i].HostState = n
		}
		change(&a.runs[i], n)
	}
}
