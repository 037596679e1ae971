package terminal

import (
	"slices"
	"testing"
)

func TestFramesAreInTheOrderOfPeople(t *testing.T) {
	want := []string{"a", "a1", "a2", "a9b", "a10", "a10b", "b", "b0", "frame1.png", "frame10.png"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, compareNames)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
