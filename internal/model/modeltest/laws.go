package modeltest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/state"
)

// Subject is a model to hold to the laws, and a text for it.
type Subject struct {
	Name, Dir string
	Options   model.Options
	Tokens    []int32
	// RowsFor are the tokens in whose place rows of the embedding give the same; nil: all. A model may know more of a token
	// than its row.
	RowsFor []int32
}

// law has a subject, and the logits and hidden rows of its whole text read at once.
type law struct {
	*Rig
	text   []int32
	want   [][]float32
	hidden []float32
	rowed  []int32 // see Subject
}

// Laws holds models to the laws of exactness: the bits of a sequence's logits do not depend on how its
// tokens were cut into calls, on its neighbors, on drafts rolled back, on saving and loading, or on the
// number of threads. They hold for the head as well, if there is one.
func Laws(t *testing.T, subjects []Subject) {
	for _, sub := range subjects {
		t.Run(sub.Name, func(t *testing.T) {
			x := sub.law(t, backendtest.Open(t, backend.Options{}))
			t.Run("ChunkInvariance", x.chunks)
			t.Run("BatchInvariance", x.batches)
			t.Run("CommitEqualsReplay", x.commit)
			t.Run("LoadEqualsNeverHavingStopped", x.load)
			t.Run("RowsEqualTokens", x.rows)
			t.Run("ThreadInvariance", func(t *testing.T) { threads(t, sub) })
			if x.Head() == nil {
				return
			}
			t.Run("HeadCatchesUp", x.catchUp)
			t.Run("HeadChainsOnTheDevice", sub.law(t, backendtest.Drawing(backendtest.Open(t, backend.Options{}))).chain)
		})
	}
}

func (sub Subject) law(t *testing.T, b backend.Backend) *law {
	t.Helper()
	x := &law{Rig: OpenOn(t, b, sub.Dir, sub.Options), text: sub.Tokens, rowed: sub.RowsFor}
	x.want, x.hidden = x.Feed(t, model.Span{State: x.Sequence(t), Tokens: x.text, Want: len(x.text)})
	return x
}

// chunks cuts a text into calls, for the model and for its head.
func (x *law) chunks(t *testing.T) {
	width, pairs := x.Info().Width, 0
	var drafts [][]float32
	if x.Head() != nil {
		pairs = len(x.text) - 1
		drafts, _ = x.FeedHead(t, x.Pairs(t), x.hidden[:pairs*width], x.text[1:])
	}
	for _, chunk := range []int{1, 7, 63, 64, 65} {
		var got, head [][]float32
		s := x.Sequence(t)
		var h *state.State
		if pairs > 0 {
			h = x.Pairs(t)
		}
		for at := 0; at < len(x.text); at += chunk {
			end := min(at+chunk, len(x.text))
			rows, out := x.Feed(t, model.Span{State: s, Tokens: x.text[at:end], Want: end - at})
			got = append(got, rows...)
			if last := min(end, pairs); last > at {
				rows, _ = x.FeedHead(t, h, out[:(last-at)*width], x.text[at+1:last+1])
				head = append(head, rows...)
			}
		}
		Same(t, fmt.Sprintf("chunks of %d", chunk), got, x.want)
		Same(t, fmt.Sprintf("drafts in chunks of %d", chunk), head, drafts)
	}
}

// catchUp feeds pairs without asking for drafts, which computes less.
func (x *law) catchUp(t *testing.T) {
	width, n := x.Info().Width, len(x.text)-1
	want, _ := x.FeedHead(t, x.Pairs(t), x.hidden[:n*width], x.text[1:])
	s := x.Pairs(t)
	if _, err := x.Head().Forward([]model.Span{{State: s, Tokens: x.text[1:n], Hidden: x.Upload(t, x.hidden[:(n-1)*width])}}, nil); err != nil {
		t.Fatal(err)
	}
	got, _ := x.FeedHead(t, s, x.hidden[(n-1)*width:n*width], x.text[n:])
	Same(t, "draft", got, want[n-1:])
}

// threads computes with several threads, on fewer processors too.
func threads(t *testing.T, sub Subject) {
	var want [][]float32
	text := sub.Tokens[:min(70, len(sub.Tokens))]
	for _, on := range []struct{ threads, procs int }{{1, 1}, {3, 2}, {2, 1}} {
		old := runtime.GOMAXPROCS(on.procs)
		r := Open(t, sub.Dir, on.threads, sub.Options)
		got, _ := r.Feed(t, model.Span{State: r.Sequence(t), Tokens: text, Want: len(text)})
		runtime.GOMAXPROCS(old)
		if want == nil {
			want = got
		}
		Same(t, fmt.Sprintf("%d threads on %d processors", on.threads, on.procs), got, want)
		if testing.Short() && on.threads == 3 {
			break
		}
	}
}

// batches feeds sequences together, each cut at random: prompts, tokens, and tokens with drafts of which some
// are accepted.
func (x *law) batches(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const n = 4
	var texts [n][]int32
	var want, got [n][][]float32
	var states [n]*state.State
	for i := range n {
		texts[i] = slices.Clone(x.text[:len(x.text)*(n-i)/n])
		rng.Shuffle(len(texts[i]), func(a, b int) { texts[i][a], texts[i][b] = texts[i][b], texts[i][a] })
		want[i], _ = x.Feed(t, model.Span{State: x.Sequence(t), Tokens: texts[i], Want: len(texts[i])})
		states[i] = x.Sequence(t)
	}
	for slices.ContainsFunc(states[:], func(s *state.State) bool { return s.Len() < len(texts[slices.Index(states[:], s)]) }) {
		var batch []model.Span
		var who, accepted []int
		for i, s := range states {
			left := texts[i][s.Len():]
			k := min(rng.IntN(9), len(left))
			if k == 0 {
				continue
			}
			span := model.Span{State: s, Tokens: slices.Clone(left[:k])}
			right := 0
			if rng.IntN(2) == 0 {
				right = rng.IntN(k)
				for span.Drafts = right; span.Drafts < min(right+rng.IntN(3), 8); span.Drafts++ {
					span.Tokens = append(span.Tokens, int32(rng.IntN(x.Info().Vocab)))
				}
			}
			span.Want = len(span.Tokens)
			batch, who, accepted = append(batch, span), append(who, i), append(accepted, right)
		}
		if len(batch) == 0 {
			continue
		}
		out, err := x.Forward(batch)
		if err != nil {
			t.Fatal(err)
		}
		rows := Rows(t, out)
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
		Same(t, fmt.Sprintf("sequence %d", i), got[i], want[i])
	}
}

// commit feeds drafts of which every number is accepted, across page borders, and goes on. Wrong drafts are
// followed by others, several times over.
func (x *law) commit(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, forced := range []int{-1, 0, 1, 4, 8} {
		if testing.Short() && forced >= 0 {
			continue
		}
		s, first := x.Sequence(t), len(x.text)*2/5
		got, _ := x.Feed(t, model.Span{State: s, Tokens: x.text[:first], Want: first})
		for s.Len() < len(x.text) {
			left := x.text[s.Len():]
			right := forced
			if forced < 0 {
				right = rng.IntN(6)
			}
			right = min(right, len(left)-1)
			tokens := slices.Clone(left[:1+right])
			for len(tokens) < 9 && (forced < 0 || len(tokens) < right+3) {
				tokens = append(tokens, int32(rng.IntN(x.Info().Vocab)))
			}
			rows, _ := x.Feed(t, model.Span{State: s, Tokens: tokens, Drafts: len(tokens) - 1, Want: len(tokens)})
			s.Commit(right)
			got = append(got, rows[:1+right]...)
		}
		Same(t, fmt.Sprintf("%d accepted", forced), got, x.want)
	}
}

// load saves in the middle of a page, with accepted drafts that are not yet part of recurrent states.
func (x *law) load(t *testing.T) {
	s, half := x.Sequence(t), len(x.text)/2
	x.Feed(t, model.Span{State: s, Tokens: x.text[:half]})
	x.Feed(t, model.Span{State: s, Tokens: x.text[half : half+4], Drafts: 3})
	s.Commit(2)
	snap, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	x.Feed(t, model.Span{State: s, Tokens: x.text[:3]}) // goes on elsewhere
	other := x.Sequence(t)
	if err := other.Load(snap); err != nil {
		t.Fatal(err)
	}
	at := half + 3
	if other.Len() != at || snap.Len() != at {
		t.Fatalf("loaded %d tokens, want %d", other.Len(), at)
	}
	got, _ := x.Feed(t, model.Span{State: other, Tokens: x.text[at:], Want: len(x.text) - at})
	Same(t, "after loading", got, x.want[at:])
}

// rows feeds rows of the embedding table in place of the ids that they are of, cut and mixed with ids at
// random, and positions where none are needed, to the model and to its head.
func (x *law) rows(t *testing.T) {
	rng, n, width := rand.New(rand.NewPCG(6, 14)), len(x.text), x.Info().Width
	pairs := func(s *state.State, span model.Span) []float32 {
		span.State, span.Want = s, len(span.Tokens)
		out, err := x.Head().Forward([]model.Span{span}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return x.Host(t, out.Hidden)
	}
	last := 0 // pairs
	var drafted []float32
	var memory *state.State
	if x.Head() != nil {
		last, memory = n-1, x.Pairs(t)
		drafted = pairs(x.Pairs(t), model.Span{Tokens: x.text[1:], Hidden: x.Upload(t, x.hidden[:(n-1)*width])})
	}
	rows := Embedded(t, x.Rig, x.text)
	s := x.Sequence(t)
	for at := 0; at < n; {
		end := min(at+1+rng.IntN(30), n)
		span := model.Span{State: s, Tokens: x.text[at:end], Want: end - at}
		x.disguise(rng, &span, rows.RowRange(at, end))
		if rng.IntN(2) > 0 {
			span.Positions = Consecutive(at, end-at)
		}
		logits, _ := x.Feed(t, span)
		Same(t, fmt.Sprintf("rows from %d on", at), logits, x.want[at:end])
		if last := min(end, last); last > at {
			span := model.Span{Tokens: x.text[at+1 : last+1], Hidden: x.Upload(t, x.hidden[at*width:last*width]), Positions: span.Positions}
			x.disguise(rng, &span, rows.RowRange(at+1, last+1))
			if span.Positions != nil {
				span.Positions = span.Positions[:last-at]
			}
			Same(t, fmt.Sprintf("pairs from %d on", at), [][]float32{pairs(memory, span)}, [][]float32{drafted[at*width : last*width]})
		}
		at = end
	}
}

// Embedded are the rows of the embedding table of some ids.
func Embedded(t *testing.T, r *Rig, ids []int32) backend.Tensor {
	t.Helper()
	x, err := r.B.Alloc(dtype.F32, len(ids), r.Info().Width)
	if err != nil {
		t.Fatal(err)
	}
	m := r.Model.(*network.Model)
	r.B.Embed(x, m.Embed, ids, m.EmbedFactor)
	return x
}

// disguise makes some of a span's tokens rows.
func (x *law) disguise(rng *rand.Rand, s *model.Span, rows backend.Tensor) {
	s.Tokens = slices.Clone(s.Tokens)
	other := func(id int32) bool { return x.rowed != nil && !slices.Contains(x.rowed, id) }
	for at := rng.IntN(3); at < len(s.Tokens); at += 1 + rng.IntN(3) {
		end := min(at+1+rng.IntN(6), len(s.Tokens))
		if i := slices.IndexFunc(s.Tokens[at:end], other); i >= 0 {
			end = at + i
		}
		if end == at {
			continue
		}
		s.Inputs = append(s.Inputs, backend.Input{At: at, Rows: rows.RowRange(at, end)})
		for ; at < end; at++ {
			s.Tokens[at] = model.NoToken
		}
	}
}

// Consecutive are the positions of n tokens of text, the first of which is the one at a slot.
func Consecutive(slot, n int) [][3]int32 {
	list := make([][3]int32, n)
	for i := range list {
		p := int32(slot + i)
		list[i] = [3]int32{p, p, p}
	}
	return list
}

// chain compares drafts that the device chains with those of one call each.
func (x *law) chain(t *testing.T) {
	width := x.Info().Width
	draws := [][]backend.Draw{{{}, {}}, {{}, {}}, {{}, {}}}
	lengths := []int{min(40, len(x.text)-1), 9}
	var batch []model.Span
	for _, n := range lengths {
		batch = append(batch, model.Span{State: x.Pairs(t), Tokens: x.text[1:n], Want: 1, Hidden: x.Upload(t, x.hidden[:(n-1)*width])})
	}
	drawn, ok, err := x.Head().(model.Chainer).Chain(batch, nil, draws)
	if err != nil || !ok {
		t.Fatalf("chained %t: %v", ok, err)
	}
	for j, n := range lengths {
		s := x.Pairs(t)
		logits, out := x.FeedHead(t, s, x.hidden[:(n-1)*width], x.text[1:n])
		for i := range draws {
			want := Argmax(logits[len(logits)-1])
			if got := drawn[i][j].ID; got != want {
				t.Fatalf("span %d, draft %d: %d, want %d", j, i, got, want)
			}
			logits, out = x.FeedHead(t, s, out[len(out)-width:], []int32{want})
		}
	}
}
