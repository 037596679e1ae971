package cpu

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// counts marks every part it was given.
type counts struct{ seen []atomic.Int32 }

func (c *counts) part(_, from, to int) {
	for i := from; i < to; i++ {
		c.seen[i].Add(1)
	}
}

func TestPoolRunsEveryPartOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 8} {
		p := enlist(threads)
		for n := range 50 {
			for _, grain := range []int{1, 7} {
				c := &counts{seen: make([]atomic.Int32, n)}
				p.run(c, n, grain)
				for i := range c.seen {
					if k := c.seen[i].Load(); k != 1 {
						t.Fatalf("%d threads, part %d of %d ran %d times", threads, i, n, k)
					}
				}
			}
		}
		p.dismiss()
	}
}

// TestPoolSleeps checks that helpers go to sleep when there is nothing to do, and wake up.
func TestPoolSleeps(t *testing.T) {
	p := enlist(3)
	defer p.dismiss()
	for range 3 {
		deadline := time.Now().Add(20 * time.Second)
		for !p.helpers[0].asleep.Load() || !p.helpers[1].asleep.Load() {
			if time.Now().After(deadline) {
				t.Fatal("an idle pool keeps spinning")
			}
			time.Sleep(time.Millisecond)
		}
		c := &counts{seen: make([]atomic.Int32, 9)}
		p.run(c, 9, 1)
		for i := range c.seen {
			if c.seen[i].Load() != 1 {
				t.Fatalf("part %d did not run once after sleeping", i)
			}
		}
	}
}

// panics is a task one part of which fails.
type panics struct{ at int }

func (p panics) part(_, from, to int) {
	if from <= p.at && p.at < to {
		panic("part failed")
	}
}

// TestPoolRaisesPanics checks that a failing part reaches the caller, and that the pool
// still works afterwards.
func TestPoolRaisesPanics(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		p := enlist(threads)
		for at := range 10 {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%d threads: part %d failed without notice", threads, at)
					}
				}()
				p.run(panics{at}, 10, 1)
			}()
			p.run(panics{-1}, 10, 1)
		}
		p.dismiss()
	}
}

func BenchmarkPool(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			p := enlist(threads)
			defer p.dismiss()
			t := panics{-1}
			var task task = t
			for b.Loop() {
				p.run(task, 2, 1)
			}
		})
	}
}
