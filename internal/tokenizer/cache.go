package tokenizer

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

const (
	// cachedWords bounds the cache: the everyday words of a language, and at
	// most 13 MB when every slot holds a long word of one-byte tokens.
	cachedWords = 1 << 15

	// maxCachedWord is the longest word worth remembering, in bytes. Longer
	// ones hardly ever come twice.
	maxCachedWord = 64
)

// wordCache remembers the ids of words. A word has two places, one for the
// latest word that maps to them and one for the word before it; so the cache is
// bounded without bookkeeping. Readers and writers need no lock: places are
// atomic pointers to immutable values.
type wordCache struct {
	seed   maphash.Seed
	places [][2]atomic.Pointer[cachedWord]
}

type cachedWord struct {
	word string
	ids  []int32
	near [4]int32 // the ids of most words, beside the word itself
}

func newWordCache() wordCache {
	return wordCache{
		seed:   maphash.MakeSeed(),
		places: make([][2]atomic.Pointer[cachedWord], cachedWords/2),
	}
}

// find returns the entry of word, or nil and where to put it.
func (c *wordCache) find(word string) (*cachedWord, *[2]atomic.Pointer[cachedWord]) {
	pair := &c.places[maphash.String(c.seed, word)%(cachedWords/2)]
	for i := range pair {
		if known := pair[i].Load(); known != nil && known.word == word {
			return known, pair
		}
	}
	return nil, pair
}

// put remembers a word where find said. It copies both arguments, so that the
// cache keeps no caller's text or ids alive.
func (*wordCache) put(pair *[2]atomic.Pointer[cachedWord], word string, ids []int32) {
	w := &cachedWord{word: strings.Clone(word)}
	w.ids = append(w.near[:0], ids...)
	pair[1].Store(pair[0].Swap(w))
}
