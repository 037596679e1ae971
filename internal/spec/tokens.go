package spec

import (
	"math"
	"slices"
)

// width is the length of a row of logits with one for each token.
func (l *Logits) width() int {
	if l.Tokens == nil {
		return l.at.Cols
	}
	return l.Vocab
}

// columns turns ascending tokens into their columns, in place. Tokens without a column are dropped.
func (l *Logits) columns(ids []int32) []int32 {
	if l.Tokens == nil {
		return ids
	}
	kept := ids[:0]
	for _, id := range ids {
		if c, ok := slices.BinarySearch(l.Tokens, id); ok {
			kept = append(kept, int32(c))
		}
	}
	return kept
}

// counted is the number of columns, from the first on, with the tokens below n.
func (l *Logits) counted(n int) int {
	if l.Tokens == nil || n == 0 {
		return n
	}
	c, _ := slices.BinarySearch(l.Tokens, int32(n))
	return max(c, 1) // 0 would be all
}

// tokens turns the columns of a list from a place on into their tokens, in place.
func (l *Logits) tokens(list []int32, from int) []int32 {
	if l.Tokens != nil {
		for i, c := range list[from:] {
			list[from+i] = l.Tokens[c]
		}
	}
	return list
}

// scattered is the row i with a logit for each token.
func (l *Logits) scattered(i int, row []float32) []float32 {
	if l.Tokens == nil {
		return row
	}
	for len(l.whole) <= i {
		l.whole = append(l.whole, nil)
	}
	if len(l.whole[i]) != l.Vocab {
		l.whole[i] = slices.Repeat([]float32{float32(math.Inf(-1))}, l.Vocab)
	}
	for c, id := range l.Tokens {
		l.whole[i][id] = row[c]
	}
	return l.whole[i]
}
