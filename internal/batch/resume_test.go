package batch

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestBatchResumesAfterAnyFailure turns the machine off at every call of the store, before and after
// the call has its effect, and starts it again with an empty queue: the output is always that of a
// run without failures, and no line that has a result is computed again.
func TestBatchResumesAfterAnyFailure(t *testing.T) {
	const lines = 5
	dir, c := t.TempDir(), newClock()
	began := c.at.Load()
	undisturbed := newSite(t, lazyFolder(t, dir), c)
	b := undisturbed.submit(t, file(lines))
	undisturbed.finish(t, b.ID)
	want, wantFailed := answers(undisturbed, t, b)
	failures := 0
	for at := 1; ; at++ {
		ended := true
		for _, after := range []bool{false, true} {
			folder := lazyFolder(t, t.TempDir())
			c.at.Store(began)
			first := newSite(t, folder, c)
			b := first.submit(t, file(lines))
			f := &flaky{Store: folder, at: at, after: after}
			first.store, first.o.Store = f, f
			_ = first.Step(t.Context()) // until the machine is off
			first.workOnce(t)
			_ = first.Step(t.Context())
			if f.calls >= at {
				ended, failures = false, failures+1
			}
			second := newSite(t, folder, c)
			second.finish(t, b.ID)
			got, failed := answers(second, t, b)
			if got != want || failed != wantFailed {
				t.Fatalf("turned off at call %d (after it: %v):\n%q\n%q\nwant\n%q\n%q", at, after, got, failed, want, wantFailed)
			}
			if n := first.calls.Load() + second.calls.Load(); n > 4+3 {
				t.Errorf("turned off at call %d: %d computations of 4 lines, 3 at a time", at, n)
			}
		}
		if ended {
			break
		}
	}
	if failures < 50 {
		t.Errorf("only %d failures were tried", failures)
	}
}

// workOnce runs the queued lines once and ignores errors.
func (x *site) workOnce(t *testing.T) {
	m := x.queue.(*Memory)
	w := &Worker{Store: x.store, Queue: x.queue, Model: "fingerprint of ", Run: x.run, Log: x.o.Log}
	m.mu.Lock()
	waiting := len(m.models[w.Model])
	m.mu.Unlock()
	if waiting == 0 {
		return
	}
	list, err := x.queue.Fetch(t.Context(), w.Model, waiting)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		if f, ok := x.store.(*flaky); ok && f.calls >= f.at {
			return // it would compute without a machine
		}
		w.handle(t.Context(), d, Call{})
	}
}

// finish runs a batch to its end.
func (x *site) finish(t *testing.T, id string) {
	t.Helper()
	for range 4 {
		x.step(t)
		x.work(t, "")
		x.clock.advance(reconcileEvery)
	}
	if b := x.status(t, id); b.Status != Completed {
		t.Fatalf("%s, %+v", b.Status, b.Counts)
	}
}

// answers are the files of a batch.
func answers(x *site, t *testing.T, b Batch) (output, failed string) {
	t.Helper()
	b = x.status(t, b.ID)
	return x.content(t, b.Output), x.content(t, b.ErrorFile)
}

// TestRecordEventsLeadToAnEnd plays random events: states follow the protocol, times do not go back,
// and a final status stays.
func TestRecordEventsLeadToAnEnd(t *testing.T) {
	follows := map[Status][]Status{
		Validating: {InProgress, Failed, Cancelling, Finalizing}, InProgress: {Finalizing, Cancelling},
		Finalizing: {Completed, Expired}, Cancelling: {Cancelled},
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		now := int64(1000)
		r := Record{Batch: Batch{Status: Validating, CreatedAt: Seconds(now)}}
		for range 12 {
			now += random.Int64N(20) - 5 // clocks go back
			before := r
			after, ok := r.After(Event(random.IntN(int(Written)+1)), time.Unix(now, 0))
			if r = after; !ok {
				if r.Status != before.Status || r.latest() != before.latest() {
					t.Fatalf("an event that cannot happen made %+v of %+v", r, before)
				}
				continue
			}
			if !slices.Contains(follows[before.Status], r.Status) || *r.time(r.Status) < before.latest() || r.latest() != *r.time(r.Status) {
				t.Fatalf("%+v came after %+v", r, before)
			}
			if r.Status == Expired && before.Ending != Expired || r.Status == Cancelled && before.Status != Cancelling {
				t.Fatalf("%+v came after %+v", r, before)
			}
		}
		for _, e := range []Event{Cancel, Written} {
			if after, ok := r.After(e, time.Unix(now, 0)); ok {
				r = after
			}
		}
		if !r.Status.Over() {
			t.Fatalf("%+v does not end", r)
		}
	}
}
