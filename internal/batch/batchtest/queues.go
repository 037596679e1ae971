package batchtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/batch"
)

// QueueCheck is one property of queues.
type QueueCheck struct {
	Name  string
	Check func(context.Context, batch.Queue) error
}

// QueueChecks are the properties of queues. Each needs an empty queue.
var QueueChecks = []QueueCheck{
	{"GivesOutInOrder", givesOutInOrder},
	{"KeepsModelsApart", keepsModelsApart},
	{"WaitsForHints", waitsForHints},
	{"KnowsWhatIsOutstanding", knowsWhatIsOutstanding},
	{"DropsOneBatch", dropsOneBatch},
	{"ComesBackLater", comesBackLater},
	{"TakesBack", takesBack},
	{"EachHintHasOneWorker", eachHintHasOneWorker},
	{"TakesAnyName", takesAnyName},
}

// Queues runs the checks, each with a new queue.
func Queues(t *testing.T, open func(*testing.T) batch.Queue) {
	for _, c := range QueueChecks {
		t.Run(c.Name, func(t *testing.T) {
			q := open(t)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := c.Check(ctx, q); err != nil {
				t.Error(err)
			}
		})
	}
}

// hints are those of the lines [from, to] of a batch.
func hints(model, name string, from, to int) []batch.Hint {
	var list []batch.Hint
	for line := from; line <= to; line++ {
		list = append(list, batch.Hint{Batch: name, Model: model, File: "content/" + name, Line: line, Offset: int64(line) << 33, Length: int64(line)})
	}
	return list
}

// fetch fetches exactly n hints.
func fetch(ctx context.Context, q batch.Queue, model string, n int) (list []batch.Delivery, err error) {
	for len(list) < n {
		got, err := q.Fetch(ctx, model, n-len(list))
		if err != nil {
			return list, fmt.Errorf("%d hints of %d: %w", len(list), n, err)
		}
		if len(got) == 0 || len(got) > n-len(list) {
			return list, fmt.Errorf("%d hints at a time, want 1 to %d", len(got), n-len(list))
		}
		list = append(list, got...)
	}
	return list, nil
}

// none fails if there is a hint besides one that it publishes last.
func none(ctx context.Context, q batch.Queue, model string) error {
	last := hints(model, "last", 1, 1)
	if err := q.Publish(ctx, last); err != nil {
		return err
	}
	got, err := fetch(ctx, q, model, 1)
	if err != nil {
		return err
	}
	if got[0].Hint() != last[0] {
		return fmt.Errorf("there is %+v, want nothing", got[0].Hint())
	}
	return got[0].Done()
}

// outstanding waits until a batch has wanted hints: a queue may count finished hints late.
func outstanding(ctx context.Context, q batch.Queue, model, name string, wanted int) error {
	ctx, cancel := context.WithTimeout(ctx, patience/4)
	defer cancel()
	for {
		n, err := q.Outstanding(ctx, model, name)
		if n == wanted || err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d outstanding in %s, want %d", n, name, wanted)
		}
	}
}

// exactly fails unless a batch has wanted hints now.
func exactly(ctx context.Context, q batch.Queue, model, name string, wanted int) error {
	n, err := q.Outstanding(ctx, model, name)
	if err == nil && n != wanted {
		err = fmt.Errorf("%d outstanding in %s, want %d", n, name, wanted)
	}
	return err
}

func givesOutInOrder(ctx context.Context, q batch.Queue) error {
	all := hints("m", "b", 1, 300)
	if err := errors.Join(q.Publish(ctx, all[:7]), q.Publish(ctx, all[7:]), q.Publish(ctx, nil)); err != nil {
		return err
	}
	for i := 0; i < len(all); {
		got, err := fetch(ctx, q, "m", min(1+i%13, len(all)-i))
		if err != nil {
			return err
		}
		for _, d := range got {
			if d.Hint() != all[i] || d.Attempts() != 1 {
				return fmt.Errorf("hint %+v, attempt %d, want %+v", d.Hint(), d.Attempts(), all[i])
			}
			if err := errors.Join(d.Working(), d.Done()); err != nil {
				return err
			}
			i++
		}
	}
	return errors.Join(outstanding(ctx, q, "m", "b", 0), none(ctx, q, "m"))
}

func keepsModelsApart(ctx context.Context, q batch.Queue) error {
	a, b := hints("model-a", "one", 1, 3), hints("model-b", "two", 1, 3)
	for i := range a {
		if err := q.Publish(ctx, []batch.Hint{b[i], a[i]}); err != nil {
			return err
		}
	}
	for _, wanted := range [][]batch.Hint{a, b} {
		got, err := fetch(ctx, q, wanted[0].Model, 3)
		if err != nil {
			return err
		}
		for i, d := range got {
			if d.Hint() != wanted[i] {
				return fmt.Errorf("hint %+v, want %+v", d.Hint(), wanted[i])
			}
		}
	}
	return nil
}

func waitsForHints(ctx context.Context, q batch.Queue) error {
	asked, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := q.Fetch(asked, "m", 1)
		ended <- err
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("an empty queue gave something: %w", err)
	case <-time.After(20 * time.Millisecond): // it may also begin later: nothing depends on it
	}
	cancel()
	if err := wantError("a canceled request", <-ended, context.Canceled); err != nil {
		return err
	}
	go func() {
		got, err := q.Fetch(ctx, "m", 5)
		if err == nil && got[0].Hint().Line != 1 {
			err = fmt.Errorf("line %d, want 1", got[0].Hint().Line)
		}
		ended <- err
	}()
	if err := q.Publish(ctx, hints("m", "b", 1, 2)); err != nil {
		return err
	}
	return <-ended
}

func knowsWhatIsOutstanding(ctx context.Context, q batch.Queue) error {
	err := errors.Join(exactly(ctx, q, "m", "b", 0), q.Publish(ctx, hints("m", "b", 1, 5)), q.Publish(ctx, hints("m", "other", 1, 2)), exactly(ctx, q, "m", "b", 5))
	if err != nil {
		return err
	}
	got, err := fetch(ctx, q, "m", 7)
	if err != nil {
		return err
	}
	if err := exactly(ctx, q, "m", "b", 5); err != nil {
		return fmt.Errorf("what a worker has: %w", err)
	}
	for i, d := range got {
		if err := outstanding(ctx, q, "m", "b", max(0, 5-i)); err != nil {
			return err
		}
		if err := d.Done(); err != nil {
			return err
		}
	}
	return errors.Join(outstanding(ctx, q, "m", "b", 0), outstanding(ctx, q, "m", "other", 0))
}

func dropsOneBatch(ctx context.Context, q batch.Queue) error {
	err := errors.Join(q.Publish(ctx, hints("m", "b", 1, 4)), q.Publish(ctx, hints("m", "kept", 1, 2)), q.Publish(ctx, hints("m", "b", 5, 6)))
	if err != nil {
		return err
	}
	had, err := fetch(ctx, q, "m", 1)
	if err != nil {
		return err
	}
	err = errors.Join(q.Drop(ctx, "m", "b"), q.Drop(ctx, "m", "none"), exactly(ctx, q, "m", "b", 0), exactly(ctx, q, "m", "kept", 2))
	if err != nil {
		return err
	}
	_ = had[0].Done() // the worker of a dropped batch may not know; the queue may return an error
	got, err := fetch(ctx, q, "m", 2)
	if err != nil {
		return err
	}
	for _, d := range got {
		if d.Hint().Batch != "kept" {
			return fmt.Errorf("%s was dropped", d.Hint().Batch)
		}
	}
	return none(ctx, q, "m")
}

func comesBackLater(ctx context.Context, q batch.Queue) error {
	if err := q.Publish(ctx, hints("m", "b", 1, 1)); err != nil {
		return err
	}
	for attempt := 1; attempt <= 4; attempt++ {
		got, err := fetch(ctx, q, "m", 1)
		if err != nil {
			return err
		}
		if got[0].Hint() != hints("m", "b", 1, 1)[0] || got[0].Attempts() != attempt {
			return fmt.Errorf("hint %+v, attempt %d, want attempt %d", got[0].Hint(), got[0].Attempts(), attempt)
		}
		if err := outstanding(ctx, q, "m", "b", 1); err != nil {
			return err
		}
		if err := got[0].Later(time.Duration(attempt-1) * time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// takesBack returns a hint more often than the maximum number of attempts, after one attempt.
func takesBack(ctx context.Context, q batch.Queue) error {
	if err := q.Publish(ctx, hints("m", "b", 1, 1)); err != nil {
		return err
	}
	for i, attempt := range []int{1, 2, 2, 2, 2, 2, 2, 3} {
		got, err := fetch(ctx, q, "m", 1)
		if err != nil {
			return err
		}
		if got[0].Hint() != hints("m", "b", 1, 1)[0] || got[0].Attempts() != attempt {
			return fmt.Errorf("hint %+v, attempt %d, want attempt %d", got[0].Hint(), got[0].Attempts(), attempt)
		}
		if i == 0 || i == 6 {
			err = got[0].Later(0)
		} else {
			err = got[0].Return()
		}
		if err = errors.Join(err, outstanding(ctx, q, "m", "b", 1)); err != nil {
			return err
		}
	}
	return nil
}

func eachHintHasOneWorker(ctx context.Context, q batch.Queue) error {
	const workers, lines = 4, 200
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // protects seen
	var seen []int
	errs := make([]error, workers)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			for {
				got, err := q.Fetch(ctx, "m", 1+i)
				if err != nil {
					if ctx.Err() == nil {
						errs[i] = err
					}
					return
				}
				for _, d := range got {
					mu.Lock()
					seen = append(seen, d.Hint().Line)
					mu.Unlock()
					errs[i] = errors.Join(errs[i], d.Done())
				}
			}
		})
	}
	err := q.Publish(ctx, hints("m", "b", 1, lines))
	if err == nil {
		err = outstanding(ctx, q, "m", "b", 0)
	}
	cancel()
	all.Wait()
	slices.Sort(seen)
	if len(seen) != lines || len(slices.Compact(seen)) != lines {
		err = errors.Join(err, fmt.Errorf("%d hints were delivered, want %d", len(seen), lines))
	}
	return errors.Join(append(errs, err)...)
}

func takesAnyName(ctx context.Context, q batch.Queue) error {
	names := []string{"a.b", "a*", ">", "a b", "a=b", "a", "=", "ä/ö"}
	for _, name := range names {
		if err := q.Publish(ctx, hints(name, name, 1, 2)); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	for _, name := range names {
		if err := outstanding(ctx, q, name, name, 2); err != nil {
			return err
		}
		got, err := fetch(ctx, q, name, 2)
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		if got[0].Hint().Batch != name || got[1].Hint().Batch != name {
			return fmt.Errorf("hints of %q for %q", got[0].Hint().Batch, name)
		}
	}
	return nil
}

// Silence checks queues that reassign the hints of a silent worker after a while.
func Silence(ctx context.Context, q batch.Queue, while time.Duration) error {
	if err := q.Publish(ctx, hints("m", "b", 1, 1)); err != nil {
		return err
	}
	first, err := fetch(ctx, q, "m", 1)
	if err != nil {
		return err
	}
	heard, longest := time.Now(), time.Duration(0)
	next := make(chan error, 1)
	var second []batch.Delivery
	go func() {
		var err error
		second, err = fetch(ctx, q, "m", 1)
		next <- err
	}()
	// As long as it is renewed, it stays: unless this process was suspended.
	for began := time.Now(); time.Since(began) < 2*while; {
		select {
		case err := <-next:
			if longest = max(longest, time.Since(heard)); longest < while/2 {
				return fmt.Errorf("a hint was given to another worker, though it was heard of every %v of %v: %w", longest, while, err)
			}
			return nil // the machine is too busy to tell
		case <-time.After(while / 20):
		}
		if err := errors.Join(first[0].Working(), exactly(ctx, q, "m", "b", 1)); err != nil { // an answer: the queue has heard of it
			return err
		}
		longest, heard = max(longest, time.Since(heard)), time.Now()
	}
	if err := <-next; err != nil {
		return fmt.Errorf("no worker got the hint of a silent one: %w", err)
	}
	if second[0].Attempts() < 2 || second[0].Hint() != first[0].Hint() {
		return fmt.Errorf("hint %+v, attempt %d, want the second", second[0].Hint(), second[0].Attempts())
	}
	return errors.Join(second[0].Done(), outstanding(ctx, q, "m", "b", 0))
}
