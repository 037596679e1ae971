package grammar

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// bytesVocab has every byte as a token, id 256 as the end, and more tokens.
func bytesVocab(t testing.TB, more ...string) *Vocab {
	t.Helper()
	tokens := make([]string, 257)
	for b := range 256 {
		tokens[b] = string([]byte{byte(b)})
	}
	v, err := NewVocab(append(tokens, more...), []int32{256})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// pieces are tokens as they appear in JSON, parts of characters included.
var pieces = []string{
	`{"`, `": `, `":`, `", "`, `","`, `"}`, `"]`, `}}`, `]}`, ` {`, ` [`, `{}`, `[]`, `[[`, `["`, `, `, "\n ", "\r\n", "  ", ` "`,
	"true", "false", "null", "nul", "12", "100", "0.", ".5", "-1", "1, 2", `"a"`, `"a": `, `"ab`, "ab", "ba", "aa", "abc", `\n`, `\"`,
	`\u00`, `\ud83d`, `\ude00`, `"x`, `x"`, `x":`, "\xe6\x97", "\xa5", "日", "日本", "\xf0\x9f\x98", "😀", `b", "c`, `"b": [`, "ä", `a"}, {"a`,
}

func compile(t testing.TB, s Source, v *Vocab) *Grammar {
	t.Helper()
	g, err := Compile(s, v)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// accepts feeds a text byte by byte.
func accepts(g *Grammar, text string) bool {
	m := newMachine(g.program)
	s, ok := m.feed(m.start(), text)
	return ok && m.states[s].ends
}

// cut cuts a text into tokens at random.
func cut(r *rand.Rand, v *Vocab, text string) []int32 {
	var ids []int32
	for text != "" {
		id := int32(text[0])
		for range 8 {
			if i := 257 + r.IntN(v.size-257); strings.HasPrefix(text, v.tokens[i]) {
				id = int32(i)
				break
			}
		}
		ids = append(ids, id)
		text = text[len(v.tokens[id]):]
	}
	return ids
}

// acceptsTokens follows tokens through the masks.
func acceptsTokens(g *Grammar, ids []int32) bool {
	m := g.Matcher()
	for _, id := range ids {
		if !has(m.Allowed(nil), id) {
			return false
		}
		m.Accept(id)
	}
	return m.mayEnd() && has(m.Allowed(nil), 256)
}

// TestSchemaEqualsValidator compares random schemas with random values, nearly all close to
// the schema: a text is accepted, by bytes and by tokens, if and only if the slow
// validator accepts its value.
func TestSchemaEqualsValidator(t *testing.T) {
	schemas := 300
	if testing.Short() {
		schemas = 120
	}
	v := bytesVocab(t, pieces...)
	accepted, refused, empty, unsaid := 0, 0, 0, 0
	for i := range schemas {
		r := rand.New(rand.NewPCG(3, uint64(i)))
		text := schemaMaker{r}.root()
		schema, err := decode(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		g, err := Compile(Schema([]byte(text)), v)
		if err != nil && strings.Contains(err.Error(), "say what is allowed") {
			unsaid++
			continue
		}
		if err != nil && !strings.Contains(err.Error(), "no value satisfies") {
			t.Fatalf("%s: %v", text, err)
		}
		maker := valueMaker{r, schema, 2 + r.IntN(40)}
		for range 20 {
			spelled := maker.write(maker.value(schema, 0))
			value, err := decode(spelled)
			if err != nil {
				t.Fatalf("%s: %v", spelled, err)
			}
			want := valid(schema, schema, value)
			if g == nil {
				if empty++; want {
					t.Fatalf("schema %s\nis said to be empty, but allows %s", text, spelled)
				}
				continue
			}
			if got := accepts(g, spelled); got != want {
				t.Fatalf("schema %s\nvalue %s: accepted %v, valid %v", text, spelled, got, want)
			}
			if ids := cut(r, v, spelled); acceptsTokens(g, ids) != want {
				t.Fatalf("schema %s\nvalue %s cut into %d: valid %v", text, spelled, ids, want)
			}
			if want {
				accepted++
			} else {
				refused++
			}
		}
	}
	t.Logf("%d accepted, %d refused, %d of empty schemas; %d schemas cannot be expressed", accepted, refused, empty, unsaid)
	if unsaid > schemas/8 {
		t.Errorf("%d of %d schemas cannot be expressed", unsaid, schemas)
	}
	if least := schemas * 3; accepted < least || refused < least {
		t.Errorf("%d accepted and %d refused, want at least %d of each", accepted, refused, least)
	}
}

// TestSampledTextsAreValid chooses allowed tokens at random until the end is chosen: the
// text is JSON, and valid.
func TestSampledTextsAreValid(t *testing.T) {
	schemas := 200
	if testing.Short() {
		schemas = 60
	}
	v := bytesVocab(t, pieces...)
	ended := 0
	for i := range schemas {
		r := rand.New(rand.NewPCG(4, uint64(i)))
		text := schemaMaker{r}.root()
		schema, err := decode(text)
		if err != nil {
			t.Fatal(err)
		}
		g, err := Compile(Schema([]byte(text)), v)
		if err != nil {
			continue // no value satisfies it
		}
		out, ok := sampleText(t, r, g, 3000)
		if !ok {
			continue
		}
		ended++
		value, err := decode(out)
		if err != nil || !json.Valid([]byte(out)) || !valid(schema, schema, value) {
			t.Fatalf("schema %s\nsampled %q: %v", text, out, err)
		}
	}
	t.Logf("%d of %d ended", ended, schemas)
	if ended < schemas/2 {
		t.Errorf("only %d texts ended", ended)
	}
}

// sampleText draws tokens until the end, at most limit.
func sampleText(t *testing.T, r *rand.Rand, g *Grammar, limit int) (string, bool) {
	t.Helper()
	m := g.Matcher()
	var out strings.Builder
	for range limit {
		ids := members(m.Allowed(nil))
		if len(ids) == 0 {
			t.Fatalf("nothing allowed after %q", out.String())
		}
		id := ids[r.IntN(len(ids))]
		// Closing tokens are preferred, so that texts end.
		for _, closing := range []int32{256, '}', ']', '"'} {
			if has(m.Allowed(nil), closing) && r.IntN(3) == 0 {
				id = closing
				break
			}
		}
		if id == 256 {
			if !m.mayEnd() {
				t.Fatalf("the end is allowed after %q", out.String())
			}
			m.Accept(id)
			if rest := members(m.Allowed(nil)); len(rest) != 1 || rest[0] != 256 {
				t.Fatalf("allowed after the end: %d", rest)
			}
			return out.String(), true
		}
		out.WriteString(g.vocab.tokens[id])
		m.Accept(id)
	}
	return out.String(), false
}

// members lists a mask.
func members(mask []uint64) []int32 {
	var ids []int32
	for id := range int32(len(mask) * 64) {
		if has(mask, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(20, seed)) }
