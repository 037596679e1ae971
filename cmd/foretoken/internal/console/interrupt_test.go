package console

import "testing"

// TestWorkSurvivesPanics checks that work on another goroutine, where commands load
// and measure models, ends with an error and does not end the process.
func TestWorkSurvivesPanics(t *testing.T) {
	n, err := UnlessInterrupted(t.Context(), func() (int, error) { panic("of the test") })
	if n != 0 || err == nil || err.Error() != "panic: of the test" {
		t.Errorf("%d, %v, want the panic", n, err)
	}
	if n, err := UnlessInterrupted(t.Context(), func() (int, error) { return 7, nil }); n != 7 || err != nil {
		t.Errorf("%d, %v, want 7", n, err)
	}
}
