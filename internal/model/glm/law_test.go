package glm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// The laws of exactness: the bits of a sequence's logits do not depend on how its tokens were cut
// into calls, on its neighbors, on drafts rolled back, on saving and loading, or on the number of
// threads. They hold for the head as well.

// subject is a model to hold to the laws, and a text for it that crosses two page borders.
type subject struct {
	name, dir string
	o         model.Options
	tokens    []int32
}

func subjects(t *testing.T) (list []subject) {
	for _, name := range golden.GLM {
		f := golden.Load(t, name)
		tokens := f.Cases[2].Tokens[:136]
		for _, o := range []model.Options{
			{Compute: backend.Float32}, {Compute: backend.Int8, Quantize: 4}, {Compute: backend.Int8, Quantize: 8, KVBits: 8},
		} {
			if testing.Short() && (name == "glm4_moe_air" || (o.Compute == backend.Float32) != (name == "deepseek_v3") || o.Quantize == 4) {
				continue // one of each path
			}
			o.MaxDrafts = 8
			list = append(list, subject{fmt.Sprintf("%s/%v/kv=%d", name, o.Compute, o.KVBits), golden.Dir(t, name), o, tokens})
		}
	}
	return list
}

// each runs a test for every subject, with the logits of its whole text read at once, and the hidden
// rows.
func each(t *testing.T, test func(t *testing.T, r *rig, text []int32, want [][]float32, hidden []float32)) {
	eachOn(t, func(b backend.Backend) backend.Backend { return b }, test)
}

// eachOn is each with another device.
func eachOn(t *testing.T, on func(b backend.Backend) backend.Backend, test func(t *testing.T, r *rig, text []int32, want [][]float32, hidden []float32)) {
	for _, sub := range subjects(t) {
		t.Run(sub.name, func(t *testing.T) {
			r := openOn(t, on(backendtest.Open(t, backend.Options{})), sub.dir, sub.o)
			want, hidden := r.feed(t, model.Span{State: r.sequence(t), Tokens: sub.tokens, Want: len(sub.tokens)})
			test(t, r, sub.tokens, want, hidden)
		})
	}
}

// TestForwardChunkInvariance cuts a text into calls, for the model and for its head.
func TestForwardChunkInvariance(t *testing.T) {
	each(t, func(t *testing.T, r *rig, text []int32, want [][]float32, hidden []float32) {
		width := r.Info().Width
		pairs := len(text) - 1
		drafts, _ := r.feedHead(t, r.pairs(t), hidden[:pairs*width], text[1:])
		for _, chunk := range []int{1, 7, 63, 64, 65} {
			var got, head [][]float32
			s, h := r.sequence(t), r.pairs(t)
			for at := 0; at < len(text); at += chunk {
				end := min(at+chunk, len(text))
				rows, out := r.feed(t, model.Span{State: s, Tokens: text[at:end], Want: end - at})
				got = append(got, rows...)
				if last := min(end, pairs); last > at {
					rows, _ = r.feedHead(t, h, out[:(last-at)*width], text[at+1:last+1])
					head = append(head, rows...)
				}
			}
			same(t, fmt.Sprintf("chunks of %d", chunk), got, want)
			same(t, fmt.Sprintf("drafts in chunks of %d", chunk), head, drafts)
		}
	})
}

// TestHeadCatchesUp feeds pairs without asking for drafts, which computes less.
func TestHeadCatchesUp(t *testing.T) {
	each(t, func(t *testing.T, r *rig, text []int32, _ [][]float32, hidden []float32) {
		width, n := r.Info().Width, len(text)-1
		want, _ := r.feedHead(t, r.pairs(t), hidden[:n*width], text[1:])
		s := r.pairs(t)
		x, err := r.b.Alloc(dtype.F32, n-1, width)
		if err == nil {
			err = r.b.Write(x, hidden[:(n-1)*width])
		}
		if err == nil {
			_, err = r.head.Forward([]model.Span{{State: s, Tokens: text[1:n], Hidden: x}}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, _ := r.feedHead(t, s, hidden[(n-1)*width:n*width], text[n:])
		same(t, "draft", got, want[n-1:])
	})
}

// TestForwardThreadInvariance computes with several threads.
func TestForwardThreadInvariance(t *testing.T) {
	for _, sub := range subjects(t) {
		t.Run(sub.name, func(t *testing.T) {
			var want [][]float32
			for _, threads := range []int{1, 2, 3} {
				r := open(t, sub.dir, threads, sub.o)
				got, _ := r.feed(t, model.Span{State: r.sequence(t), Tokens: sub.tokens[:70], Want: 70})
				if want == nil {
					want = got
				}
				same(t, fmt.Sprintf("%d threads", threads), got, want)
			}
		})
	}
}

// TestForwardBatchInvariance feeds sequences together, each cut at random: prompts, tokens, and
// tokens with drafts of which some are accepted.
func TestForwardBatchInvariance(t *testing.T) {
	each(t, func(t *testing.T, r *rig, text []int32, _ [][]float32, _ []float32) {
		rng := rand.New(rand.NewPCG(1, 2))
		const n = 4
		var texts [n][]int32
		var want, got [n][][]float32
		var states [n]*state.State
		for i := range n {
			texts[i] = slices.Clone(text[:len(text)-11*i])
			rng.Shuffle(len(texts[i]), func(a, b int) { texts[i][a], texts[i][b] = texts[i][b], texts[i][a] })
			want[i], _ = r.feed(t, model.Span{State: r.sequence(t), Tokens: texts[i], Want: len(texts[i])})
			states[i] = r.sequence(t)
		}
		for {
			var batch []model.Span
			var who, accepted []int
			for i, s := range states {
				left := texts[i][s.Len():]
				if k := min(rng.IntN(9), len(left)); k > 0 {
					span := model.Span{State: s, Tokens: slices.Clone(left[:k])}
					right := 0
					if rng.IntN(2) == 0 {
						right = rng.IntN(k)
						for span.Drafts = right; span.Drafts < min(right+rng.IntN(3), 8); span.Drafts++ {
							span.Tokens = append(span.Tokens, int32(rng.IntN(r.Info().Vocab)))
						}
					}
					span.Want = len(span.Tokens)
					batch, who, accepted = append(batch, span), append(who, i), append(accepted, right)
				}
			}
			if len(batch) == 0 {
				if !slices.ContainsFunc(states[:], func(s *state.State) bool { return s.Len() < len(texts[slices.Index(states[:], s)]) }) {
					break
				}
				continue
			}
			out, err := r.Forward(batch)
			if err != nil {
				t.Fatal(err)
			}
			rows := rowsOf(t, out)
			for j, i := range who {
				span := &batch[j]
				if span.Drafts > 0 {
					span.State.Commit(accepted[j])
				}
				got[i] = append(got[i], rows[:span.Want-span.Drafts+accepted[j]*min(span.Drafts, 1)]...)
				rows = rows[span.Want:]
			}
		}
		for i := range n {
			same(t, fmt.Sprintf("sequence %d", i), got[i], want[i])
		}
	})
}

// TestStateCommitEqualsReplay feeds drafts of which every number is accepted, across page borders,
// and goes on.
func TestStateCommitEqualsReplay(t *testing.T) {
	each(t, func(t *testing.T, r *rig, text []int32, want [][]float32, _ []float32) {
		rng := rand.New(rand.NewPCG(3, 4))
		for _, forced := range []int{-1, 0, 1, 4, 8} {
			if testing.Short() && forced >= 0 {
				continue
			}
			s := r.sequence(t)
			got, _ := r.feed(t, model.Span{State: s, Tokens: text[:55], Want: 55})
			for s.Len() < len(text) {
				left := text[s.Len():]
				right := forced
				if forced < 0 {
					right = rng.IntN(6)
				}
				right = min(right, len(left)-1)
				tokens := slices.Clone(left[:1+right])
				for len(tokens) < 9 && (forced < 0 || len(tokens) < right+3) {
					tokens = append(tokens, int32(rng.IntN(r.Info().Vocab)))
				}
				rows, _ := r.feed(t, model.Span{State: s, Tokens: tokens, Drafts: len(tokens) - 1, Want: len(tokens)})
				s.Commit(right)
				got = append(got, rows[:1+right]...)
			}
			same(t, fmt.Sprintf("%d accepted", forced), got, want)
		}
	})
}

// TestStateLoadEqualsNeverHavingStopped saves in the middle of a page.
func TestStateLoadEqualsNeverHavingStopped(t *testing.T) {
	each(t, func(t *testing.T, r *rig, text []int32, want [][]float32, _ []float32) {
		s := r.sequence(t)
		r.feed(t, model.Span{State: s, Tokens: text[:70]})
		r.feed(t, model.Span{State: s, Tokens: text[70:74], Drafts: 3})
		s.Commit(2)
		snap, err := s.Save()
		if err != nil {
			t.Fatal(err)
		}
		defer snap.Close()
		r.feed(t, model.Span{State: s, Tokens: text[:3]}) // goes on elsewhere
		other := r.sequence(t)
		if err := other.Load(snap); err != nil {
			t.Fatal(err)
		}
		got, _ := r.feed(t, model.Span{State: other, Tokens: text[73:], Want: len(text) - 73})
		same(t, "after loading", got, want[73:])
	})
}

// TestRowsEqualTokens feeds rows of the embedding table in place of ids, and positions where none
// are needed.
func TestRowsEqualTokens(t *testing.T) {
	each(t, func(t *testing.T, r *rig, text []int32, want [][]float32, _ []float32) {
		rows, err := r.b.Alloc(dtype.F32, len(text), r.Info().Width)
		if err != nil {
			t.Fatal(err)
		}
		r.b.Embed(rows, r.Embed, text)
		mixed, positions := slices.Clone(text), make([][3]int32, len(text))
		for i := range text {
			if positions[i] = [3]int32{int32(i), int32(i), int32(i)}; i >= 20 && i < 50 || i > 100 {
				mixed[i] = model.NoToken
			}
		}
		inputs := []backend.Input{{At: 20, Rows: rows.RowRange(20, 50)}, {At: 101, Rows: rows.RowRange(101, len(text))}}
		got, _ := r.feed(t, model.Span{State: r.sequence(t), Tokens: mixed, Inputs: inputs, Positions: positions, Want: len(text)})
		same(t, "rows", got, want)
	})
}

// TestHeadChainsOnTheDevice compares drafts that the device chains with those of one call each.
func TestHeadChainsOnTheDevice(t *testing.T) {
	eachOn(t, backendtest.Drawing, func(t *testing.T, r *rig, text []int32, _ [][]float32, hidden []float32) {
		width, n := r.Info().Width, 40
		upload := func(rows []float32) backend.Tensor {
			x, err := r.b.Alloc(dtype.F32, len(rows)/width, width)
			if err == nil {
				err = r.b.Write(x, rows)
			}
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		draws := [][]backend.Draw{{{}, {}}, {{}, {}}, {{}, {}}}
		batch := []model.Span{
			{State: r.pairs(t), Tokens: text[1:n], Want: 1, Hidden: upload(hidden[:(n-1)*width])},
			{State: r.pairs(t), Tokens: text[1:9], Want: 1, Hidden: upload(hidden[:8*width])},
		}
		drawn, ok, err := r.head.Chain(batch, nil, draws)
		if err != nil || !ok {
			t.Fatalf("chained %t: %v", ok, err)
		}
		for j, n := range []int{n, 9} {
			s := r.pairs(t)
			logits, out := r.feedHead(t, s, hidden[:(n-1)*width], text[1:n])
			for i := range draws {
				want := argmax(logits[len(logits)-1])
				if got := drawn[i][j].ID; got != want {
					t.Fatalf("span %d, draft %d: %d, want %d", j, i, got, want)
				}
				logits, out = r.feedHead(t, s, out[len(out)-width:], []int32{want})
			}
		}
	})
}
