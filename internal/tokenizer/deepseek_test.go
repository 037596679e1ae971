package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dlclark/regexp2"

	"github.com/foretoken/foretoken/internal/filetest"
)

// deepSeekOracle is the three expressions in a general engine, one after the other.
type deepSeekOracle []splitter

func newDeepSeekOracle(tb testing.TB) deepSeekOracle {
	tb.Helper()
	var o deepSeekOracle
	for _, expr := range deepSeekPatterns {
		re, err := regexp2.Compile(expr, regexp2.None)
		if err != nil {
			tb.Fatal(err)
		}
		o = append(o, pattern{re})
	}
	return o
}

func (o deepSeekOracle) split(text string, emit func(string) bool) bool {
	return pretokenizer(o).run(text, emit)
}

func TestDeepSeekScannerEqualsPatterns(t *testing.T) {
	n := 12000
	if testing.Short() {
		n = 2000
	}
	scan, want := newDeepSeekScanner(), newDeepSeekOracle(t)
	rng := rand.New(rand.NewPCG(5, 6))
	extra := strings.Split("一 龥 龦 ぁ ゝ ゛ ゙ ー ・ ヿ ㄱ 、 ｡ “ ” … ￥ ^ ~ a. .b 'll $x _y", " ")
	for range n {
		text := randomScanText(rng)
		if rng.IntN(2) == 0 {
			text += extra[rng.IntN(len(extra))] + randomScanText(rng)
		}
		if got, want := pieces(scan, text), pieces(want, text); !slices.Equal(got, want) {
			t.Fatalf("%q\n got %q\nwant %q", text, got, want)
		}
	}
}

func FuzzDeepSeekScanner(f *testing.F) {
	scan, want := newDeepSeekScanner(), newDeepSeekOracle(f)
	f.Add("I'll  say:\r\n\n  \u0301he's 1234 \x00\x01b 東京タワー、x")
	f.Fuzz(func(t *testing.T, text string) {
		text = validUTF8(text)
		if got, want := pieces(scan, text), pieces(want, text); !slices.Equal(got, want) {
			t.Errorf("%q\n got %q\nwant %q", text, got, want)
		}
	})
}

// splits are texts with the pieces that another engine, Python's regex, makes of them by the
// expressions of the public files.
type splits struct {
	Patterns map[string][]string
	Cases    []struct {
		Text   string
		Pieces map[string][]string
	}
}

// TestPretokenizersEqualReference has the expressions as the files have them, line ends as
// escapes and not.
func TestPretokenizersEqualReference(t *testing.T) {
	var s splits
	filetest.Decode(t, filetest.Read(t, "testdata/splits.json"), &s)
	if len(s.Patterns) != 2 || len(s.Cases) < 40 {
		t.Fatalf("%d patterns, %d cases", len(s.Patterns), len(s.Cases))
	}
	for name, exprs := range s.Patterns {
		for _, literal := range []bool{false, true} {
			var steps []any
			for _, e := range exprs {
				if literal {
					e = strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(e)
				}
				steps = append(steps, split(e))
			}
			tok := mustNew(t, smallFile(t, func(file, _ object) { file["pre_tokenizer"] = sequence(append(steps, byteLevel(false, false))...) }))
			if _, slow := tok.pretoken[0].(pattern); slow || len(tok.pretoken) != 1 {
				t.Errorf("%s: it has no scanner", name)
			}
			for _, c := range s.Cases {
				var got []string
				tok.pretoken.run(c.Text, func(piece string) bool { got = append(got, piece); return true })
				if !slices.Equal(got, c.Pieces[name]) {
					t.Errorf("%s: %q splits into\n     %q\nwant %q", name, c.Text, got, c.Pieces[name])
				}
			}
		}
	}
}
