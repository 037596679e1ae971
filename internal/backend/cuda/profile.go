package cuda

import (
	"cmp"
	"errors"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
)

var _ backend.Profiler = (*Backend)(nil)

// errNoPass is that there is nothing to profile.
var errNoPass = errors.New("cuda: no recorded pass to profile: run a pass first, without other work in between")

// Profile runs the last pass as a graph with a mark after every operation. Between marks a kernel does not
// begin before the previous one has ended; the distance of two marks without a kernel between them is
// subtracted.
func (b *Backend) Profile(repeats int) ([]backend.Cost, error) {
	r := b.passes.Last
	if r == nil || b.passes.recording != nil || repeats < 1 {
		return nil, errNoPass
	}
	marks := make([]driver.Event, len(r.ops)+2) // two before the first operation
	defer func() {
		for _, e := range marks {
			if e != nil {
				b.fail(e.Close())
			}
		}
	}()
	for i := range marks {
		var err error
		if marks[i], err = b.dev.Event(); err != nil {
			return nil, err
		}
	}
	graph, err := b.stream.Capture(func() error {
		err := errors.Join(b.stream.Mark(marks[0]), b.stream.Mark(marks[1]))
		for i, op := range r.ops {
			op.launch.Dependent = false
			if err == nil {
				err = errors.Join(b.submit(op), b.stream.Mark(marks[i+2]))
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	defer func() { b.fail(graph.Close()) }()
	times := make([][]float64, len(r.ops)+1) // of each mark since the one before
	for range repeats + 1 {                  // the first does not count
		if err := errors.Join(graph.Launch(), b.wait()); err != nil {
			return nil, err
		}
		for i := range times {
			d, err := marks[i+1].Since(marks[i])
			if err != nil {
				return nil, err
			}
			times[i] = append(times[i], d.Seconds())
		}
	}
	middle := func(list []float64) float64 {
		list = slices.Sorted(slices.Values(list[1:]))
		return list[len(list)/2]
	}
	apart := middle(times[0])
	var costs []backend.Cost
	for i := range r.ops {
		what := r.ops[i].what
		at := slices.IndexFunc(costs, func(c backend.Cost) bool { return c.Kernel == what })
		if at < 0 {
			at = len(costs)
			costs = append(costs, backend.Cost{Kernel: what})
		}
		costs[at].Count++
		costs[at].Seconds += max(0, middle(times[i+1])-apart)
	}
	slices.SortStableFunc(costs, func(a, b backend.Cost) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return costs, nil
}
