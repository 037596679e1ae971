package cpu

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
		p := usePool(threads)
		for n := range 50 {
			for _, grain := range []int{1, 7} {
				c := &counts{seen: make([]atomic.Int32, n)}
				p.run(c, n, grain)
				p.runTapered(c, n)
				for i := range c.seen {
					if k := c.seen[i].Load(); k != 2 {
						t.Fatalf("%d threads, part %d of %d ran %d times", threads, i, n, k)
					}
				}
			}
		}
		p.release()
	}
}

// TestPoolSleeps checks that helpers go to sleep when there is nothing to do, and wake up. The
// bubble waits until they do: one that spins on keeps it from going on.
func TestPoolSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := poolUser{pool: &pool{}, threads: 3} // not the process's: its threads are not of this bubble
		p.grow(3)
		defer p.stop()
		for range 3 {
			synctest.Wait()
			if !p.helpers[0].asleep.Load() || !p.helpers[1].asleep.Load() {
				t.Fatal("helpers wait and do not say that they sleep")
			}
			c := &counts{seen: make([]atomic.Int32, 9)}
			p.run(c, 9, 1)
			for i := range c.seen {
				if c.seen[i].Load() != 1 {
					t.Fatalf("part %d did not run once after sleeping", i)
				}
			}
		}
	})
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
		p := usePool(threads)
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
		p.release()
	}
}

func BenchmarkPool(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			p := usePool(threads)
			defer p.release()
			t := panics{-1}
			var task task = t
			for b.Loop() {
				p.run(task, 2, 1)
			}
		})
	}
}
