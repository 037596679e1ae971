//go:build noasm

package drafter_test

import "testing"

// TestPortable compares drafts computed by portable code with the reference: make test-noasm runs it.
func TestPortable(t *testing.T) {
	t.Run("DraftsAreTheReferences", TestDraftsAreTheReferences)
}
