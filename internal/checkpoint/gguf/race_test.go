//go:build race

package gguf

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("BlocksEqualSlowEncoder", TestBlocksEqualSlowEncoder)
	t.Run("ReadRefusesDamagedScales", TestReadRefusesDamagedScales)
}
