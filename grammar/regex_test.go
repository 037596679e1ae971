package grammar

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

var expressions = []string{
	``, `a`, `a*`, `(a|b)*abb`, `^a+$`, `^$`, `a^b`, `(^a|b)c`, `a(b$|c)`, `x?y{2,4}`, `[^a-y]+`, `.`, `.*b`, `(?s).`, `(?i)straße`, `(?i)k`,
	`\d+\.\d*`, `\w+@\w+`, `[äöü]|日[^本]`, `\p{Greek}+`, `[\x{10000}-\x{10FFFF}]`, `[\x00-\x1f"\\]`, `a{0}`, `(a?){3}a{3}`, `[[:alpha:]_]\S*`, `\$\^`, `a||b`, `a|[^\s\S]`, `[^\x00-\x{10FFFF}]`, `$`, `^`, `()`,
}

// letters make texts that are close to the expressions.
var letters = []string{"a", "b", "c", "x", "y", "z", "A", "K", "K", "ſ", "ß", "s", "1", "2", ".", "@", "_", " ", "\n", "ä", "ü", "日", "本", "Ω", "😀", "\U00010000", `"`, `\`, "\x01", "$", "^", "straſe", "stra", "e"}

func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(7) {
		b.WriteString(letters[r.IntN(len(letters))])
	}
	return b.String()
}

// TestRegexEqualsGo compares the automata of expressions with package regexp: over UTF-8 and
// over the insides of JSON strings, for whole texts and for parts.
func TestRegexEqualsGo(t *testing.T) {
	hits := 0
	for _, expr := range expressions {
		for _, e := range []extent{whole, anywhere} {
			want := regexp.MustCompile(expr)
			if e == whole {
				want = regexp.MustCompile(`\A(?:` + expr + `)\z`)
			}
			for _, s := range []spelling{plain, escaped} {
				d, err := new(work).regex(expr, e, s)
				if err != nil {
					t.Fatalf("%q: %v", expr, err)
				}
				r := rand.New(rand.NewPCG(9, 9))
				for range 1500 {
					text := randomText(r)
					spelled := text
					if s == escaped {
						spelled = inString(text)
					}
					if got := d.matches(spelled); got != want.MatchString(text) {
						t.Fatalf("%q, extent %d, spelling %d: %q: %v", expr, e, s, text, got)
					} else if got {
						hits++
					}
				}
			}
		}
	}
	if hits < 5_000 {
		t.Errorf("only %d texts matched", hits)
	}
}

func TestRegexRefusesBrokenUTF8(t *testing.T) {
	d, err := new(work).regex(`(?s).*`, whole, plain)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"\xff", "a\xc3", "\xc3(", "\xe2\x82", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80"} {
		if d.matches(text) {
			t.Errorf("%q is accepted", text)
		}
	}
	for r := rune(0); r <= utf8.MaxRune; r += 61 {
		if text := string(r); !d.matches(text) {
			t.Errorf("%q is refused", text)
		}
	}
}

func TestInStringIsJSON(t *testing.T) {
	for r := rune(0); r < 0x300; r++ {
		var back string
		if err := json.Unmarshal([]byte(`"`+inString(string(r))+`"`), &back); err != nil || back != string(r) {
			t.Errorf("%U: %q, %v", r, back, err)
		}
	}
}

// TestNumbersEqualArithmetic compares automata of bounded numbers with exact arithmetic.
func TestNumbersEqualArithmetic(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	write := func() string {
		s := fmt.Sprint(r.IntN(250) - 120)
		if r.IntN(2) == 0 {
			s += "." + strings.Repeat("0", r.IntN(2)) + fmt.Sprint(r.IntN(30))
		}
		return s
	}
	hits := 0
	for range 400 {
		lo, hi := write(), write()
		low, high := r.IntN(2) == 0, r.IntN(2) == 0
		integer := r.IntN(3) == 0
		a, errA := parseBound(lo+[]string{"", "e0", "E-1", "e+1"}[r.IntN(4)], low)
		b, errB := parseBound(hi, high)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		least, most := exactly(a), exactly(b)
		if r.IntN(5) == 0 {
			a, least = nil, nil
		}
		if r.IntN(5) == 0 {
			b, most = nil, nil
		}
		d, err := new(work).numbers(a, b, integer)
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			text := write()
			if r.IntN(4) == 0 {
				text = []string{lo, hi, lo + "0", hi + "1", "-0", "0", "0.0", "-0.00"}[r.IntN(8)]
			}
			if strings.Count(text, ".") > 1 || strings.HasPrefix(text, "-") && strings.HasPrefix(text[1:], "00") {
				continue
			}
			x, ok := new(big.Rat).SetString(text)
			if !ok || !json.Valid([]byte(text)) {
				continue
			}
			want := (least == nil || x.Cmp(least) > 0 || x.Cmp(least) == 0 && !low) &&
				(most == nil || x.Cmp(most) < 0 || x.Cmp(most) == 0 && !high) &&
				(!integer || !strings.Contains(text, "."))
			if least != nil && least.Sign() == 0 && strings.HasPrefix(text, "-") {
				continue // minus nothing is left out if nothing lies below it
			}
			if got := d.matches(text); got != want {
				t.Fatalf("%s in %s (exclusive %v) to %s (exclusive %v), integer %v: %v", text, lo, low, hi, high, integer, got)
			} else if got {
				hits++
			}
		}
	}
	if hits < 5000 {
		t.Errorf("only %d numbers were inside", hits)
	}
}

// exactly is the number of a bound.
func exactly(b *bound) *big.Rat {
	x, _ := new(big.Rat).SetString(b.whole + "." + b.fraction + "0")
	if b.negative {
		x.Neg(x)
	}
	return x
}

func TestFormats(t *testing.T) {
	for _, c := range []struct{ format, yes, no string }{
		{"date", "2024-02-29 2023-02-28 1999-12-31 0000-01-01", "2023-02-29 1900-02-29 2024-04-31 2024-13-01 24-1-1"},
		{"time", "23:59:59Z 00:00:00.123+05:30", "24:00:00Z 23:59:60Z 12:00:00 12:00Z"},
		{"date-time", "2024-02-29T12:00:00Z", "2024-02-29 2024-02-30T12:00:00Z 2024-02-29t12:00:00Z"},
		{"duration", "P1Y2M3DT4H5M6S PT5M P3W P1YT1S", "P PT P1S 1Y P1Y2D P1H"},
		{"email", "a@b.c first.last+tag@sub.example.com", "a@ @b a@b..c a.@b.c a@-b.c"},
		{"hostname", "a example.com x-1.y", "-a a- a..b a_b"},
		{"ipv4", "0.0.0.0 255.249.199.9", "256.0.0.1 1.2.3 01.2.3.4"},
		{"ipv6", ":: ::1 1:: 2001:db8::ff00:42:8329 1:2:3:4:5:6:7:8 ::ffff:1.2.3.4 1:2:3:4:5:6:7:: 1:2::8", "1 ::1::2 1:2:3:4:5:6:7 1:2:3:4:5:6:7:8:9 12345:: ::1.2.3 :1"},
		{"uuid", "123e4567-e89b-12d3-A456-426614174000", "123e4567e89b12d3a456426614174000 g23e4567-e89b-12d3-a456-426614174000"},
		{"uri", "http://a.b:80/c?d=e#f mailto:a@b.c urn:x:y a:/b/c file:///x", "a.b //a http://a:b c://d/%zz 1a:b"},
		{"uri-reference", "a /a//b?c=d#e //host:80/a ../x:y #f http://a/b mailto:a@b", `1:b a\b %zz ä #a#b`},
		{"iri", "http://ä/ö?ü#ß a:", `ä /a ä:b a\b`},
		{"iri-reference", "ä/ö a:", `ä:b a\b`},
		{"uri-template", "http://a/{b}{?c,d*}{+e:3} %20", "{ {} {a a} {a:0} {?} %"},
		{"regex", `a ^[a-z_-]+$ (a|b(?:c|(d))?)*? \\d{2,}\\.x{1,3} [^\\]\\s] ä|^$ a/b () [-a]`, `( ) a** ^* [ ] [z-a] [a \\ \\Z a{2,1} {1} \\1 (?=a) (?<n>a) x{ ((((a)))) [\\w-z]`},
		{"json-pointer", "/ /a~0b~1/ä", "a /~ /~2 #/a"},
		{"relative-json-pointer", "0 1/a 12#", "/a 01/a -1 1a 0##"},
	} {
		d := mustRegex(formats[c.format], escaped)
		for _, text := range strings.Fields(c.yes) {
			if !d.matches(text) {
				t.Errorf("%s refuses %s", c.format, text)
			}
		}
		for _, text := range strings.Fields(c.no) {
			if d.matches(text) {
				t.Errorf("%s accepts %s", c.format, text)
			}
		}
	}
	if got, want := len(formats), 17; got != want {
		t.Errorf("%d formats, %d tested", got, want)
	}
}

// FuzzRegexp holds any expression that is taken to package regexp, over any text.
func FuzzRegexp(f *testing.F) {
	for _, expr := range expressions {
		f.Add(expr, "aab")
	}
	f.Fuzz(func(t *testing.T, expr, text string) {
		if len(expr) > 60 || !utf8.ValidString(text) || strings.ContainsAny(text, "\r\u2028\u2029") {
			return
		}
		d, err := new(work).regex(expr, anywhere, plain)
		if err != nil {
			return
		}
		if want := regexp.MustCompile(expr).MatchString(text); d.matches(text) != want {
			t.Errorf("%q in %q: want %v", expr, text, want)
		}
	})
}
