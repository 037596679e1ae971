package qwen35

import (
	"fmt"
	"testing"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
)

// TestForwardAllocatesNothing checks rounds of a plain token, and of a token with draft tokens
// some of which hold, once everything has grown to its size. Pages for a longer text are
// the pool's business and are reserved before. On one thread: what of an operation another one
// meets, and so has memory for, is luck, and the device's own tests are about it.
func TestForwardAllocatesNothing(t *testing.T) {
	for _, name := range golden.Names {
		if testing.Short() && name == "tiny" {
			continue // portable kernels take their time
		}
		for _, drafts := range []int{0, 3} {
			t.Run(fmt.Sprintf("%s/drafts=%d", name, drafts), func(t *testing.T) {
				o := model.Options{MaxDrafts: 3}
				if name != "tiny" {
					o.Quantize = 4
				}
				r := open(t, golden.Dir(t, name), 1, o)
				s := r.Sequence(t)
				if err := s.Reserve(1000); err != nil {
					t.Fatal(err)
				}
				batch := []model.Span{{State: s, Tokens: make([]int32, 1+drafts), Drafts: drafts, Want: 1 + drafts}}
				round := func() {
					if _, err := r.Forward(batch); err != nil {
						t.Fatal(err)
					}
					s.Commit(drafts / 2)
				}
				for range 20 {
					round()
				}
				if n := testing.AllocsPerRun(20, round); n != 0 {
					t.Errorf("%v allocations a round", n)
				}
			})
		}
	}
}

// TestHeadAllocatesNothing is the same for a draft token of the head.
func TestHeadAllocatesNothing(t *testing.T) {
	r := open(t, golden.Dir(t, "dense"), 1, model.Options{Quantize: 4})
	s, err := r.Pool.Open(r.Head().Layout())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	hidden := r.Upload(t, make([]float32, r.Info().Width))
	batch := []model.Span{{State: s, Tokens: []int32{1}, Want: 1, Hidden: hidden}}
	draft := func() {
		if _, err := r.Head().Forward(batch, nil); err != nil {
			t.Fatal(err)
		}
		s.Truncate(0)
	}
	for range 20 {
		draft()
	}
	if n := testing.AllocsPerRun(100, draft); n != 0 {
		t.Errorf("%v allocations a draft token", n)
	}
}
