package rescue

import (
	"errors"
	"strings"
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
