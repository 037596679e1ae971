package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/filetest"
)

// plainBPE is byte-pair encoding by its definition, on the spelling of the
// file: spelled tokens, a map of ranks, one merge at a time.
type plainBPE struct {
	vocab map[string]int32
	ranks map[[2]string]int
}

func newPlainBPE(tb testing.TB, file []byte) *plainBPE {
	tb.Helper()
	var doc struct {
		Model struct {
			Vocab  map[string]int32
			Merges [][2]string
		}
	}
	filetest.Decode(tb, file, &doc)
	p := &plainBPE{vocab: doc.Model.Vocab, ranks: map[[2]string]int{}}
	for i, m := range doc.Model.Merges {
		p.ranks[m] = i
	}
	return p
}

func (p *plainBPE) encode(word string) []int32 {
	var parts []string
	for i := range len(word) {
		parts = append(parts, string(rune(slices.Index(byteOf[:], int16(word[i])))))
	}
	return p.merge(parts)
}

func (p *plainBPE) merge(parts []string) []int32 {
	for {
		best, at := len(p.ranks), -1
		for i := range len(parts) - 1 {
			if rank, ok := p.ranks[[2]string{parts[i], parts[i+1]}]; ok && rank < best {
				best, at = rank, i
			}
		}
		if at < 0 {
			break
		}
		parts = slices.Replace(parts, at, at+2, parts[at]+parts[at+1])
	}
	ids := make([]int32, len(parts))
	for i, part := range parts {
		ids[i] = p.vocab[part]
	}
	return ids
}

func TestBPEEqualsDefinition(t *testing.T) {
	file := tinyFile(t)
	tok, plain := mustNew(t, file), newPlainBPE(t, file)
	rng := rand.New(rand.NewPCG(7, 8))
	n := 2000
	if testing.Short() {
		n = 300
	}
	for range n {
		// Tokens side by side make the most merges; single letters and bytes
		// make the odd ones.
		var b strings.Builder
		for size := rng.IntN(2 * shortWord); b.Len() < size; {
			switch rng.IntN(4) {
			case 0:
				b.WriteByte("etaoinshr "[rng.IntN(10)])
			case 1:
				b.WriteByte(byte(rng.IntN(256)))
			default:
				text, _ := tok.Token(int32(rng.IntN(tok.Size())))
				b.WriteString(text)
			}
		}
		word := b.String()
		if word == "" {
			continue
		}
		want := plain.encode(word)
		if got := tok.bpe.append(nil, word); !slices.Equal(got, want) {
			t.Fatalf("append(%q)\n got %v\nwant %v", word, got, want)
		}
		if got := tok.bpe.appendLong(nil, word); !slices.Equal(got, want) {
			t.Fatalf("appendLong(%q)\n got %v\nwant %v", word, got, want)
		}
	}
}

// TestBPETakesLeftmostOfEquals has runs where every pair has the same rank.
func TestBPETakesLeftmostOfEquals(t *testing.T) {
	tok := mustNew(t, smallFile(t, nil))
	for n := 1; n < 3*shortWord; n++ {
		want := slices.Repeat([]int32{257}, n/2)
		if n%2 == 1 {
			want = append(want, 'l')
		}
		checkIDs(t, tok, strings.Repeat("l", n), want...)
	}
}

func TestBPEIgnoreMergesKeepsWholeTokens(t *testing.T) {
	// "ello" is a token that no merge makes.
	checkIDs(t, mustNew(t, smallFile(t, nil)), "ello", 'e', 257, 'o')
	tok := mustNew(t, smallFile(t, func(_, model object) { model["ignore_merges"] = true }))
	checkIDs(t, tok, "ello", 261)
	checkIDs(t, tok, "elloo", 'e', 257, 'o', 'o')
}

func TestBPELastOfEqualMergesCounts(t *testing.T) {
	tok := mustNew(t, smallFile(t, func(_, model object) {
		model["vocab"].(object)["el"] = 262
		model["merges"] = []string{"e l", "h e", "l l", "e l"}
	}))
	// "e l" now ranks after "l l".
	checkIDs(t, tok, "ell", 'e', 257)
}

// hostile are texts that make naive tokenizers quadratic.
var hostile = []struct {
	name string
	text func(n int) string
}{
	{"one letter", func(n int) string { return strings.Repeat("a", n) }},
	{"random letters", randomLetters},
	{"spaces", func(n int) string { return strings.Repeat(" ", n) + "x" }},
	{"blank lines", func(n int) string { return strings.Repeat("\n ", n/2) + "x" }},
	{"symbols", func(n int) string { return strings.Repeat("=", n) }},
	{"apostrophes", func(n int) string { return strings.Repeat("'", n) }},
	{"marks", func(n int) string { return "q" + strings.Repeat("\u0301\u0323", n/4) }},
	{"jamo", func(n int) string { return strings.Repeat("\u1161", n/3) }},
	{"token prefixes", func(n int) string { return strings.Repeat("<|im_start|", n/11) }},
	{"broken bytes", func(n int) string { return strings.Repeat("\xf0\x9f", n/2) }},
	{"ideographs", func(n int) string { return strings.Repeat("中", n/3) }},
	{"one word", func(n int) string { return strings.Repeat("thes e,", n/7) }}, // all of it, of characters
}

func randomLetters(n int) string {
	rng := rand.New(rand.NewPCG(9, 10))
	text := make([]byte, n)
	for i := range text {
		text[i] = byte('a' + rng.IntN(26))
	}
	return string(text)
}

// TestEncodeHostileTextIsLinear compares the work for a text with that for as many bytes in
// pieces. Quadratic work would be as many times more as there are pieces, n log n about half as
// much again. Work is the processor time of this process, which other programs do not add to.
func TestEncodeHostileTextIsLinear(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds under the race detector")
	}
	for _, v := range vocabularies(t)[:2] {
		hostileTextIsLinear(t, v.name, mustNew(t, v.file))
	}
}

func hostileTextIsLinear(t *testing.T, name string, tok *Tokenizer) {
	const size, pieces, limit = 8 << 10, 64, 12
	for _, h := range hostile {
		t.Run(name+"/"+strings.ReplaceAll(h.name, " ", "-"), func(t *testing.T) {
			work := func(texts ...string) time.Duration {
				start := processorTime(t)
				for _, text := range texts {
					tok.Encode(text)
				}
				return processorTime(t) - start
			}
			var small []string
			for i := range pieces {
				small = append(small, h.text(size+4*i)) // each another one: no cache has met it
			}
			whole := h.text(size * pieces)
			for attempt := 0; ; attempt++ {
				ratio := float64(work(whole)) / float64(max(work(small...), time.Microsecond))
				if t.Logf("in one piece %.2f times the work of %d pieces", ratio, pieces); ratio < limit {
					return
				}
				if attempt == 2 {
					t.Fatalf("in one piece %.0f times the work of %d pieces", ratio, pieces)
				}
			}
		})
	}
}
