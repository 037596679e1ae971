package ngram

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/spec"
)

// open returns a drafter, and a run without a text.
func open(t testing.TB, o Options) (*Drafter, []spec.Run) {
	t.Helper()
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d, []spec.Run{{HostState: new(any)}}
}

// draft is what d says after a text.
func draft(t testing.TB, d *Drafter, run []spec.Run, text []int32, depth int) ([]int32, spec.Sources) {
	t.Helper()
	run[0].Text, run[0].Depth = text, depth
	d.Plan(run)
	out, err := d.Draft(run)
	if err != nil {
		t.Fatal(err)
	}
	return out[0].Tokens, run[0].Sources
}

// scan is the drafter as one would write it down: it looks through the whole text.
func scan(text []int32, o Options, depth int) (tokens []int32, match int) {
	for n := min(o.Max, len(text)); n >= o.Min; n-- {
		end := text[len(text)-n:]
		for at := len(text) - 1; at >= n; at-- {
			if !slices.Equal(text[at-n:at], end) {
				continue
			}
			for n < min(at, maxMatch) && text[at-n-1] == text[len(text)-n-1] {
				n++
			}
			long := slices.Clone(text)
			for j := range depth {
				long = append(long, long[at+j])
			}
			return long[len(text):], n
		}
	}
	return nil, 0
}

func TestDraftCopiesLatestLongestMatch(t *testing.T) {
	for _, c := range []struct {
		name  string
		text  []int32
		depth int
		want  []int32
		from  spec.Source
	}{
		{"nothing", nil, 4, nil, 0},
		{"one token", []int32{1}, 4, nil, 0},
		{"no repetition", []int32{1, 2, 3, 4, 5}, 4, nil, 0},
		{"one token again is too little", []int32{1, 2, 3, 1}, 4, nil, 0},
		{"two tokens", []int32{1, 2, 3, 4, 1, 2}, 2, []int32{3, 4}, spec.CopyOf2},
		{"the latest", []int32{1, 2, 3, 1, 2, 4, 9, 1, 2}, 1, []int32{4}, spec.CopyOf2},
		{"the longest before the latest", []int32{7, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2}, 1, []int32{3}, spec.CopyOf3},
		{"copies itself", []int32{1, 2, 1, 2}, 5, []int32{1, 2, 1, 2, 1}, spec.CopyOf2},
		{"one token for ever", []int32{5, 5, 5, 5, 5, 5}, 3, []int32{5, 5, 5}, spec.CopyOf4},
		{"depth 0", []int32{1, 2, 1, 2}, 0, nil, 0},
		{"a long match", []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8}, 1, []int32{9}, spec.CopyOf8},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, run := open(t, Options{})
			got, sources := draft(t, d, run, c.text, c.depth)
			if !slices.Equal(got, c.want) {
				t.Errorf("draft %v, want %v", got, c.want)
			}
			if c.want == nil {
				if sources != 0 {
					t.Errorf("offers %b without a match", sources)
				}
			} else if sources != spec.Sources(0).With(c.from) {
				t.Errorf("offers %b, want source %d", sources, c.from)
			}
		})
	}
}

// TestMatchIsAsLongAsByScan grows random texts of few ids by random steps. The index is roomy
// enough that hardly a place is lost.
func TestMatchIsAsLongAsByScan(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	same, all := 0, 0
	for round := range 40 {
		o := Options{Min: 1 + round%3, Max: 3 + round%6}
		d, run := open(t, o)
		var text []int32
		for len(text) < 400 {
			for range 1 + rng.IntN(6) {
				text = append(text, int32(rng.IntN(2+round)))
			}
			got, _ := draft(t, d, run, text, 5)
			_, match := scan(text, o, 5)
			all++
			if (*run[0].HostState).(*index).found.match >= match {
				same++
			}
			if len(got) > 0 && !follows(text, got, o.Min) {
				t.Fatalf("draft %v follows no match of %d tokens in %v", got, o.Min, text)
			}
		}
	}
	if t.Logf("%d of %d matches as long as by scanning", same, all); float64(same) < 0.97*float64(all) {
		t.Errorf("only %d of %d matches are as long as those of a scan", same, all)
	}
}

// TestDraftsKnowTokensOnly has something else than tokens in texts: it is not part of a match, and
// not copied.
func TestDraftsKnowTokensOnly(t *testing.T) {
	for _, c := range []struct {
		name        string
		text, draft []int32
	}{
		{"nothing but that", []int32{-1, -1, -1, -1, -1, -1}, nil},
		{"in the middle of a match", []int32{1, -1, 2, 3, 1, -1, 2}, nil},
		{"at the start of a match", []int32{-1, 2, 3, 4, -1, 2}, nil},
		{"at the end of a match", []int32{1, 2, -1, 4, 5, 1, 2, -1}, nil},
		{"right after a match", []int32{1, 2, -1, 4, 1, 2}, nil},
		{"right after the latest", []int32{1, 2, 3, 1, 2, -1, 4, 1, 2}, []int32{3, 1, 2}},
		{"soon after a match", []int32{1, 2, 3, -1, 4, 1, 2}, []int32{3}},
		{"before a match", []int32{-1, 1, 2, 3, 4, -1, 1, 2}, []int32{3, 4}},
	} {
		d, run := open(t, Options{})
		want := spec.Sources(0)
		if c.draft != nil {
			want = want.With(spec.CopyOf2)
		}
		if got, sources := draft(t, d, run, c.text, 3); !slices.Equal(got, c.draft) || sources != want {
			t.Errorf("%s: draft %v of %b, want %v of %b", c.name, got, sources, c.draft, want)
		}
	}
	rng := rand.New(rand.NewPCG(8, 14))
	drafts := 0
	for range 30 {
		d, run := open(t, Options{})
		var text []int32
		for len(text) < 300 {
			for range 1 + rng.IntN(6) {
				text = append(text, rng.Int32N(6)-1)
			}
			got, sources := draft(t, d, run, text, 4)
			if (len(got) > 0) != (sources != 0) || slices.Contains(got, -1) {
				t.Fatalf("draft %v of %b", got, sources)
			}
			if len(got) > 0 {
				drafts++
				if slices.Contains(text[len(text)-2:], -1) || !follows(text, got, 2) {
					t.Fatalf("draft %v follows no match in %v", got, text)
				}
			}
		}
	}
	if drafts == 0 {
		t.Error("nothing was drafted")
	}
}

// follows reports whether some place with the same n tokens before it goes on like that.
func follows(text, tokens []int32, n int) bool {
	long := slices.Concat(text, tokens)
	for at := n; at < len(text); at++ {
		if slices.Equal(text[at-n:at], text[len(text)-n:]) && slices.Equal(long[at:at+len(tokens)], tokens) {
			return true
		}
	}
	return false
}

// TestPlacesInOrder has several places with equal matches, and one with a longer match.
func TestPlacesInOrder(t *testing.T) {
	for _, c := range []struct {
		name         string
		prompt, text []int32
		want         int32
	}{
		{"prompt before answer", []int32{1, 2, 3, 9}, []int32{8, 1, 2, 4, 7, 1, 2}, 3},
		{"the latest of the prompt", []int32{1, 2, 3, 9, 1, 2, 5}, []int32{8, 1, 2, 4, 7, 1, 2}, 5},
		{"the longest, in the answer", []int32{1, 2, 3, 9}, []int32{7, 1, 2, 4, 8, 7, 1, 2}, 4},
		{"a token of the prompt before one of the answer", []int32{1, 2, 3, 1, 2}, []int32{6, 9, 1, 2}, 3},
	} {
		d, run := open(t, Options{})
		run[0].Prompt = len(c.prompt)
		if got, _ := draft(t, d, run, slices.Concat(c.prompt, c.text), 1); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: draft %v, want %d", c.name, got, c.want)
		}
	}
}

// pieces is a text of five pieces of forty tokens. The last two tokens of all pieces are equal, all others differ.
func pieces() []int32 {
	source := make([]int32, 200)
	for i := range source {
		source[i] = int32(i % 40)
		if i%40 < 38 {
			source[i] += int32(i / 40 * 100)
		}
	}
	return source
}

// TestShortMatchesKeepTheCopy copies a text up to a change that has three tokens of another place. Two tokens after the
// change, which are in every piece, the copy continues at its place.
func TestShortMatchesKeepTheCopy(t *testing.T) {
	source := pieces()
	d, run := open(t, Options{})
	run[0].Prompt = len(source)
	text := append(slices.Clone(source), source[80:110]...)
	draft(t, d, run, text, 1)
	text = append(text, source[10:13]...)
	if got, _ := draft(t, d, run, text, 2); !slices.Equal(got, source[13:15]) {
		t.Errorf("draft %v after three tokens of another place, want %v", got, source[13:15])
	}
	text = append(text, source[118:120]...)
	if got, _ := draft(t, d, run, text, 20); !slices.Equal(got, source[120:140]) {
		t.Errorf("draft %v after the change, want %v", got, source[120:140])
	}
}

// TestCopiesGoOnAfterEdits copies a text in which pieces are replaced, left out or added, by
// others of any length up to the window. Two tokens after each the copy goes on at its place,
// though both stand elsewhere too.
func TestCopiesGoOnAfterEdits(t *testing.T) {
	source := pieces()
	for out := range window + 1 {
		for in := range window + 1 - out {
			const cut = 118 - window // the edit ends before two tokens that are in every piece
			first := 118 - out
			text := slices.Clone(source)
			text = append(text, source[cut-20:first]...)
			d, run := open(t, Options{})
			run[0].Prompt = len(source)
			draft(t, d, run, text, 1)
			for i := range in {
				text = append(text, int32(1000+i))
			}
			text = append(text, source[118:120]...)
			if got, _ := draft(t, d, run, text, 20); !slices.Equal(got, source[120:140]) {
				t.Fatalf("%d tokens left out and %d added: draft %v, want %v", out, in, got, source[120:140])
			}
		}
	}
}

// TestHostStateCanBeMadeAgain drops host state at random, and hands in texts that are no
// continuation of the former: both cost nothing but time where drafts shape the text.
func TestHostStateCanBeMadeAgain(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	text := make([]int32, 3000)
	for i := range text {
		text[i] = int32(rng.IntN(20))
	}
	d, kept := open(t, Options{})
	_, dropped := open(t, Options{})
	kept[0].Dists, dropped[0].Dists = true, true
	for n := 10; n < len(text); n += 1 + rng.IntN(40) {
		want, _ := draft(t, d, kept, text[:n], 3)
		want = slices.Clone(want)
		if rng.IntN(4) == 0 {
			*dropped[0].HostState = nil
		}
		if got, _ := draft(t, d, dropped, text[:n], 3); !slices.Equal(got, want) {
			t.Fatalf("after %d tokens: %v, want %v", n, got, want)
		}
	}
	for range 200 {
		from, to := rng.IntN(len(text)), rng.IntN(len(text))
		part := text[min(from, to):max(from, to)]
		if got, _ := draft(t, d, kept, part, 3); len(got) > 0 && !follows(part, got, 2) {
			t.Fatalf("draft %v follows no match", got)
		}
	}
}

// TestIndexIsBounded reads a text far longer than an index has room for.
func TestIndexIsBounded(t *testing.T) {
	d, run := open(t, Options{})
	text := make([]int32, maxSlots/2)
	for i := range text {
		text[i] = int32(i)
	}
	text = append(text, text[len(text)-1000:len(text)-990]...)
	got, _ := draft(t, d, run, text, 2)
	x := (*run[0].HostState).(*index)
	if len(x.answer.slots) != maxSlots {
		t.Errorf("%d slots, want %d", len(x.answer.slots), maxSlots)
	}
	if next := text[maxSlots/2-990]; len(got) != 2 || got[0] != next {
		t.Errorf("draft %v, want %d and the one after it", got, next)
	}
}

func TestDraftRoundsDoNotAllocate(t *testing.T) {
	d, run := open(t, Options{})
	text := make([]int32, 4000)
	for i := range text {
		text[i] = int32(i * i % 61)
	}
	n := 2000 // between two growths of the index
	draft(t, d, run, text[:n], 8)
	if got := testing.AllocsPerRun(400, func() {
		n += 3
		draft(t, d, run, text[:n], 8)
	}); got != 0 {
		t.Errorf("%v allocations per round", got)
	}
}

func TestNewRefusesBadOptions(t *testing.T) {
	for _, o := range []Options{{Min: -1}, {Min: 5, Max: 4}, {Max: 17}, {Max: 1}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if d, err := New(Options{Min: 6}); err != nil || d.o.Max != 6 {
		t.Errorf("Min 6 alone: %v", err)
	}
	if _, err := New(Options{Max: maxMax}); err != nil {
		t.Errorf("Max %d: %v", maxMax, err)
	}
}

// FuzzDraft feeds a text in two pieces: no draft may come from nowhere, whatever the ids.
func FuzzDraft(f *testing.F) {
	f.Add([]byte("abcabcab"), 3, 8)
	f.Add([]byte{}, 0, 0)
	f.Fuzz(func(t *testing.T, data []byte, cut, depth int) {
		text := make([]int32, len(data))
		for i, b := range data {
			text[i] = int32(int8(b)) // ids below 0 too
		}
		depth = min(max(depth, 0), spec.MaxCopy)
		d, run := open(t, Options{})
		draft(t, d, run, text[:min(max(cut, 0), len(text))], depth)
		got, sources := draft(t, d, run, text, depth)
		if len(got) != 0 && len(got) != depth || (len(got) > 0) != (sources != 0) {
			t.Fatalf("%d drafts of %d, offers %b", len(got), depth, sources)
		}
		if len(got) > 0 && !follows(text, got, 2) {
			t.Fatalf("draft %v follows no match in %v", got, text)
		}
	})
}

// BenchmarkRound is a round with two new tokens of an answer after a prompt, of few ids that repeat or of many that do not.
// It reports the memory of the index.
func BenchmarkRound(b *testing.B) {
	for _, prompt := range []int{1 << 10, 1 << 15} {
		for _, ids := range []int32{50, 1 << 20} {
			b.Run(fmt.Sprintf("prompt=%d/ids=%d", prompt, ids), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 2))
				text := make([]int32, prompt+2000)
				for i := range text {
					text[i] = rng.Int32N(ids)
				}
				d, run := open(b, Options{})
				run[0].Prompt = prompt
				n := len(text)
				for b.Loop() {
					if n += 2; n > len(text) {
						n = prompt
						b.StopTimer()
						draft(b, d, run, text[:n], spec.MaxCopy)
						b.StartTimer()
					}
					draft(b, d, run, text[:n], spec.MaxCopy)
				}
				x := (*run[0].HostState).(*index)
				b.ReportMetric(float64(4*(len(x.prompt.slots)+len(x.answer.slots))), "index-bytes")
			})
		}
	}
}

// BenchmarkPrompt indexes a prompt of 32k tokens.
func BenchmarkPrompt(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	text := make([]int32, 1<<15)
	for i := range text {
		text[i] = rng.Int32N(1 << 17)
	}
	for b.Loop() {
		d, run := open(b, Options{})
		run[0].Prompt = len(text)
		draft(b, d, run, text, spec.MaxCopy)
	}
}
