//go:build long

package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/batch/batchtest"
	"github.com/foretoken/foretoken/internal/batch/jetstream"
	"github.com/foretoken/foretoken/internal/batch/jetstream/natstest"
)

const (
	// clusterLines is how many lines a cluster works on while its nodes are killed.
	clusterLines = 3000
	// clusterTime is the limit for all tests, below the default limit of a test program: a cluster that
	// does not get ready on a busy machine is reported as such, not as a hanging test.
	clusterTime = 8 * time.Minute
)

// dial connects to a cluster that is about to find itself.
func dial(ctx context.Context, t *testing.T, servers []string) *jetstream.Conn {
	t.Helper()
	for {
		c, err := jetstream.Dial(ctx, jetstream.Options{Servers: servers, AckWait: 5 * time.Second})
		if err == nil {
			t.Cleanup(c.Close)
			return c
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("the cluster did not get ready: %v", err)
		}
	}
}

// Three nodes, and one is killed while lines are worked on, and comes back: every result is there.
func TestClusterLosesANode(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), clusterTime)
	defer cancel()
	nodes, servers := natstest.Cluster(t, 3)
	c := dial(ctx, t, servers)
	q := c.Queue()
	s, err := c.Store(ctx, t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	checkCluster(ctx, t, c, s)
	lines, list := clusterLines, hints(clusterLines)
	var all sync.WaitGroup
	stop, stopWorkers := context.WithCancel(ctx)
	for range 4 {
		all.Go(func() { work(stop, q, s) })
	}
	for i := range lines { // a cluster without a leader refuses for a moment
		for err := q.Publish(ctx, list[i:i+1]); err != nil && ctx.Err() == nil; err = q.Publish(ctx, list[i:i+1]) {
			time.Sleep(50 * time.Millisecond)
		}
		switch i {
		case lines / 3:
			nodes[0].Kill(t)
		case 2 * lines / 3:
			nodes[0].Start(t)
		}
	}
	for count(ctx, s) < lines && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	stopWorkers()
	all.Wait()
	if n := count(t.Context(), s); n != lines {
		t.Errorf("%d results, want %d: %v", n, lines, ctx.Err())
	}
}

// work stores a result for each hint.
func work(ctx context.Context, q batch.Queue, s batch.Store) {
	for ctx.Err() == nil {
		list, err := q.Fetch(ctx, "m", 4)
		if err != nil {
			time.Sleep(20 * time.Millisecond)
		}
		for _, d := range list {
			err := s.Create(ctx, fmt.Sprintf("results/b/%d", d.Hint().Line), strings.NewReader(fmt.Sprint(d.Hint().Line)))
			if err == nil || errors.Is(err, batch.ErrExists) {
				_ = d.Done() // else it comes again, and is found
			}
		}
	}
}

// count is how many results there are.
func count(ctx context.Context, s batch.Store) (n int) {
	for _, err := range s.List(ctx, "results/b/") {
		if err == nil {
			n++
		}
	}
	return n
}

// checkCluster runs the checks that every store and queue passes, on one of three copies.
func checkCluster(ctx context.Context, t *testing.T, c *jetstream.Conn, s batch.Store) {
	t.Helper()
	for _, x := range batchtest.StoreChecks {
		if err := x.Check(ctx, s); err != nil {
			t.Errorf("%s: %v", x.Name, err)
		}
		if err := jetstream.EraseState(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range batchtest.QueueChecks {
		if x.Name != "KeepsModelsApart" && x.Name != "TakesAnyName" {
			continue // their hints equal those of this test and would be left out
		}
		if err := x.Check(ctx, c.Queue()); err != nil {
			t.Errorf("%s: %v", x.Name, err)
		}
	}
}
