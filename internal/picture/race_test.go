//go:build race

package picture

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("ResizeIsTheSlowOne", TestResizeIsTheSlowOne)
}
