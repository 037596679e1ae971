package split

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
)

// meeting is a device whose passes wait for others.
type meeting struct {
	backend.Backend
	pass func(n int) // called by the n-th pass before it is computed
	n    int
}

func (m *meeting) Pass(p backend.Pass, queue func()) {
	m.n++
	m.pass(m.n)
	m.Backend.Pass(p, queue)
}

// begin is a climb that is launched.
func (l *ladder) begin(ids ...int32) (f backend.Flight) {
	return l.b.device.Launch(func() { l.queue(ids...) })
}

// TestStagesComputeAtTheSameTime has passes over three devices, the first of which also computes the end of each. A device
// computes a pass only when the one before it computes the next: one after the other, no pass would end.
func TestStagesComputeAtTheSameTime(t *testing.T) {
	const passes = 5
	b := open(t, 3)
	var ladders []*ladder
	want := [][]float32{}
	for i := range passes {
		l := newLadder(t, b, 0, 1, 2, 0)
		numbers, err := l.climb(int32(i), 7)
		if err != nil {
			t.Fatal(err)
		}
		ladders, want = append(ladders, l), append(want, numbers)
	}
	began := [2][passes + 1]chan struct{}{}
	for s := range began {
		for i := range began[s] {
			began[s][i] = make(chan struct{})
		}
	}
	for s := range began {
		b.device.dev[s+1] = &meeting{Backend: b.device.dev[s+1], pass: func(n int) {
			if s == 0 {
				close(began[0][n-1])
			}
			if next := began[0][n]; s == 1 && n < passes {
				select {
				case <-next:
				case <-time.After(5 * time.Minute):
					t.Errorf("device 2 computes pass %d alone", n)
				}
			}
		}}
	}
	var flights []backend.Flight
	for i, l := range ladders {
		flights = append(flights, l.begin(int32(i), 7))
	}
	for i, l := range ladders {
		if trip, err := flights[i].Wait(); err != nil || trip.Took < trip.Longest || trip.Longest <= 0 {
			t.Errorf("pass %d: %+v, %v", i, trip, err)
		}
		if got, err := b.Host(l.x.RowRange(0, 2)); err != nil || !slices.Equal(got, want[i]) {
			t.Errorf("pass %d: %v, want %v, %v", i, got, want[i], err)
		}
	}
}

// TestLaunchedPassesHaveTheBitsOfOthers makes random calls, some of them launched, in between calls that use the memory of
// those. All results are those of devices that compute nothing ahead.
func TestLaunchedPassesHaveTheBitsOfOthers(t *testing.T) {
	for seed := range uint64(12) {
		var want [][]float32
		for _, launch := range []bool{false, true} {
			rng := rand.New(rand.NewPCG(seed, 3))
			b := open(t, 3)
			var ladders []*ladder
			for i := range 3 {
				on := [][]int{{0, 1, 2, 0}, {0, 1, 2, 0}, {1, 0, 0, 2}}[i]
				ladders = append(ladders, newLadder(t, b, on...))
			}
			var results [][]float32
			read := func(i int) {
				x, err := b.Host(ladders[i].x)
				if err != nil {
					t.Fatal(err)
				}
				results = append(results, slices.Clone(x))
			}
			var flights []backend.Flight
			for range 40 {
				i, j := rng.IntN(3), rng.IntN(3)
				l, ids := ladders[i], make([]int32, 1+rng.IntN(3))
				for k := range ids {
					ids[k] = rng.Int32N(32)
				}
				if from := rng.IntN(7); from < 4 { // passes over other rows of the same memory
					l = &ladder{b: b, table: l.table, steps: l.steps, x: l.x.RowRange(from, 6), y: l.y.RowRange(from, 6)}
				}
				switch n := rng.IntN(8); {
				case n < 4 && launch:
					flights = append(flights, l.begin(ids...))
				case n < 5:
					l.queue(ids...)
				case n < 6:
					b.Copy(ladders[j].y.RowRange(0, l.x.Rows), l.x)
				case n < 7:
					b.Fill(l.x.RowRange(0, 1), float32(n))
				default:
					read(j)
				}
			}
			for i := range ladders {
				read(i)
			}
			for _, f := range flights {
				if _, err := f.Wait(); err != nil {
					t.Fatal(err)
				}
			}
			if !launch {
				want = results
			} else if !slices.EqualFunc(results, want, slices.Equal[[]float32]) {
				t.Errorf("seed %d: %v, want %v", seed, results, want)
			}
		}
	}
}

// TestFailureOfAFlightIsItsOwn has one of three passes in flight fail: Wait reports that, and the other passes and later
// calls are right.
func TestFailureOfAFlightIsItsOwn(t *testing.T) {
	failure := errors.New("a launch has failed")
	for at := 1; at <= 3; at++ {
		for _, panics := range []bool{false, true} {
			t.Run(fmt.Sprintf("pass %d, panic %t", at, panics), func(t *testing.T) {
				b := open(t, 2)
				var ladders []*ladder
				for range 3 {
					ladders = append(ladders, newLadder(t, b, 0, 1, 1, 0))
				}
				want, err := ladders[0].climb(1, 2)
				if err != nil {
					t.Fatal(err)
				}
				whole := b.device.dev[1]
				b.device.dev[1] = &meeting{Backend: whole, pass: func(n int) {
					switch {
					case n == at && panics:
						panic(failure)
					case n == at:
						whole.(*backendtest.Opaque).BreakAt(1, failure)
					}
				}}
				var flights []backend.Flight
				for _, l := range ladders {
					flights = append(flights, l.begin(1, 2))
				}
				for i, f := range flights {
					var got any
					func() {
						defer func() {
							if p := recover(); p != nil {
								got = p
							}
						}()
						if _, err := f.Wait(); err != nil {
							got = err
						}
					}()
					if (got != nil) != (i == at-1) || got != nil && got != any(failure) {
						t.Errorf("pass %d: %v", i+1, got)
					}
					if numbers, err := b.Host(ladders[i].x.RowRange(0, 2)); got == nil && (err != nil || !slices.Equal(numbers, want)) {
						t.Errorf("pass %d: %v, want %v, %v", i+1, numbers, want, err)
					}
				}
				for _, l := range ladders {
					if got, err := l.climb(1, 2); err != nil || !slices.Equal(got, want) {
						t.Errorf("later: %v, want %v, %v", got, want, err)
					}
				}
			})
		}
	}
}

// TestFailureOfTheCallersWorkIsTold has work of the caller fail on a device, which tells a pass in flight of it: so do the flight and,
// if it has not been waited for, the next call that blocks. Otherwise a caller would take what it has queued for done.
func TestFailureOfTheCallersWorkIsTold(t *testing.T) {
	failure := errors.New("a launch has failed")
	for _, ahead := range []bool{false, true} { // the work is queued before the launch
		for _, waits := range []bool{false, true} { // for the flight first
			b := open(t, 2)
			l := newLadder(t, b, 0, 1, 1, 0)
			if _, err := l.climb(1, 2); err != nil {
				t.Fatal(err)
			}
			x, err := b.device.alloc(1, dtype.F32, 1, 4)
			if err == nil {
				err = b.Write(x, make([]float32, 4))
			}
			if err != nil {
				t.Fatal(err)
			}
			begun := make(chan struct{})
			b.device.dev[0] = &meeting{Backend: b.device.dev[0], pass: func(int) { <-begun }}
			work := func() {
				b.opaque[1].BreakAt(1, failure)
				b.Fill(x, 7)
			}
			if ahead {
				work()
			}
			f := l.begin(1, 2)
			if !ahead {
				work()
			}
			close(begun)
			told := 0
			if waits {
				if _, err := f.Wait(); errors.Is(err, failure) {
					told++
				}
			} else {
				b.device.quiet()
			}
			if _, err := b.Host(x); errors.Is(err, failure) {
				told++
			}
			if told != 1 {
				t.Errorf("queued before the launch: %t, waited for the flight: %t: told %d times", ahead, waits, told)
			}
			if _, err := b.Host(x); err != nil {
				t.Errorf("later: %v", err)
			}
		}
	}
}
