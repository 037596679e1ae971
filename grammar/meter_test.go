package grammar

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/foretoken/foretoken/internal/filetest"
)

// TestLengthsBesidePatterns compares strings with a pattern and lengths with package regexp and
// a count, byte by byte and by random choice: patterns that can go on for ever, that have an end,
// and whose lengths have gaps, so that a length may leave nothing.
func TestLengthsBesidePatterns(t *testing.T) {
	v := bytesVocab(t, append(pieces, "aa", "aaa", "ab", "abab", "ää", `a"`, `aaa"`, `\n`, `"a`, `"aa`)...)
	texts := []string{""}
	for range 5 {
		for _, text := range texts[max(0, len(texts)-64):] {
			for _, next := range []string{"a", "b", "ä", "\n"} {
				texts = append(texts, text+next)
			}
		}
	}
	for _, expr := range []string{
		`^[^b]+$`, `^(aa)*$`, `^(aaa|b)*$`, `^a{2,3}$`, `^(aa)+b?$`, `b`, `^ab`, `a$`, `^(a{3}|(ab){4})$`, `^(ab?){0,20}$`, `^(?:\S+\s+){0,4}\S+$`,
		`^[ab]{0,20}$`, `^b[^b]{2,30}$`, `^[ab]{17}$`, `^(a|b){1,16}b$`,
	} {
		want := regexp.MustCompile(inECMA.Replace(expr))
		for _, length := range [][2]int{{0, 3}, {1, 4}, {2, 2}, {3, 3}, {4, -1}, {2, 5}, {5, 6}, {0, 0}, {6, 40}} {
			schema := map[string]any{"type": "string", "pattern": expr, "minLength": length[0]}
			if length[1] >= 0 {
				schema["maxLength"] = length[1]
			}
			encoded := filetest.Encode(t, schema)
			valid := func(text string) bool {
				n := utf8.RuneCountInString(text)
				return want.MatchString(text) && n >= length[0] && (length[1] < 0 || n <= length[1])
			}
			g, err := Compile(Schema(encoded), v)
			if err != nil && !strings.Contains(err.Error(), "no value satisfies") {
				t.Errorf("%s: %v", encoded, err)
				continue
			}
			for _, text := range texts {
				if got := err == nil && accepts(g, `"`+inString(text)+`"`); got != valid(text) {
					t.Fatalf("%s: %q: accepted %v", encoded, text, got)
				}
			}
			for seed := range uint64(3) {
				if err != nil {
					break
				}
				if text, ended := sampleText(t, newRand(seed), g, 60); ended {
					var inside string
					if err := json.Unmarshal([]byte(text), &inside); err != nil || !valid(inside) {
						t.Fatalf("%s: %s comes out: %v", encoded, text, err)
					}
				}
			}
		}
	}
}

// TestLengthsCostNoStates checks that a length beside a pattern has no copies of the pattern.
func TestLengthsCostNoStates(t *testing.T) {
	for _, s := range []string{
		`{"type": "string", "pattern": "^[^,\"]+$", "maxLength": 255}`,
		`{"type": "string", "pattern": "^[^,\"]+$", "minLength": 5000, "maxLength": 1000000}`,
		`{"type": "string", "pattern": "^[\\w-]{1,255}$"}`,
		`{"type": "string", "pattern": "^a[\\p{L}\\p{N}]{1,2000}(b|c)$"}`,
		`{"type": "object", "patternProperties": {"^[0-9a-z]{1,255}$": true}, "additionalProperties": false}`,
	} {
		g := compile(t, Schema([]byte(s)), bytesVocab(t))
		n := 0
		for _, node := range g.program.nodes {
			if node.kind == nodeText && node.lex != nil {
				n += len(node.lex.accept)
			}
		}
		if n == 0 || n > 1000 {
			t.Errorf("%s has %d states that count", s, n)
		}
	}
}

// TestLengthsWithoutEnd checks that unbounded lengths have a bounded cost.
func TestLengthsWithoutEnd(t *testing.T) {
	for _, length := range []string{`"minLength": 2000000001`, `"maxLength": 2000000000`, `"minLength": 1999999999, "maxLength": 2000000001`} {
		for _, expr := range []string{`^(aa)*$`, `^(a{7}|b{11})*$`, `^(?:aa|aaa)*$`, `^a*$`, `^(?:aa|b{3})*c?$`} {
			b := newBuilder()
			_, err := Schema(fmt.Appendf(nil, `{"type": "string", "pattern": %q, %s}`, expr, length)).build(b)
			if err != nil || b.work.steps > 1<<14 {
				t.Errorf("%s, %s: %d steps, %v", expr, length, b.work.steps, err)
			}
		}
	}
}

// TestLengthsOfManyStringsAreBounded has one pattern beside as many lengths as a schema can hold.
func TestLengthsOfManyStringsAreBounded(t *testing.T) {
	var members []string
	for i := range 500 {
		members = append(members, fmt.Sprintf(`"%d": {"type": "string", "pattern": "^a{900}b{0,2}$", "maxLength": %d}`, i, 900+i))
	}
	b := newBuilder()
	_, err := Schema([]byte(`{"type": "object", "properties": {` + strings.Join(members, ",") + `}}`)).build(b)
	if err == nil || !strings.Contains(err.Error(), "shorten") {
		t.Errorf("want an error, not %v", err)
	}
	if n := b.bytes(); n > 32<<20 {
		t.Errorf("%d bytes", n)
	}
}
