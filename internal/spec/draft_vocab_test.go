package spec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/sampling"
)

func TestDraftVocabSize(t *testing.T) {
	for _, c := range []struct{ vocab, want, length int }{
		{8192, 0, 2048},
		{8192, -1, 8192},
		{8192, 100, 100},
		{8192, 9000, 8192},
		{512, 0, 512},
		{248320, 0, 32768},
	} {
		if got := draftVocabSize(c.vocab, c.want); got != c.length {
			t.Errorf("vocabulary of %d, %d wanted: %d, want %d", c.vocab, c.want, got, c.length)
		}
	}
}

func TestDraftVocabSizes(t *testing.T) {
	for vocab, want := range map[int][]int{8192: {1024, 2048, 4096, 8192}, 1500: {1500}} {
		if got := draftVocabSizes(vocab); !slices.Equal(got, want) {
			t.Errorf("vocabulary of %d: sizes %v, want %v", vocab, got, want)
		}
	}
}

// TestDraftVocabHasWhatTheTextUsed checks that the list is the frequent blocks, then the
// rare ones of all texts of a batch, each once and in order.
func TestDraftVocabHasWhatTheTextUsed(t *testing.T) {
	s := DraftVocab{frequent: 40, vocab: 1000}
	run := func(text ...int32) Run { return Run{HostState: new(any), Text: text, Depth: 1} }
	a, b := run(3, 999, 500), run(501, 47, 48)
	if got, want := s.Of([]Run{a}), []int32{0, 1, 2, 31, 62}; !slices.Equal(got, want) {
		t.Errorf("blocks %v, want %v", got, want)
	}
	if got, want := s.Of([]Run{a, b}), []int32{0, 1, 2, 3, 31, 62}; !slices.Equal(got, want) {
		t.Errorf("blocks %v, want %v", got, want)
	}
	a.Text = append(a.Text, 700)
	if got, want := s.Of([]Run{a}), []int32{0, 1, 2, 31, 43, 62}; !slices.Equal(got, want) {
		t.Errorf("blocks %v, want %v", got, want)
	}
	a.Text = []int32{5} // another text
	if got, want := s.Of([]Run{a}), []int32{0, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("blocks %v, want %v", got, want)
	}
	if all := (&DraftVocab{frequent: 1000, vocab: 1000}).Of([]Run{a}); all != nil {
		t.Errorf("blocks %v of a whole vocabulary, want nil", all)
	}
}

// TestDraftVocabKnowsTokensOnly has long and short texts of what is no token.
func TestDraftVocabKnowsTokensOnly(t *testing.T) {
	for _, n := range []int{1, 3 * maxSeen} {
		s := DraftVocab{vocab: 100_000} // no token is frequent
		text := append(slices.Repeat([]int32{-1}, n), 500)
		for _, want := range [][]int32{{31}, {0, 31}} {
			if got := s.Of([]Run{{HostState: new(any), Text: text, Depth: 1}}); !slices.Equal(got, want) {
				t.Errorf("blocks %v after %d that are no tokens, want %v, those of the tokens", got, n, want)
			}
			text = append(text, 0) // a token, too
		}
	}
}

// TestEnoughIsWhereTheKeptBlocksBegin has texts of few and of many blocks, of which some are
// frequent and some no tokens, around the lengths at which there are as many as are kept.
func TestEnoughIsWhereTheKeptBlocksBegin(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	kinds := map[bool]int{}
	for i := range 300 {
		first := int32(i % 3)
		most := maxSeen - 20 + rng.Int32N(100) // blocks
		text := make([]int32, rng.IntN(12*maxSeen))
		for i := range text {
			text[i] = rng.Int32N((most+1)*backend.RowBlock) - backend.RowBlock
		}
		want, used := 0, map[int32]bool{}
		for at := len(text) - 1; at >= 0 && len(used) < maxSeen; at-- {
			if id := text[at]; id >= first*backend.RowBlock && !used[id/backend.RowBlock] {
				used[id/backend.RowBlock], want = true, at
			}
		}
		if len(used) < maxSeen {
			want = 0
		}
		if got := latest(text, first); got != want {
			t.Fatalf("%d tokens of %d blocks, frequent below %d: those from %d on are enough, want %d", len(text), most, first, got, want)
		}
		kinds[want > 0]++
	}
	if kinds[true] < 50 || kinds[false] < 50 {
		t.Errorf("%d texts have enough, and %d have not", kinds[true], kinds[false])
	}
}

func TestBlocksAreTheDraftVocabulary(t *testing.T) {
	all := NewDraftVocab(512, -1, nil)
	if got := all.After(512, []int32{1}); got != nil {
		t.Errorf("a list of all tokens is %v", got)
	}
	s := NewDraftVocab(512, 32, nil)
	if got, want := s.After(32, []int32{5, 100, 40, 101}), []int32{0, 1, 2, 6}; !slices.Equal(got, want) {
		t.Errorf("blocks %v, want %v", got, want)
	}
}

func TestDraftVocabIsBounded(t *testing.T) {
	var x seen
	text := make([]int32, 20000)
	for i := range text {
		text[i] = int32(i * 16)
	}
	if x.update(text, 1, nil); len(x.blocks) != maxSeen || !slices.IsSorted(x.blocks) {
		t.Errorf("%d blocks", len(x.blocks))
	}
}

// TestDraftVocabKeepsWhatWasUsedLast compares with the last distinct blocks of random texts,
// whatever pieces they come in; blocks of control tokens are there beside them.
func TestDraftVocabKeepsWhatWasUsedLast(t *testing.T) {
	const first = 10
	control := []int32{3, first, 900, 1500}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		text := make([]int32, 3000)
		for i := range text {
			text[i] = rng.Int32N(2000 * backend.RowBlock)
		}
		var x seen
		for at := 0; at < len(text); {
			at = min(at+1+rng.IntN(400), len(text))
			x.update(text[:at], first, control)
			want := slices.DeleteFunc(slices.Clone(control), func(b int32) bool { return b < first })
			for i := at - 1; i >= 0 && len(want) < maxSeen; i-- {
				if b := text[i] / backend.RowBlock; b >= first && !slices.Contains(want, b) {
					want = append(want, b)
				}
			}
			slices.Sort(want)
			if !slices.Equal(x.blocks, want) {
				t.Fatalf("seed %d: after %d tokens %d blocks, not the %d that were used last", seed, at, len(x.blocks), len(want))
			}
		}
	}
}

// TestDraftVocabIsPrivate has two texts in a batch: each is offered what the frequent
// tokens and its own are, not what the other has said.
func TestDraftVocabIsPrivate(t *testing.T) {
	s := DraftVocab{frequent: 32, vocab: 1000, control: []int32{61}}
	batch := []Run{{HostState: new(any), Text: []int32{3, 500}, Depth: 1}, {HostState: new(any), Text: []int32{700, 999, 40}, Depth: 1}}
	if got, want := s.Of(batch), []int32{0, 1, 2, 31, 43, 61, 62}; !slices.Equal(got, want) {
		t.Fatalf("blocks %v, want %v", got, want)
	}
	for i, own := range [][]int32{{0, 1, 31, 61}, {0, 1, 2, 43, 61, 62}} {
		row := sampling.Row{All: make([]float32, 1000)}
		known := sampling.Row{Also: []int32{3, 690, 991}, AlsoLogits: []float32{1, 2, 3}}
		for id := range int32(1000) {
			if slices.Contains(s.blocks, id/backend.RowBlock) && id%3 == 0 { // others are minus infinity
				known.IDs, known.Logits = append(known.IDs, id), append(known.Logits, float32(id))
			}
		}
		want := len(own) * backend.RowBlock
		if n, m := s.Confine(&row, &batch[i]), s.Confine(&known, &batch[i]); n != want || m != want {
			t.Errorf("run %d: draft vocabulary of %d and %d, want %d", i, n, m, want)
		}
		mine := func(id int) bool { return slices.Contains(own, int32(id/backend.RowBlock)) }
		for id, x := range row.All {
			if others := slices.Contains(s.blocks, int32(id/backend.RowBlock)) && !mine(id); math.IsInf(float64(x), -1) != others {
				t.Fatalf("run %d: token %d is %v", i, id, x)
			}
			at, found := slices.BinarySearch(known.IDs, int32(id))
			if found != (mine(id) && id%3 == 0) || found && known.Logits[at] != float32(id) {
				t.Fatalf("run %d: token %d is known is %v, at %d of %v", i, id, found, at, known.Logits)
			}
		}
		for j, id := range known.Also {
			if x := known.AlsoLogits[j]; math.IsInf(float64(x), -1) == mine(int(id)) {
				t.Errorf("run %d: token %d is %v", i, id, x)
			}
		}
	}
}

// BenchmarkDraftVocab takes in a prompt of rare words only, and then one token at a time.
func BenchmarkDraftVocab(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	text := make([]int32, 100_000)
	for i := range text {
		text[i] = 32768 + rng.Int32N(248320-32768)
	}
	b.Run("prompt", func(b *testing.B) {
		for b.Loop() {
			var x seen
			x.update(text, 2048, nil)
		}
	})
	b.Run("token", func(b *testing.B) {
		var x seen
		x.update(text[:2000], 2048, nil)
		b.ReportAllocs()
		n := 2000
		for b.Loop() {
			if n++; n > len(text) {
				x.upTo, n = 2000, 2001
			}
			x.update(text[:n], 2048, nil)
		}
	})
	b.Run("confine", func(b *testing.B) { // sixteen texts with a hundred rare blocks each
		list := DraftVocab{frequent: 32768, vocab: 248320}
		var batch []Run
		for i := range 16 {
			batch = append(batch, Run{HostState: new(any), Text: text[i*100:][:100], Depth: 1})
		}
		list.Of(batch)
		row := sampling.Row{All: make([]float32, list.vocab)}
		for b.Loop() {
			list.Confine(&row, &batch[0])
		}
	})
}
