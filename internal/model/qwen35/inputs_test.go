package qwen35

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// embedded are the rows of the embedding table of some ids.
func (r *rig) embedded(t *testing.T, ids []int32) backend.Tensor {
	t.Helper()
	x, err := r.b.Alloc(dtype.F32, len(ids), r.Info().Width)
	if err != nil {
		t.Fatal(err)
	}
	r.b.Embed(x, r.Embed, ids)
	return x
}

// disguise makes some of a span's tokens rows.
func disguise(rng *rand.Rand, s *model.Span, rows backend.Tensor) {
	s.Tokens = slices.Clone(s.Tokens)
	for at := rng.IntN(3); at < len(s.Tokens); at += 1 + rng.IntN(3) {
		end := min(at+1+rng.IntN(6), len(s.Tokens))
		s.Inputs = append(s.Inputs, backend.Input{At: at, Rows: rows.RowRange(at, end)})
		for ; at < end; at++ {
			s.Tokens[at] = model.NoToken
		}
	}
}

// consecutive are the positions of n tokens of text, the first of which is the one at a slot.
func consecutive(slot, n int) [][3]int32 {
	list := make([][3]int32, n)
	for i := range list {
		p := int32(slot + i)
		list[i] = [3]int32{p, p, p}
	}
	return list
}

// TestRowsEqualTokens feeds rows of the embedding table in place of the ids that they are of, cut
// and mixed with ids at random, and positions where none are needed, to the model and to its
// head. Every bit must be that of the ids.
func TestRowsEqualTokens(t *testing.T) {
	for _, sub := range subjects(t) {
		t.Run(sub.name, func(t *testing.T) {
			r := open(t, sub.dir, 0, sub.o)
			rng := rand.New(rand.NewPCG(6, 14))
			n := len(sub.tokens)
			want, hidden := r.feed(t, model.Span{State: r.sequence(t), Tokens: sub.tokens, Want: n})
			head := r.Head()
			pairs := func(s *state.State, span model.Span) []float32 {
				span.State, span.Want = s, len(span.Tokens)
				out, err := head.Forward([]model.Span{span}, nil)
				if err != nil {
					t.Fatal(err)
				}
				return r.host(t, out.Hidden)
			}
			width := r.Info().Width
			states := [2]*state.State{r.headState(t), r.headState(t)}
			drafted := pairs(states[0], model.Span{Tokens: sub.tokens[1:], Hidden: r.upload(t, hidden[:(n-1)*width])})
			rows := r.embedded(t, sub.tokens)
			s := r.sequence(t)
			for at := 0; at < n; {
				end := min(at+1+rng.IntN(30), n)
				span := model.Span{State: s, Tokens: sub.tokens[at:end], Want: end - at}
				disguise(rng, &span, rows.RowRange(at, end))
				if rng.IntN(2) > 0 {
					span.Positions = consecutive(at, end-at)
				}
				logits, _ := r.feed(t, span)
				same(t, fmt.Sprintf("rows from %d on", at), logits, want[at:end])
				if last := min(end, n-1); last > at {
					span := model.Span{Tokens: sub.tokens[at+1 : last+1], Hidden: r.upload(t, hidden[at*width:last*width]), Positions: span.Positions}
					disguise(rng, &span, rows.RowRange(at+1, last+1))
					if span.Positions != nil {
						span.Positions = span.Positions[:last-at]
					}
					same(t, fmt.Sprintf("pairs from %d on", at), [][]float32{pairs(states[1], span)}, [][]float32{drafted[at*width : last*width]})
				}
				at = end
			}
		})
	}
}

// headState opens an empty memory of the head.
func (r *rig) headState(t *testing.T) *state.State {
	t.Helper()
	s, err := r.pool.Open(r.Head().Layout())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestPositionsOfPictures feeds a text with a picture in it: cut anywhere, with the positions of
// its text given or not, the bits are the same, and each axis of the picture counts.
func TestPositionsOfPictures(t *testing.T) {
	sub := subjects(t)[0]
	r := open(t, sub.dir, 0, sub.o)
	rng := rand.New(rand.NewPCG(7, 14))
	const first, rows, cols = 9, 3, 5
	n := min(len(sub.tokens), 40)
	positions := consecutive(0, first)
	for i := range int32(rows * cols) {
		positions = append(positions, [3]int32{first, first + i/cols, first + i%cols})
	}
	positions = append(positions, consecutive(first+max(rows, cols), n-len(positions))...)
	decode := func(positions [][3]int32, next func(at int) int) (all [][]float32) {
		s := r.sequence(t)
		for at := 0; at < n; {
			end := min(next(at), n)
			span := model.Span{State: s, Tokens: sub.tokens[at:end], Want: end - at}
			if end > first && at < first+rows*cols || rng.IntN(2) > 0 {
				span.Positions = positions[at:end]
			}
			logits, _ := r.feed(t, span)
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
