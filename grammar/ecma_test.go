package grammar

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/foretoken/foretoken/internal/filetest"
)

// TestPatternIsECMA checks the classes and escapes of patterns against ECMA 262, with texts
// that match and texts that do not.
func TestPatternIsECMA(t *testing.T) {
	v := bytesVocab(t)
	spaces := "\t\n\v\f\r \u00a0\u1680\u2000\u2003\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
	for _, test := range []struct {
		expr    string
		yes, no []string
	}{
		{`^\s$`, strings.Split(spaces, ""), []string{"a", "\u0085", "\u180e", "\u200b", "\x1c", ""}},
		{`^\S$`, []string{"a", "\u0085", "\u200b", "é", "😀"}, strings.Split(spaces, "")},
		{`^[\S]$`, []string{"a"}, strings.Split(spaces, "")},
		{`^[^\S]$`, strings.Split(spaces, ""), []string{"a"}},
		{`^.$`, []string{"a", "\v", "\u0085", "\x00", "😀"}, []string{"\n", "\r", "\u2028", "\u2029", ""}},
		{`^\d$`, []string{"0", "9"}, []string{"߀", "๐", "a"}},
		{`^\D$`, []string{"߀", "a"}, []string{"0"}},
		{`^\w$`, []string{"a", "Z", "0", "_"}, []string{"é", "\u017f", "\u212a", "-"}},
		{`^\W$`, []string{"é", "\u017f", "\u212a", "-"}, []string{"a", "_"}},
		{`^\u00e9\x41\cJ\cj\t\n\v\f\r\0$`, []string{"éA\n\n\t\n\v\f\r\x00"}, []string{"éA"}},
		{`^\ud83d\ude00\u{1F600}\u{41}$`, []string{"😀😀A"}, []string{"😀😀"}},
		{`^[\ud83d\ude00-\u{1F602}]$`, []string{"😀", "😁"}, []string{"😃"}},
		{`\ud83d`, nil, []string{"😀", "a"}}, // half a pair is in no text
		{`^a\/b\-\_\@\ \#\"$`, []string{`a/b-_@ #"`}, []string{`a\/b`}},
		{`^(?<year>\d{4})-(?:x)$`, []string{"2024-x"}, []string{"24-x"}},
		{`^[\w-.]$`, []string{"-", ".", "a"}, []string{","}},
		{`^[a-]$`, []string{"a", "-"}, []string{"b"}},
		{`^[\b]$`, []string{"\b"}, []string{"b"}},
		{`^[]a$`, nil, []string{"a", "]a"}},
		{`^[^]$`, []string{"a", "\n"}, []string{""}},
		{`^[[:a]$`, []string{"[", ":", "a"}, []string{"b"}},
		{`^{a}{1,x}]$`, []string{"{a}{1,x}]"}, []string{"a"}},
		{`^a{2}b{1,}?c{0,1}$`, []string{"aab", "aabbc"}, []string{"aa"}},
		{`^(?i)straße$`, []string{"STRAßE", "strAẞE"}, []string{"strasse"}},
		{`^(?i:k[^k](?-i:s))$`, []string{"Kas", "\u212aas"}, []string{"Kks", "kKs", "kaS", "k\u212as"}},
		{`^(?s:.)$`, []string{"\n"}, []string{""}},
		{`a|^b$|`, []string{"", "xax", "b", "c"}, nil},
		{`^[\x00-\x1f"\\]$`, []string{"\x00", "\b", "\x1f", `"`, `\`}, []string{" ", "u", "0"}},
	} {
		schema := filetest.Encode(t, map[string]string{"type": "string", "pattern": test.expr})
		g, err := Compile(Either(Schema(schema), Literal("none")), v)
		if err != nil {
			t.Errorf("%s: %v", test.expr, err)
			continue
		}
		for _, text := range test.yes {
			if !accepts(g, `"`+inString(text)+`"`) {
				t.Errorf("%s refuses %q", test.expr, text)
			}
		}
		for _, text := range test.no {
			if accepts(g, `"`+inString(text)+`"`) {
				t.Errorf("%s accepts %q", test.expr, text)
			}
		}
	}
}

// TestPatternPropertiesOfUnicode compares \p with the tables of package unicode, and checks
// that a class of hundreds of ranges costs hundreds of states.
func TestPatternPropertiesOfUnicode(t *testing.T) {
	v := bytesVocab(t)
	for expr, in := range map[string]func(r rune) bool{
		`\p{L}`:                               unicode.IsLetter,
		`\p{Letter}`:                          unicode.IsLetter,
		`\P{L}`:                               func(r rune) bool { return !unicode.IsLetter(r) },
		`[\p{L}\p{N}]`:                        func(r rune) bool { return unicode.In(r, unicode.L, unicode.N) },
		`[^\p{Lu}]`:                           func(r rune) bool { return !unicode.Is(unicode.Lu, r) },
		`\p{Script=Greek}`:                    func(r rune) bool { return unicode.Is(unicode.Greek, r) },
		`\p{sc=Old_Italic}`:                   func(r rune) bool { return unicode.Is(unicode.Old_Italic, r) },
		`\p{Han}`:                             func(r rune) bool { return unicode.Is(unicode.Han, r) },
		`\p{General_Category=Decimal_Number}`: func(r rune) bool { return unicode.Is(unicode.Nd, r) },
		`\p{gc=Lowercase_Letter}`:             func(r rune) bool { return unicode.Is(unicode.Ll, r) },
		`\p{White_Space}`:                     func(r rune) bool { return unicode.Is(unicode.White_Space, r) },
		`\p{ASCII}`:                           func(r rune) bool { return r < 0x80 },
		`\p{Any}`:                             func(r rune) bool { return true },
		`\p{LC}`:                              func(r rune) bool { return unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt) },
	} {
		for _, repeated := range []string{"^" + expr + "$", "^" + expr + "+$", expr} {
			schema := filetest.Encode(t, map[string]string{"type": "string", "pattern": repeated})
			g, err := Compile(Schema(schema), v)
			if err != nil {
				t.Errorf("%s: %v", repeated, err)
				continue
			}
			var d *dfa
			for _, n := range g.program.nodes {
				if n.lex != nil {
					d = n.lex.dfa
				}
			}
			if n := len(d.accept); n > 1000 {
				t.Errorf("%s has %d states", repeated, n)
			}
			for r := rune(0); r <= unicode.MaxRune; r++ {
				if r > 0x600 {
					r += 22
				}
				if 0xD800 <= r && r <= 0xDFFF || r > unicode.MaxRune {
					continue
				}
				if got := d.matches(`"` + inString(string(r)) + `"`); got != in(r) {
					t.Errorf("%s: %U: %v", repeated, r, got)
					break
				}
			}
		}
	}
}

// TestPatternErrors checks that an error names the pattern and the fault.
func TestPatternErrors(t *testing.T) {
	for expr, want := range map[string]string{
		`a(?=b)`:                        "look-around",
		`(?<!a)b`:                       "look-around",
		`(a)\1`:                         "back references",
		`(?<n>a)\k<n>`:                  "back references",
		`(a`:                            "a ( without its )",
		`a)`:                            "a ) without its (",
		`[a`:                            "a [ without its ]",
		`*a`:                            "a repetition without an operand",
		`a**`:                           "a repetition of a repetition",
		`a{3,2}`:                        "3 to 2 times",
		`[b-a]`:                         "is empty",
		`\u12`:                          "want 4 hexadecimal digits",
		`\xg0`:                          "want 2 hexadecimal digits",
		`\u{110000}`:                    "up to 10FFFF",
		`\cé`:                           `after \c`,
		`\q`:                            `has no escape \q`,
		`\01`:                           `has no escape \0`,
		`\p{Nothing}`:                   `the property "Nothing" is not supported`,
		`\p{Script=Nothing}`:            "is not supported",
		`\pL`:                           "a property in braces",
		`(?P<n>a)`:                      "a group begins with",
		`(?<>a)`:                        "without a name",
		`\`:                             "ends too early",
		`a\b`:                           "word boundaries",
		strings.Repeat("(", 1000):       "nested groups",
		`(((a{1000}){1000}){1000})`:     "shorten lists and repetitions",
		strings.Repeat(`\p{L}`, 10_000): "shorten lists and repetitions",
		`[` + strings.Repeat(`\p{L}`, 10_000) + `]`: "shorten lists and repetitions",
		`a{99999999999999999999}`:                   "shorten lists and repetitions",
		strings.Repeat("a", 1<<17):                  "want at most 65536",
	} {
		_, err := Compile(Schema(fmt.Appendf(nil, `{"type": "string", "pattern": %q}`, expr)), bytesVocab(t))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "#/pattern") {
			t.Errorf("%.40s: %v, want %q", expr, err, want)
		}
	}
}
