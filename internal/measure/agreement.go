package measure

import (
	"context"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// AgreementDepth is the maximum depth at which a head's acceptance is measured.
const AgreementDepth = 5

// Chunk is how many rows a pass over a long text has: their logits are kept, and a vocabulary
// is large.
const Chunk = 32

// Text is a text with the hidden rows that a model has computed for it.
type Text struct {
	IDs           []int32
	Prompt        int       // how many of the ids the model did not choose itself
	Before, After []float32 // hidden rows before and after the final norm, [len(IDs)-1 or more, width]
}

// Rows are where acceptance counts: rows [from, to), after which the model wrote itself, as far
// as draft tokens of all depths can be checked.
func (t *Text) Rows() (from, to int) { return t.Prompt - 1, len(t.IDs) - 1 - AgreementDepth }

// TeacherForcing measures acceptance along given texts: at every row a draft starts from the
// model's hidden state, and each later token of it is computed from the text's true token, not
// from the draft token before. So a whole text takes one pass per depth.
type TeacherForcing struct {
	Backend backend.Backend
	Pool    *state.Pool
	Texts   []*Text
	Width   int // of hidden rows
	Vocab   int // valid ids
	// Blocks are the blocks of backend.RowBlock tokens in the draft vocabulary of size frequent
	// tokens after a text; nil: all.
	Blocks func(size int, text []int32) []int32
}

// Agreement is how often draft tokens of a head equal the model's choice.
type Agreement struct {
	texts    []*Text
	depth    int
	accepted [][]int // [text][row]: how many draft tokens are accepted before the first rejected one
}

// Run drafts depth tokens at every row of the texts, from hidden rows before or after the final
// norm. The first result is of the whole vocabulary; then there is one for each draft vocabulary
// of sizes.
func (f *TeacherForcing) Run(ctx context.Context, h model.Head, depth int, before bool, sizes []int) ([]*Agreement, error) {
	results := make([]*Agreement, 1+len(sizes))
	for i := range results {
		results[i] = &Agreement{texts: f.Texts, depth: depth, accepted: make([][]int, len(f.Texts))}
	}
	for i, t := range f.Texts {
		for _, r := range results {
			r.accepted[i] = make([]int, len(t.IDs))
		}
		hidden := t.After
		if before {
			hidden = t.Before
		}
		for d := range min(depth, len(t.IDs)-2) {
			next := t.IDs[1+d : len(t.IDs)-1]
			var err error
			hidden, err = f.stream(ctx, h, hidden[:len(next)*f.Width], next, func(row int, logits []float32) {
				for j, r := range results {
					if r.accepted[i][row] < d {
						continue // a token before it was rejected
					}
					var blocks []int32
					if j > 0 {
						blocks = f.Blocks(sizes[j-1], t.IDs[:row+2])
					}
					if f.argmax(logits, blocks) == t.IDs[row+d+2] {
						r.accepted[i][row]++
					}
				}
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return results, nil
}

// stream runs the head from an empty state over pairs of hidden rows and the tokens after them,
// calls see with every row of logits, and returns the head's own hidden rows.
func (f *TeacherForcing) stream(ctx context.Context, h model.Head, hidden []float32, next []int32, see func(row int, logits []float32)) ([]float32, error) {
	s, err := f.Pool.Open(h.Layout())
	if err != nil {
		return nil, err
	}
	defer s.Close()
	rows, err := f.Backend.Alloc(dtype.F32, Chunk, f.Width)
	if err != nil {
		return nil, err
	}
	defer f.Backend.Free(rows)
	result := make([]float32, 0, len(hidden))
	for at := 0; at < len(next); at += Chunk {
		end := min(at+Chunk, len(next))
		input := rows.RowRange(0, end-at)
		err := ctx.Err()
		if err == nil {
			err = f.Backend.Write(input, hidden[at*f.Width:end*f.Width])
		}
		if err != nil {
			return nil, err
		}
		out, err := h.Forward([]model.Span{{State: s, Tokens: next[at:end], Want: end - at, Hidden: input}}, nil)
		if err != nil {
			return nil, err
		}
		logits, err := out.Rows()
		if err != nil {
			return nil, err
		}
		for i, row := range logits {
			see(at+i, row)
		}
		own, err := f.Backend.Host(out.Hidden)
		if err != nil {
			return nil, err
		}
		result = append(result, own...)
	}
	return result, nil
}

// argmax is the id of the highest logit in some blocks of the vocabulary; nil: in all.
func (f *TeacherForcing) argmax(logits []float32, blocks []int32) int32 {
	if blocks == nil {
		return Argmax(logits[:f.Vocab])
	}
	best := int32(-1)
	for _, b := range blocks {
		for id := int(b) * backend.RowBlock; id < min(int(b+1)*backend.RowBlock, f.Vocab); id++ {
			if best < 0 || logits[id] > logits[best] {
				best = int32(id)
			}
		}
	}
	return best
}

// Argmax is the id of the highest logit, the lowest of several; -1 if one is not a number.
func Argmax(logits []float32) int32 {
	best := 0
	for i, x := range logits {
		if x != x {
			return -1
		}
		if x > logits[best] {
			best = i
		}
	}
	return int32(best)
}

// Rates are the shares of rows whose first 1, 2, … draft tokens are all accepted, and how many
// rows there are.
func (a *Agreement) Rates() (rates []float64, rows int) {
	rates = make([]float64, a.depth)
	for i, t := range a.texts {
		for r, to := t.Rows(); r < to; r++ {
			for d := range a.accepted[i][r] {
				rates[d]++
			}
			rows++
		}
	}
	for d := range rates {
		rates[d] /= float64(max(rows, 1))
	}
	return rates, rows
}

// TokensPerRound is the mean number of tokens of a round with depth draft tokens, by walking along the texts
// as decoding would: rounds start more often at places that are hard to predict.
func (a *Agreement) TokensPerRound(depth int) float64 {
	tokens, rounds := 0, 0
	for i, t := range a.texts {
		for r, to := t.Rows(); r < to; rounds++ {
			n := min(a.accepted[i][r], depth) + 1
			r += n
			tokens += n
		}
	}
	return float64(tokens) / float64(max(rounds, 1))
}

// Compare counts the rows with more accepted draft tokens here than in other, and the other way
// round, as far as both drafted.
func (a *Agreement) Compare(other *Agreement) (won, lost int) {
	depth := min(a.depth, other.depth)
	for i, t := range a.texts {
		for r, to := t.Rows(); r < to; r++ {
			switch mine, theirs := min(a.accepted[i][r], depth), min(other.accepted[i][r], depth); {
			case mine > theirs:
				won++
			case theirs > mine:
				lost++
			}
		}
	}
	return won, lost
}
