package prefix

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/prefix/store"
)

// Text is the input of a model: the ids of tokens, and -1 where a row of Inputs
// replaces a token.
type Text struct {
	Tokens []int32
	Inputs []Input // ascending, apart from each other; those behind Tokens do not count
}

// Input is rows in a text, for example of an image. All ids in their place are the same, so a hash of
// their contents is part of a prefix in place of the ids: a prefix may end between two rows.
type Input struct {
	At, N     int
	Hash      [32]byte   // of the contents of the rows: equal hashes mean equal rows
	Positions [][3]int32 // of the rows, relative to the next position of text; nil: as those of text
	Token     int32      // that holds their places in the ids of a prompt, for an Observer
}

// Rows is a place in a prompt where the model is fed rows of an image, or of a part of a video,
// in place of the ids there, which are all the same.
type Rows struct {
	At, N int
	Hash  [32]byte // of the contents of the rows
}

// ids are the tokens of a text as a prompt has them, and where they hold the places of rows.
func (t *Text) ids() (ids []int32, rows []Rows) {
	ids = slices.Clone(t.Tokens)
	for i := range t.Inputs {
		x := &t.Inputs[i]
		if x.At >= len(ids) {
			break
		}
		n := min(x.N, len(ids)-x.At)
		for j := range n {
			ids[x.At+j] = x.Token
		}
		rows = append(rows, Rows{x.At, n, x.Hash})
	}
	return ids, rows
}

// key is that of a prefix whose key is before and the stretch [from, to) behind it.
func (t *Text) key(before store.Key, from, to int) store.Key {
	data := make([]byte, 0, 4*(to-from))
	for _, id := range t.Tokens[from:to] {
		data = binary.LittleEndian.AppendUint32(data, uint32(id))
	}
	rows := t.digest(from, to)
	return before.Next(data, rows[:])
}

// digest identifies the rows in a part of a text. It is zero without rows.
type digest [16]byte

// digest is that of the stretch [from, to).
func (t *Text) digest(from, to int) (d digest) {
	if len(t.Inputs) == 0 {
		return d
	}
	var data []byte
	for i := range t.Inputs {
		if x := &t.Inputs[i]; x.At < to && x.At+x.N > from {
			data = x.describe(data, from, to)
		}
	}
	if data != nil {
		sum := sha256.Sum256(data)
		copy(d[:], sum[:])
	}
	return d
}

// describe appends which rows of x there are in [from, to), and where they and their positions
// are.
func (x *Input) describe(data []byte, from, to int) []byte {
	first, end := max(from-x.At, 0), min(to-x.At, x.N)
	data = append(data, x.Hash[:]...)
	for _, n := range []int{x.At + first - from, first, end} {
		data = binary.LittleEndian.AppendUint64(data, uint64(n))
	}
	if x.Positions == nil {
		return append(data, 0)
	}
	data = append(data, 1)
	for _, p := range x.Positions[first:end] {
		for _, n := range p {
			data = binary.LittleEndian.AppendUint32(data, uint32(n))
		}
	}
	return data
}

// chunk is a node's addition to its parent's prefix.
type chunk struct {
	ids  [backend.PageTokens]int32
	rows digest
}

// chunk is that of the tokens from at on.
func (t *Text) chunk(at int) chunk {
	end := at + backend.PageTokens
	return chunk{[backend.PageTokens]int32(t.Tokens[at:end]), t.digest(at, end)}
}

// root is that of a salt's text.
func (t *Text) root(salt Salt) root { return root{salt, t.Tokens[0], t.digest(0, 1)} }

// until is the first n tokens of the text.
func (t *Text) until(n int) Text { return Text{t.Tokens[:n], t.Inputs} }
