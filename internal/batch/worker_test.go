package batch

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// slowDelivery is a delivery whose Working takes a while, and the calls in the order of
// arrival.
type slowDelivery struct {
	Delivery
	calls []string
}

func (d *slowDelivery) Working() error {
	time.Sleep(workingEvery / 2)
	d.calls = append(d.calls, "working")
	return d.Delivery.Working()
}

func (d *slowDelivery) Done() error {
	d.calls = append(d.calls, "done")
	return d.Delivery.Done()
}

// TestQueueHearsNothingAfterDone ends a line while the queue is told that it is being worked on:
// that call must arrive first, because the queue forgets finished lines.
func TestQueueHearsNothingAfterDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSite(t, lazyFolder(t, t.TempDir()), newClock())
		x.submit(t, request("a", `{"messages":[1]}`)+"\n")
		x.step(t)
		w := &Worker{Store: x.store, Queue: x.queue, Model: "fingerprint of ", Log: slog.New(slog.DiscardHandler)}
		w.Run = func(ctx context.Context, c Call, endpoint string, request []byte) (*Result, error) {
			time.Sleep(workingEvery + workingEvery/4)
			return x.run(ctx, c, endpoint, request)
		}
		list, err := x.queue.Fetch(t.Context(), w.Model, 1)
		if err != nil {
			t.Fatal(err)
		}
		d := &slowDelivery{Delivery: list[0]}
		w.handle(t.Context(), d, Call{})
		time.Sleep(workingEvery)
		synctest.Wait()
		if want := []string{"working", "done"}; !slices.Equal(d.calls, want) {
			t.Errorf("the queue was told %v, want %v", d.calls, want)
		}
	})
}
