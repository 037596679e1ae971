package gguf

import (
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/rescue"
)

// TestDecodeSurvivesPanics makes the decoding of a row panic on another goroutine.
func TestDecodeSurvivesPanics(t *testing.T) {
	x := opened(t, write(t, "a.gguf", sample().Bytes())).Tensors[0]
	err := x.rowwise(func(int, int) error { panic("of the test") })
	if err == nil || !strings.Contains(err.Error(), "panic: of the test") || !strings.Contains(err.Error(), x.Name) || rescue.Stack(err) == "" {
		t.Errorf("%v, want the panic, the tensor and a stack", err)
	}
}
