package rescue

import (
	"errors"
	"fmt"
	"log/slog"
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
	if err == nil || err.Error() != "panic: assignment to entry in nil map" || !strings.Contains(Stack(err), "rescue_test.go:") {
		t.Errorf("%v, want the panic and where it was", err)
	}
}

// A user reads one sentence, and the log has the stack behind it.
func TestAttrShowsTheStack(t *testing.T) {
	var text strings.Builder
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: Attr}))
	err := fmt.Errorf("model: %w", Do(func() error { panic("of the test") }))
	log.Error("failed", "error", err)
	if err.Error() != "model: panic: of the test" || !strings.Contains(text.String(), "model: panic: of the test\\n") || !strings.Contains(text.String(), "rescue_test.go:") {
		t.Errorf("%v is logged as %s", err, &text)
	}
	text.Reset()
	log.Error("failed", "error", errors.New("own"), "n", 1)
	if !strings.HasSuffix(text.String(), "error=own n=1\n") || Stack(nil) != "" {
		t.Errorf("an error without a stack is logged as %s", &text)
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

// A panic of the sequence is its last error, one of the loop is the loop's.
func TestSeqMakesErrorsOfPanics(t *testing.T) {
	numbers := Seq(func(yield func(int, error) bool) {
		for i := range 3 {
			if !yield(i, nil) {
				return
			}
		}
		panic("of the sequence")
	})
	var seen []int
	var last error
	for n, err := range numbers {
		seen, last = append(seen, n), err
	}
	if fmt.Sprint(seen) != "[0 1 2 0]" || last == nil || last.Error() != "panic: of the sequence" || Stack(last) == "" {
		t.Errorf("%v, %v", seen, last)
	}
	for n, err := range numbers {
		if err != nil || n > 0 {
			t.Fatalf("%d, %v after the break", n, err)
		}
		break //nolint:staticcheck // the rest is not wanted
	}
	defer func() {
		if p := recover(); p != "of the loop" {
			t.Errorf("recovered %v", p)
		}
	}()
	for range numbers { //nolint:errcheck // it does not get that far
		panic("of the loop")
	}
}
