package batch

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"
)

// refusing is a queue that is full for a while.
type refusing struct {
	*Memory
	times int
}

func (q *refusing) Publish(ctx context.Context, hints []Hint) error {
	if q.times > 0 {
		q.times--
		return errors.Join(q.Memory.Publish(ctx, hints[:len(hints)/2]), ErrFull)
	}
	return q.Memory.Publish(ctx, hints)
}

// The hints of a large batch are published in parts: other batches are looked at between them, a
// queue that refuses one gets it again, and a batch can be canceled before all are there.
func TestCoordinatorPublishesInParts(t *testing.T) {
	const lines = 2*maxPublish + 10
	var content strings.Builder
	for i := range lines {
		fmt.Fprintln(&content, request(fmt.Sprint(i), "{}"))
	}
	x := newSite(t, lazyFolder(t, t.TempDir()), newClock())
	queue := &refusing{x.queue.(*Memory), 1}
	x.o.Queue = queue
	b := x.submit(t, content.String())
	small := x.submit(t, file(2))
	outstanding := func(id string) int {
		n, err := queue.Outstanding(t.Context(), "", id)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := x.Step(t.Context()); !errors.Is(err, ErrFull) || outstanding(b.ID) != maxPublish/2 || outstanding(small.ID) != 2 {
		t.Errorf("a full queue has %d hints and %d of the other batch: %v", outstanding(b.ID), outstanding(small.ID), err)
	}
	for _, want := range []int{maxPublish, 2 * maxPublish, lines, lines} {
		x.step(t)
		if n := outstanding(b.ID); n != want {
			t.Errorf("%d hints, want %d", n, want)
		}
	}
	other := x.submit(t, content.String())
	x.step(t)
	if _, err := x.Cancel(t.Context(), "me", other.ID); err != nil {
		t.Fatal(err)
	}
	x.step(t)
	if n := outstanding(other.ID); n != 0 || x.status(t, other.ID).Status != Cancelled {
		t.Errorf("%d hints of a batch that is %s", n, x.status(t, other.ID).Status)
	}
}

// listing counts the lists of results.
type listing struct {
	Store
	lists int
}

func (s *listing) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	if strings.HasPrefix(prefix, "results/batch") {
		s.lists++
	}
	return s.Store.List(ctx, prefix)
}

// Results that take long to list are looked for less often, but for the last one of a worker here.
func TestCoordinatorListsLessOftenWhatTakesLong(t *testing.T) {
	x := newSite(t, lazyFolder(t, t.TempDir()), newClock())
	s := &listing{Store: x.store}
	x.o.Store = s
	b := x.submit(t, file(2))
	poll := func(want int) {
		t.Helper()
		s.lists = 0
		if err := x.Coordinator.step(t.Context(), false); err != nil || s.lists != want {
			t.Errorf("%d lists, want %d: %v", s.lists, want, err)
		}
	}
	poll(1)
	known := x.tally(b.ID)
	known.took = time.Hour
	poll(0)
	known.took = 0
	poll(1)
	known.took = time.Hour
	x.Stored(b.ID)
	poll(0)
	x.work(t, "")
	x.Stored(b.ID)
	poll(3) // to find all results, to count their tokens, and to remove them
	if b = x.status(t, b.ID); b.Status != Completed {
		t.Errorf("%s, %+v", b.Status, b.Counts)
	}
}
