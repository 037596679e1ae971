package prefix

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/prefix/store"
)

// imageText is a text with images, and ids that identify the fed rows. They differ for two images, and for two positions
// of one image.
type imageText struct {
	text Text
	fed  []int32
}

// newImageText combines a text and two images of one size at random, at positions of three kinds. Many results begin with
// the same ids.
func newImageText(rng *rand.Rand, length int) (m imageText) {
	for len(m.fed) < length {
		if rng.IntN(3) == 0 {
			ids := story(0, 20)
			m.text.Tokens, m.fed = append(m.text.Tokens, ids...), append(m.fed, ids...)
			continue
		}
		kind, cols := rng.IntN(2), []int32{0, 7, 10}[rng.IntN(3)]
		in := Input{At: len(m.fed), N: 70, Hash: [32]byte{31: byte(kind)}}
		for row := range int32(in.N) {
			id := 1000 + 100*int32(kind) + row
			if cols > 0 {
				in.Positions = append(in.Positions, [3]int32{0, row / cols, row % cols})
				id += 1000*(1+row/cols) + 20000*(row%cols)
			}
			m.text.Tokens, m.fed = append(m.text.Tokens, -1), append(m.fed, id)
		}
		m.text.Inputs = append(m.text.Inputs, in)
	}
	m.text.Tokens, m.fed = m.text.Tokens[:length], m.fed[:length]
	return m
}

// TestImagesAreKeptApart stores texts with images, whose ids are all the same, at many lengths, and searches similar ones in
// memory and on disk. It must find the longest stored prefix of the fed rows, with its state.
func TestImagesAreKeptApart(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 14))
	dir := t.TempDir()
	n := newToy(t, 1<<22)
	d := openDisk(t, dir, store.DiskOptions{Fingerprint: "a", Bytes: 1 << 24})
	c := n.cache(d)
	var stored [][]int32
	for range 8 {
		m := newImageText(rng, 300)
		x := n.open()
		for at := 0; len(x.tokens) < 250; at = len(x.tokens) {
			end := at + []int{1, 19, 44, 64}[rng.IntN(4)*min(at, 1)]
			if end >= 300 || !x.feed(m.fed[end], m.fed[at:end]...) {
				break
			}
			x.write(x.row, 0, hash(x.tokens)+0.5)
			if err := c.Store(Salt{}, m.text.until(end), x.target, Draft{x.memory, x.row}); err != nil {
				t.Fatal(err)
			}
			stored = append(stored, slices.Clone(x.tokens))
		}
		x.close()
	}
	inside := 0
	check := func(where string, c *Cache) {
		t.Helper()
		for seed := range uint64(60) {
			m := newImageText(rand.New(rand.NewPCG(seed, 14)), 140+int(seed))
			want := 0
			for _, s := range stored {
				if len(s) < len(m.fed) && slices.Equal(s, m.fed[:len(s)]) {
					want = max(want, len(s))
				}
			}
			ready := make(chan struct{})
			if c.Fetch(Salt{}, m.text, func() { close(ready) }) {
				<-ready
			}
			got := 0
			if h := c.Find(Salt{}, m.text, true); h != nil {
				got = h.Len()
				x := n.open()
				x.restore(h, m.fed)
				x.close()
				h.Release()
			}
			if got != want {
				t.Errorf("%s, text %d: %d tokens found, want %d", where, seed, got, want)
			}
			if got > 0 && m.text.Tokens[got-1] < 0 && m.text.Tokens[got] < 0 {
				inside++
			}
		}
	}
	check("memory", c)
	c.Close()
	d.Close()
	n = newToy(t, 1<<22)
	c = n.cache(openDisk(t, dir, store.DiskOptions{Fingerprint: "a", Bytes: 1 << 24}))
	check("disk", c)
	c.Close()
	if inside == 0 {
		t.Error("no prefix ended inside of an image")
	}
	t.Logf("%d texts stored, %d found that end inside of an image", len(stored), inside)
}

// TestDigestOfText checks that text has no digest, and that of rows depends on the rows and their places.
func TestDigestOfText(t *testing.T) {
	text := Text{Inputs: []Input{{At: 10, N: 20, Hash: [32]byte{1}}, {At: 30, N: 5, Hash: [32]byte{2}}}}
	if text.digest(0, 10) != (digest{}) || text.digest(35, 99) != (digest{}) {
		t.Error("text has a digest")
	}
	first := func(kind byte) root {
		text := Text{Tokens: []int32{-1}, Inputs: []Input{{N: 1, Hash: [32]byte{kind}}}}
		return text.root(Salt{})
	}
	if first(1) == first(2) {
		t.Error("texts that begin with different images have one root")
	}
	seen := map[digest][2]int{}
	for from := range 36 {
		for to := from + 1; to < 40; to++ {
			d := text.digest(from, to)
			if d == (digest{}) != (to <= 10 || from >= 35) {
				t.Errorf("[%d, %d): digest %x", from, to, d)
			}
			if other, ok := seen[d]; ok && d != (digest{}) && (min(to, 35) != min(other[1], 35) || from != other[0]) {
				t.Errorf("[%d, %d) has the digest of %d", from, to, other)
			}
			seen[d] = [2]int{from, to}
		}
	}
}
