package prefix

import (
	"testing"

	"github.com/foretoken/foretoken/internal/prefix/store"
)

// TestSaltsKeepTextsApart stores a text under one salt and searches it under others, in memory and on disk.
func TestSaltsKeepTextsApart(t *testing.T) {
	dir := t.TempDir()
	n := newToy(t, 1<<20)
	d := openDisk(t, dir, store.DiskOptions{Fingerprint: "a"})
	c := n.cache(d)
	tokens := story(1, 201)
	length := func(c *Cache, salt Salt) int {
		ready := make(chan struct{})
		if c.Fetch(salt, Text{Tokens: tokens}, func() { close(ready) }) {
			<-ready
		}
		h := c.Find(salt, Text{Tokens: tokens}, true)
		if h == nil {
			return 0
		}
		defer h.Release()
		x := n.open()
		defer x.close()
		x.restore(h, tokens)
		return h.Len()
	}
	put := func(salt Salt, at int) {
		t.Helper()
		x := n.open()
		defer x.close()
		x.feed(tokens[at], tokens[:at]...)
		x.write(x.row, 0, hash(x.tokens)+0.5)
		if err := c.Store(salt, Text{Tokens: x.tokens}, x.target, Draft{x.memory, x.row}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[Salt]int{{}: 0, {1}: 100, {2}: 0, {3}: 150, {15: 1}: 0}
	put(Salt{1}, 100)
	put(Salt{3}, 150)
	for salt, l := range want {
		if got := length(c, salt); got != l {
			t.Errorf("salt %x: %d tokens found, want %d", salt, got, l)
		}
	}
	// Salts share no nodes, so the counters reveal nothing about texts of another salt.
	if s := c.Stats(); s.Entries != 2 || len(c.roots) != 2 {
		t.Errorf("%+v, %d roots", s, len(c.roots))
	}
	c.Close()
	d.Close()
	n = newToy(t, 1<<20)
	c = n.cache(openDisk(t, dir, store.DiskOptions{Fingerprint: "a"}))
	for salt, l := range want {
		if got := length(c, salt); got != l {
			t.Errorf("salt %x: %d tokens found on disk, want %d", salt, got, l)
		}
	}
	// Memory is shared by all salts: the least recently used entry is evicted, of any salt.
	length(c, Salt{1})
	c.Shrink(1)
	if c.longest(Salt{3}, Text{Tokens: tokens}, true) != nil || c.longest(Salt{1}, Text{Tokens: tokens}, true) == nil {
		t.Error("another entry than the one used the longest ago was given up")
	}
	c.Close()
}
