//go:build race

package generate_test

import (
	"testing"

	"github.com/foretoken/foretoken/internal/server/generate"
)

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("ChoicesAreSeededOneByOne", TestChoicesAreSeededOneByOne)
	t.Run("PicturesAreFetchedToTheirPlaces", generate.TestPicturesAreFetchedToTheirPlaces)
}
