package doctor

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/qwen35"
)

// maxDepth is how many tokens ahead guesses are examined.
const maxDepth = 5

// agreement is which guesses of a head are what the model itself chose: for every text and
// row t, whether the guess at depth d, for token t+2+d, is right. Every step of a chain of
// guesses is fed the true token and attends to its own stream, so that a whole text takes
// one pass per depth.
type agreement struct {
	texts []*text
	right [][][]bool // [text][depth][row]
}

// agree lets a head guess along the texts, to a depth, from hidden states before or after
// the final norm. For each of several lengths of a shortlist, and for all tokens first,
// there is one result.
func (p *patient) agree(h *qwen35.Head, texts []*text, depth int, before bool, sizes []int) ([]*agreement, error) {
	results := make([]*agreement, 1+len(sizes))
	for i := range results {
		results[i] = &agreement{texts: texts, right: make([][][]bool, len(texts))}
	}
	for i, t := range texts {
		hidden := t.after
		if before {
			hidden = t.before
		}
		for d := range min(depth, len(t.ids)-2) {
			next := t.ids[1+d : len(t.ids)-1]
			for _, r := range results {
				r.right[i] = append(r.right[i], make([]bool, 0, len(next)))
			}
			out, err := p.stream(h, hidden[:len(next)*p.width], next, func(row int, logits []float32) {
				want := t.ids[row+d+2]
				results[0].note(i, d, argmax(logits[:p.vocab]) == want)
				for j, size := range sizes {
					list := p.m.DraftVocab(size, t.ids[:row+2])
					results[j+1].note(i, d, p.among(logits, list) == want)
				}
			})
			if err != nil {
				return nil, err
			}
			hidden = out
		}
	}
	return results, nil
}

func (a *agreement) note(text, depth int, right bool) {
	a.right[text][depth] = append(a.right[text][depth], right)
}

// stream runs the head over pairs of hidden rows and the tokens after them, from an empty
// memory, and returns the head's own hidden rows.
func (p *patient) stream(h *qwen35.Head, hidden []float32, next []int32, see func(row int, logits []float32)) ([]float32, error) {
	s, err := p.pool.Open(h.Layout())
	if err != nil {
		return nil, err
	}
	defer s.Close()
	result := make([]float32, 0, len(hidden))
	for at := 0; at < len(next); at += chunk {
		end := min(at+chunk, len(next))
		rows, err := p.upload(hidden[at*p.width : end*p.width])
		if err == nil {
			err = p.ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		out, err := h.Forward([]model.Span{{State: s, Tokens: next[at:end], Want: end - at, Hidden: rows}})
		if err != nil {
			return nil, err
		}
		for i, logits := range out.Logits[0] {
			see(at+i, logits)
		}
		own, err := p.b.Host(out.Hidden)
		if err != nil {
			return nil, err
		}
		result = append(result, own...)
		p.b.Free(rows)
	}
	return result, nil
}

// among is the favorite among the tokens of some blocks of the vocabulary; nil: of all.
func (p *patient) among(logits []float32, blocks []int32) int32 {
	if blocks == nil {
		return argmax(logits[:p.vocab])
	}
	best := int32(-1)
	for _, b := range blocks {
		for id := int(b) * backend.RowBlock; id < min(int(b+1)*backend.RowBlock, p.vocab); id++ {
			if best < 0 || logits[id] > logits[best] {
				best = int32(id)
			}
		}
	}
	return best
}

// rows are where guesses count: rows [from, to) of a text, after which the model wrote
// itself, as far as guesses of all depths are known.
func (t *text) rows() (from, to int) { return t.prompt - 1, len(t.ids) - 1 - maxDepth }

// held is how many of the first depth guesses from a row on are right.
func (a *agreement) held(text, row, depth int) int {
	n := 0
	for n < depth && a.right[text][n][row] {
		n++
	}
	return n
}

// rates are the shares of rows whose first 1, 2, … guesses are all right, and how many rows
// there are.
func (a *agreement) rates() (rates []float64, rows int) {
	for i, t := range a.texts {
		if rates == nil {
			rates = make([]float64, len(a.right[i]))
		}
		from, to := t.rows()
		for r := from; r < to; r++ {
			for d := range a.held(i, r, len(rates)) {
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

// tokensPerRound is what a round with so many guesses gives, found by walking along the
// texts as generation would: rounds begin more often at places that are hard to guess.
func (a *agreement) tokensPerRound(depth int) float64 {
	tokens, rounds := 0, 0
	for i, t := range a.texts {
		for r, to := t.rows(); r < to; rounds++ {
			n := a.held(i, r, depth) + 1
			r += n
			tokens += n
		}
	}
	return float64(tokens) / float64(max(rounds, 1))
}

// better counts the rows whose first guess is right here and wrong in other, and the other
// way round.
func (a *agreement) better(other *agreement) (won, lost int) {
	for i, t := range a.texts {
		for r, to := t.rows(); r < to; r++ {
			switch mine, theirs := a.right[i][0][r], other.right[i][0][r]; {
			case mine && !theirs:
				won++
			case theirs && !mine:
				lost++
			}
		}
	}
	return won, lost
}
