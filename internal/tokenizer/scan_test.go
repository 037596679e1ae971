package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/dlclark/regexp2"
)

// flavors are the scanners with the expressions they stand for.
var flavors = []struct {
	name, expr string
	marks      class
	digits     int
}{{"qwen3.5", qwen35Pattern, letter, 1}, {"qwen2", qwen2Pattern, other, 1}, {"glm", glmPattern, other, 3}}

// oracle is a flavor's expression in a general engine. It folds case by
// lowering it and so misses the long s, which the reference's engine treats as
// an s.
func oracle(tb testing.TB, expr string) splitter {
	tb.Helper()
	re, err := regexp2.Compile(strings.Replace(expr, "'s|", "'[s\u017f]|", 1), regexp2.None)
	if err != nil {
		tb.Fatal(err)
	}
	return pattern{re}
}

func pieces(s splitter, text string) []string {
	var all []string
	s.split(text, func(piece string) bool { all = append(all, piece); return true })
	return all
}

// scanParts are the parts of random texts: every class of character, in
// ASCII and beyond, and every part of the pattern.
var scanParts = strings.Split("a b Z q é λ д 中 한 ª ʰ 𠀀 𐐀 0 7 ٣ Ⅷ ½ 𝟘 . , ! < { _ - $ € 🎉 👍🏽 \u200d \u00ad \x00 \x7f \ufffd \ue000 \U0010fffe "+
	"\u0301 \u0308 \u0903 \u20dd \ufe0f \U000e0100 \U0001d165 ' ' ' 's 'S 'ſ 't 'RE 've 'M 'll 'lL 'd s t r re ve l ll ſ "+
	"' 're", " ")

var scanSpaces = []string{" ", " ", " ", "  ", "\t", "\n", "\n", "\r", "\r\n", "\v", "\f", "\u0085", "\u00a0", "\u1680", "\u2003", "\u2028", "\u3000", "\u180e", "\u200b"}

func randomScanText(rng *rand.Rand) string {
	var b strings.Builder
	for range rng.IntN(14) {
		switch rng.IntN(8) {
		case 0, 1, 2:
			b.WriteString(scanSpaces[rng.IntN(len(scanSpaces))])
		case 3:
			b.WriteRune(rune(rng.IntN(unicode.MaxRune + 1))) // surrogates become U+FFFD
		default:
			b.WriteString(scanParts[rng.IntN(len(scanParts))])
		}
	}
	return b.String()
}

func TestScannerEqualsPattern(t *testing.T) {
	n := 12000
	if testing.Short() {
		n = 2000
	}
	for _, f := range flavors {
		t.Run("pattern="+f.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 4))
			scan, want := newScanner(f.marks, f.digits), oracle(t, f.expr)
			for range n {
				text := randomScanText(rng)
				if got, want := pieces(scan, text), pieces(want, text); !slices.Equal(got, want) {
					t.Fatalf("%q\n got %q\nwant %q", text, got, want)
				}
			}
		})
	}
}

// TestScannerEqualsPatternOnShortTexts tries every text of up to four
// characters, one or two of each class and of each kind of contraction.
func TestScannerEqualsPatternOnShortTexts(t *testing.T) {
	chars := strings.Split("a|s|L|'|7|.| |\t|\n|\u0301", "|")
	length := 4
	if testing.Short() {
		length = 3
	}
	for _, f := range flavors {
		t.Run("pattern="+f.name, func(t *testing.T) {
			scan, want := newScanner(f.marks, f.digits), oracle(t, f.expr)
			var try func(text string, left int)
			try = func(text string, left int) {
				if got, want := pieces(scan, text), pieces(want, text); !slices.Equal(got, want) {
					t.Fatalf("%q\n got %q\nwant %q", text, got, want)
				}
				for _, c := range chars {
					if left > 0 {
						try(text+c, left-1)
					}
				}
			}
			try("", length)
		})
	}
}

func TestScannerClassesEqualUnicode(t *testing.T) {
	for _, f := range flavors {
		scan := newScanner(f.marks, f.digits)
		for r := rune(0); r <= unicode.MaxRune; r++ {
			if unicode.Is(unicode.Cs, r) {
				continue // surrogates are no characters
			}
			want := other
			switch {
			case r == '\r' || r == '\n':
				want = newline
			case unicode.IsSpace(r):
				want = space
			case unicode.IsLetter(r):
				want = letter
			case unicode.IsNumber(r):
				want = number
			case unicode.IsMark(r):
				want = f.marks
			}
			if got, _ := scan.at(string(r), 0); got != want {
				t.Fatalf("%s: class of %U is %d, want %d", f.name, r, got, want)
			}
		}
	}
}

// TestScannerFollowsReference has pieces in which the reference's engine and
// the oracle differ.
func TestScannerFollowsReference(t *testing.T) {
	got := pieces(newScanner(letter, 1), "it'\u017f it'\u017ft")
	if want := []string{"it", "'\u017f", " it", "'\u017f", "t"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzScannerEqualsPattern(f *testing.F) {
	f.Add("I'll  say:\r\n\n  \u0301he's 42 ")
	for _, c := range referenceCases(f, "tiny_cases.json")[:40] {
		f.Add(c.Text)
	}
	type pair struct{ scan, want splitter }
	pairs := make([]pair, len(flavors))
	for i, flavor := range flavors {
		pairs[i] = pair{newScanner(flavor.marks, flavor.digits), oracle(f, flavor.expr)}
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = validUTF8(text)
		for i, p := range pairs {
			if got, want := pieces(p.scan, text), pieces(p.want, text); !slices.Equal(got, want) {
				t.Errorf("%s: %q\n got %q\nwant %q", flavors[i].name, text, got, want)
			}
		}
	})
}
