package qwen35

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
)

// TestPositionsOfPictures feeds a text with an image in it: cut anywhere, with the positions of
// its text given or not, the bits are the same, and each axis of the image counts.
func TestPositionsOfPictures(t *testing.T) {
	sub := subjects(t)[0]
	r := open(t, sub.Dir, 0, sub.Options)
	rng := rand.New(rand.NewPCG(7, 14))
	const first, rows, cols = 9, 3, 5
	n := min(len(sub.Tokens), 40)
	positions := modeltest.Consecutive(0, first)
	for i := range int32(rows * cols) {
		positions = append(positions, [3]int32{first, first + i/cols, first + i%cols})
	}
	positions = append(positions, modeltest.Consecutive(first+max(rows, cols), n-len(positions))...)
	decode := func(positions [][3]int32, next func(at int) int) (all [][]float32) {
		s := r.Sequence(t)
		for at := 0; at < n; {
			end := min(next(at), n)
			span := model.Span{State: s, Tokens: sub.Tokens[at:end], Want: end - at}
			if end > first && at < first+rows*cols || rng.IntN(2) > 0 {
				span.Positions = positions[at:end]
			}
			logits, _ := r.Feed(t, span)
			all = append(all, logits...)
			at = end
		}
		return all
	}
	want := decode(positions, func(int) int { return n })
	for range 4 {
		same(t, "in pieces", decode(positions, func(at int) int { return at + 1 + rng.IntN(12) }), want)
	}
	for axis := range 3 {
		moved := slices.Clone(positions)
		for i := first + 1; i < first+rows*cols; i++ {
			moved[i][axis] += 3
		}
		if got := decode(moved, func(int) int { return n }); slices.Equal(got[first+rows*cols-1], want[first+rows*cols-1]) {
			t.Errorf("axis %d does not count", axis)
		}
	}
}

// TestTurns is the pattern of the released models.
func TestTurns(t *testing.T) {
	c := config{rotary: 64, sections: [3]int{11, 11, 10}}
	var got []byte
	for _, axis := range c.turns() {
		got = append(got, "thw"[axis])
	}
	if want := "thwthwthwthwthwthwthwthwthwthwth"; string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
	c = config{rotary: 16, sections: [3]int{6, 1, 1}}
	if got := c.turns(); !slices.Equal(got, []uint8{0, 1, 2, 0, 0, 0, 0, 0}) {
		t.Errorf("short sections: %d", got)
	}
}

// TestConfigAxes refuses other rotations of three axes.
func TestConfigAxes(t *testing.T) {
	for _, rope := range []string{`"mrope_section": [11, 11]`, `"mrope_section": [33, -1, 0]`, `"mrope_interleaved": false`} {
		if _, err := parseConfig(t, `{`+least+`, "rope_parameters": {`+rope+`}}`, ""); err == nil {
			t.Errorf("%s is read", rope)
		}
	}
	if _, err := parseConfig(t, `{`+least+`, "rope_parameters": {"mrope_section": [11, 11, 10], "mrope_interleaved": true}}`, ""); err != nil {
		t.Error(err)
	}
}
