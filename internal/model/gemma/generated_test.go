package gemma

import (
	"testing"

	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// TestGenerateCountsAsPublished counts the parameters of the released sizes: of the text, and of these those that are only
// looked up.
func TestGenerateCountsAsPublished(t *testing.T) {
	for i, want := range []struct{ all, lookedUp int64 }{
		{4_628_569_379, 2_348_810_240}, {7_463_013_418, 2_818_572_288}, {11_907_350_320, 0}, {25_233_141_790, 0}, {30_697_345_340, 0},
	} {
		s := &releasedShapes[i]
		var all, lookedUp int64
		for w := range network.Tables(s.resolved()).Model {
			if all += w.Parameters(); w.Kind == weights.Lookup {
				lookedUp += w.Parameters()
			}
		}
		if all != want.all || lookedUp != want.lookedUp {
			t.Errorf("%s: %d parameters, %d looked up, published are %d and %d", s.name, all, lookedUp, want.all, want.lookedUp)
		}
	}
}
