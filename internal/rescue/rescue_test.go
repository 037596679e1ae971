package rescue

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
)

func TestDoMakesErrorsOfPanics(t *testing.T) {
	if err := Do(func() error { return nil }); err != nil {
		t.Error(err)
	}
	own := errors.New("own")
	if err := Do(func() error { return own }); !errors.Is(err, own) {
		t.Error(err)
	}
	var none map[string]int
	err := Do(func() error { none["a"] = 1; return nil })
	if err == nil || !strings.HasPrefix(err.Error(), "panic: assignment to entry in nil map\n") || !strings.Contains(err.Error(), "rescue_test.go:") {
		t.Errorf("%v, want the panic and where it was", err)
	}
}

// TestPanicRaisedAgain has a panic cross two goroutines: the first stack stays, once.
func TestPanicRaisedAgain(t *testing.T) {
	first := Do(func() error { panic("of the test") })
	again := Do(func() error { panic(first) })
	var p *Panic
	if !errors.As(again, &p) || p.What != "of the test" || again.Error() != first.Error() {
		t.Errorf("%v, want %v", again, first)
	}
}

func TestDealCoversAll(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 100, 1000} {
		var seen [1000]atomic.Int32
		if err := Deal(n, 16, 1, func(from, to int) error {
			if from%16 != 0 {
				t.Errorf("a range begins at %d", from)
			}
			for i := from; i < to; i++ {
				seen[i].Add(1)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for i := range seen {
			if got := seen[i].Load(); got != 1 && i < n || got != 0 && i >= n {
				t.Fatalf("of %d: number %d was dealt %d times", n, i, got)
			}
		}
	}
	if err := Deal(64, 1, 1, func(int, int) error { panic("of the test") }); err == nil || !strings.Contains(err.Error(), "of the test") {
		t.Errorf("%v, want the panic", err)
	}
}
