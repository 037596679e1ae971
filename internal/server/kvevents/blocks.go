package kvevents

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"slices"
)

// digest names a block with all that comes before it.
type digest = [sha256.Size]byte

// block is a block of tokens that subscribers know to be resumable, after those of its parent. All
// blocks of a boundary exist: a subscriber counts the known blocks of a prompt, from
// the first on.
type block struct {
	digest digest
	parent *block // nil: it is a text's first
	depth  int
	tokens []int32
	keys   []string // of places that overlap it
	refs   int      // boundaries at its end or after it
}

// keysWithin are the keys of places that the tokens [from, to) have a part of.
func keysWithin(places []Place, from, to int) (keys []string) {
	for _, p := range places {
		if p.At < to && p.At+p.N > from {
			keys = append(keys, p.Key)
		}
	}
	return keys
}

// id is the block's id for subscribers. It depends only on the model's name, the tokens and the
// keys, because a picker has one map of ids for all its servers.
func (b *block) id() uint64 {
	if b == nil {
		return 0
	}
	return max(binary.BigEndian.Uint64(b.digest[:]), 1) // 0 means no block
}

// model is the blocks of one model.
type model struct {
	root   digest
	size   int // tokens of a block
	blocks map[digest]*block
}

func newModel(name string, size int) *model {
	return &model{root: sha256.Sum256([]byte("foretoken blocks of " + name)), size: size, blocks: map[digest]*block{}}
}

// store adds a boundary after tokens, which are whole blocks.
func (m *model) store(b *batch, tokens []int32, places []Place) {
	var parent *block
	var fresh []*block
	d := m.root
	for at := 0; at+m.size <= len(tokens); at += m.size {
		part, keys := tokens[at:at+m.size], keysWithin(places, at, at+m.size)
		d = hashOf(d, part, keys)
		x := m.blocks[d]
		if x == nil {
			x = &block{digest: d, parent: parent, depth: at, tokens: part, keys: keys}
			m.blocks[d] = x
			fresh = append(fresh, x)
		}
		x.refs++
		parent = x
	}
	m.tell(b, fresh)
}

// remove removes the boundary after tokens.
func (m *model) remove(b *batch, tokens []int32, places []Place) {
	var gone []uint64
	d := m.root
	for at := 0; at+m.size <= len(tokens); at += m.size {
		d = hashOf(d, tokens[at:at+m.size], keysWithin(places, at, at+m.size))
		x := m.blocks[d]
		if x == nil {
			continue // never announced
		}
		if x.refs--; x.refs == 0 {
			delete(m.blocks, d)
			gone = append(gone, x.id())
		}
	}
	slices.Reverse(gone) // children before their parents
	b.removed(gone)
}

// tell adds the event of a run of new blocks, each the next one's parent.
func (m *model) tell(b *batch, run []*block) {
	if len(run) > 0 {
		b.stored(run[0].parent.id(), run, m.size)
	}
}

// ids are those of all blocks.
func (m *model) ids() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for _, x := range m.blocks {
			if !yield(x.id()) {
				return
			}
		}
	}
}

// runs are all blocks, in as few runs as possible, and each after the one with its parent.
func (m *model) runs() iter.Seq[[]*block] {
	return func(yield func([]*block) bool) {
		list := make([]*block, 0, len(m.blocks))
		children := map[*block][]*block{}
		for _, x := range m.blocks {
			list = append(list, x)
			children[x.parent] = append(children[x.parent], x)
		}
		slices.SortFunc(list, func(a, b *block) int { return cmp.Compare(a.depth, b.depth) })
		told := make(map[*block]bool, len(list))
		for _, x := range list {
			var run []*block
			for x != nil && !told[x] {
				told[x] = true
				run = append(run, x)
				next := children[x]
				if x = nil; len(next) > 0 {
					x = next[0]
				}
			}
			if len(run) > 0 && !yield(run) {
				return
			}
		}
	}
}
