//go:build long

package cuda

import (
	"bytes"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	_ "github.com/foretoken/foretoken/internal/model/gemma"
	"github.com/foretoken/foretoken/internal/model/modeltest"
)

// Recorded passes of a model with windows have the CPU's bits before and after pages are released.
func TestReleasedPagesHaveTheBitsOfTheCPU(t *testing.T) {
	const prompt, end = 96, 110
	var want [][]float32
	var saved []byte
	b := open(t, Options{})
	for i, b := range []backend.Backend{backendtest.CPU(t, backend.Options{Threads: 1}), b} {
		r := modeltest.OpenOn(t, b, golden.Dir(t, "gemma4_moe"), model.Options{Quantize: 8, MaxDrafts: 4})
		s := r.Sequence(t)
		var rows [][]float32
		for at, n := 0, prompt; at < end; at, n = at+n, 2 {
			tokens := make([]int32, n)
			for j := range tokens {
				tokens[j] = int32(5 + (at+j)%50)
			}
			out, _ := r.Feed(t, model.Span{State: s, Tokens: tokens, Want: 2})
			rows = append(rows, out...)
		}
		if first := s.Seq(0, 0, 0, nil).Windows[0].First; first != 1 {
			t.Fatalf("%d pages are released", first)
		}
		if x := modeltest.Saved(t, s); i == 0 {
			want, saved = rows, x
		} else if modeltest.Same(t, "logits", rows, want); !bytes.Equal(x, saved) {
			t.Error("the saved state has other bytes")
		}
	}
	if u := b.Usage()[0]; u.Replayed < 3 {
		t.Errorf("usage %+v", u)
	}
}
