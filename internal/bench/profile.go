package bench

import (
	"cmp"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
)

// profile finds out where the time of passes goes on a device that queues its work. It comes last: states
// are of no use after it.
func (r *modelRun) profile(p backend.Profiler, out *ModelReport) error {
	r.say("profiling")
	if _, err := r.seq.Prefill(r.tokens(1), 1); err != nil { // a prompt may have taken the rows of the last pass
		return err
	}
	if r.m.Head() != nil {
		if _, err := r.timeDraft(); err != nil {
			return err
		}
		costs, err := p.Profile(r.o.Repeats)
		if err != nil {
			return err
		}
		out.DraftKernels, out.DraftShare = costs, kernelShares(costs, out.Draft.Seconds)
	}
	for i, rows := range r.o.Rows {
		// Rows of which all are wanted, and none is verified: what a profile leaves cannot be.
		if _, err := r.seq.Prefill(r.tokens(rows), rows); err != nil {
			return err
		}
		costs, err := p.Profile(r.o.Repeats)
		if err != nil {
			return err
		}
		out.Kernels, out.Shares[i] = append(out.Kernels, costs), kernelShares(costs, out.Passes[i].Seconds)
	}
	for i, n := range r.o.Prompts {
		if _, err := r.seq.Prefill(r.tokens(n), 1); err != nil {
			return err
		}
		costs, err := p.Profile(r.o.Repeats)
		if err != nil {
			return err
		}
		out.Prompts[i].Kernels, out.Prompts[i].Shares = costs, kernelShares(costs, out.Prompts[i].Seconds)
	}
	return nil
}

// kernelShares are the parts of a pass, kernels of one name together. One after another they take longer
// than the pass, in which they overlap: then their sum is the whole. Else the rest is "other".
func kernelShares(costs []backend.Cost, whole float64) []Share {
	sum, spent := 0.0, map[string]float64{}
	for _, c := range costs {
		name, _, _ := strings.Cut(c.Kernel, " ")
		spent[name] += c.Seconds
		sum += c.Seconds
	}
	whole = max(whole, sum)
	if whole == 0 {
		return nil
	}
	list := make([]Share, 0, len(spent)+1)
	for name, s := range spent {
		list = append(list, Share{name, s / whole})
	}
	list = append(list, Share{"other", (whole - sum) / whole})
	slices.SortFunc(list, func(a, b Share) int { return cmp.Or(cmp.Compare(b.Part, a.Part), strings.Compare(a.Op, b.Op)) })
	return list
}
