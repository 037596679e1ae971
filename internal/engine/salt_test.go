package engine

import (
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/sample"
)

// TestSaltsShareNothing sends one prompt with different salts, in one process and the next: each finds the prefix of its own
// salt, and all have the same tokens and bits.
func TestSaltsShareNothing(t *testing.T) {
	m, pool := openModel(t, golden.Dir(t, "dense"), model.Options{})
	dir := t.TempDir()
	request := Request{
		Prompt: prompt(150, 2), MaxTokens: 8, Depth: 2, Hash: true, IgnoreEnd: true,
		Sampling: sample.Options{Seed: 4, Temperature: 1},
	}
	var want []int32
	var hash uint64
	for process, known := range []map[prefix.Salt][2]int{
		{{}: {0, 128}, {1}: {0, 128}, {2}: {0, 128}},
		{{}: {128, 128}, {1}: {128, 128}, {2}: {128, 128}, {3}: {0, 128}},
	} {
		disk, err := store.OpenDisk(dir, store.DiskOptions{Bytes: 1 << 30, Fingerprint: "dense"})
		if err != nil {
			t.Fatal(err)
		}
		e, err := New(m, pool, Options{Drafter: m.Drafter(), Cache: true, Disk: disk})
		if err != nil {
			t.Fatal(err)
		}
		for salt, cached := range known {
			request.Salt = salt
			for turn, n := range cached {
				ids, r, err := collect(e, request)
				if err != nil {
					t.Fatal(err)
				}
				if want == nil {
					want, hash = ids, r.LogitsHash
				}
				if r.Cached != n {
					t.Errorf("process %d, salt %x, turn %d: %d tokens known, want %d", process, salt, turn, r.Cached, n)
				}
				if !slices.Equal(ids, want) || r.LogitsHash != hash {
					t.Errorf("process %d, salt %x, turn %d: %v with hash %x, want %v with %x", process, salt, turn, ids, r.LogitsHash, want, hash)
				}
			}
		}
		e.Close()
		disk.Close()
	}
}

// TestPrefillKeepsToItsSalt has a prompt prefilled in the background: only its own salt finds it.
func TestPrefillKeepsToItsSalt(t *testing.T) {
	m, pool := openModel(t, golden.Dir(t, "dense"), model.Options{})
	e, err := New(m, pool, Options{Drafter: m.Drafter(), Cache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	text := prompt(100, 2)
	done, err := e.Prefill(Prefill{Prompt: text, Depth: 2, Salt: prefix.Salt{1}})
	if err != nil {
		t.Fatal(err)
	}
	<-done
	for salt, want := range map[prefix.Salt]int{{}: 0, {2}: 0, {1}: 100} {
		_, r, err := collect(e, Request{Prompt: append(slices.Clone(text), 6, 7), MaxTokens: 1, Depth: 2, Salt: salt})
		if err != nil || r.Cached != want {
			t.Errorf("salt %x: %d tokens known, %v, want %d", salt, r.Cached, err, want)
		}
	}
}
