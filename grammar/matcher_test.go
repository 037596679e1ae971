package grammar

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// sources are one of each kind, with texts they take.
var sources = []struct {
	name   string
	source Source
	texts  []string
}{
	{"any", JSON(), []string{`{"a": [1, 2.5e3, "x\u00e4\ud83d\ude00", null, {"b": {}}]}`, `-0.5`, `"日本 😀"`}},
	{"regex", Regexp(`(?i)(ab|日)*[^x]{1,3}\d+`), []string{"abABzz12", "日日ä7"}},
	{"choice", Choice("yes", "no", "yes, but", "nothing"), []string{"no", "yes, but"}},
	{"call", Sequence(
		TextWithout("<call>"),
		Repeat(Sequence(Literal("<call>"), Either(
			Schema([]byte(`{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}`)),
			Schema([]byte(`{"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 1}`)),
		), Literal("</call>")), 0, 3),
	), []string{`so < <cal <call>{"a": 1, "x": [true]}</call>`, `<call>["ab", "日本x"]</call><call>{"a":0}</call>`, "just text"}},
	{"bounds", Schema([]byte(`{"type": "array", "maxItems": 4, "items": {"anyOf": [
		{"type": "string", "minLength": 2, "maxLength": 5}, {"type": "number", "minimum": -1.5, "exclusiveMaximum": 30},
		{"type": "string", "pattern": "^b+$", "minLength": 7}]}}`)), []string{`["ab", -1.25, "bbbbbbbbb", "a\n\u00e4bb"]`, `[29.99]`}},
}

// walkTexts visits states along the texts of a grammar, cut into tokens at random.
func walkTexts(t *testing.T, v *Vocab, seed uint64, visit func(r *rand.Rand, name string, m *Matcher, said []int32)) {
	t.Helper()
	for _, s := range sources {
		g := compile(t, s.source, v)
		for i, text := range s.texts {
			for n := range 3 {
				r := rand.New(rand.NewPCG(seed, uint64(10*i+n)))
				ids := cut(r, v, text)
				m := g.Matcher()
				for j, id := range ids {
					visit(r, s.name, m, ids[:j])
					if !has(m.Allowed(nil), id) {
						t.Fatalf("%s: %q is not allowed after %q", s.name, v.tokens[id], spell(v, ids[:j]))
					}
					m.Accept(id)
				}
				visit(r, s.name, m, ids)
				if !m.mayEnd() {
					t.Fatalf("%s: may not end after %q", s.name, text)
				}
			}
		}
	}
}

func spell(v *Vocab, ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(v.tokens[id])
	}
	return b.String()
}

// TestMaskEqualsTrying compares each mask with the result of feeding each token. Two tokens
// have the same bytes as others.
func TestMaskEqualsTrying(t *testing.T) {
	v := bytesVocab(t, append(slices.Clone(pieces), "ab", "<", "</call>", "<ca", "ll><", "no", "y", "thing", `{"`)...)
	states := 0
	walkTexts(t, v, 5, func(_ *rand.Rand, name string, m *Matcher, said []int32) {
		states++
		mask := slices.Clone(m.Allowed(nil))
		for id, token := range v.tokens {
			want := id == 256 && m.mayEnd()
			if token != "" {
				_, want = m.machine.feed(m.now, token)
			}
			if got := has(mask, int32(id)); got != want {
				t.Fatalf("%s: after %q token %q: allowed %v, fits %v", name, spell(v, said), token, got, want)
			}
		}
	})
	t.Logf("%d states", states)
	if states < 300 {
		t.Errorf("only %d states looked at", states)
	}
}

// TestLookingAheadChangesNothing computes masks behind drafts, accepted and rejected, and compares
// the matcher with one that only followed the text.
func TestLookingAheadChangesNothing(t *testing.T) {
	v := bytesVocab(t, pieces...)
	walkTexts(t, v, 6, func(r *rand.Rand, name string, m *Matcher, said []int32) {
		var ahead []int32
		for range 1 + r.IntN(4) {
			ids := members(m.Allowed(ahead))
			ahead = append(ahead, ids[r.IntN(len(ids))])
		}
		if r.IntN(4) == 0 {
			ahead = append(ahead, int32(r.IntN(v.size))) // most likely wrong
		}
		behind := slices.Clone(m.Allowed(ahead))
		if r.IntN(2) == 0 {
			m.Allowed(ahead[:len(ahead)-1])
		}
		fresh := m.g.Matcher()
		for _, id := range said {
			fresh.Accept(id)
		}
		if !slices.Equal(m.Allowed(nil), fresh.Allowed(nil)) || m.mayEnd() != fresh.mayEnd() {
			t.Fatalf("%s: after %q and %d ahead: another mask than without", name, spell(v, said), ahead)
		}
		for _, id := range ahead {
			fresh.Accept(id)
		}
		if !slices.Equal(behind, fresh.Allowed(nil)) {
			t.Fatalf("%s: after %q: the mask behind %d is not that of accepting them", name, spell(v, said), ahead)
		}
	})
}

// mayEnd reports whether the text so far satisfies the grammar.
func (m *Matcher) mayEnd() bool { return m.machine.states[m.now].ends }

func TestWrongTokenEndsText(t *testing.T) {
	v := bytesVocab(t)
	for _, id := range []int32{'x', 256, -1, 9999} {
		m := compile(t, Choice("yes"), v).Matcher()
		m.Accept(id)
		if got := members(m.Allowed(nil)); len(got) != 1 || got[0] != 256 {
			t.Errorf("allowed after %d: %d", id, got)
		}
	}
}

func TestGrammarServesManyMatchers(t *testing.T) {
	v := bytesVocab(t, pieces...)
	g := compile(t, sources[3].source, v)
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(n%2)))
			for _, text := range sources[3].texts {
				if ids := cut(r, v, text); !acceptsTokens(g, ids) {
					t.Errorf("%q is refused", text)
				}
			}
		})
	}
	wg.Wait()
}

// TestSteadyStateAllocatesNothing alternates between states it has seen.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	v := bytesVocab(t, pieces...)
	g := compile(t, JSON(), v)
	m := g.Matcher()
	text := cut(rand.New(rand.NewPCG(8, 8)), v, `[{"a": "x", "b": [1, 2]}, {"a": "`)
	for _, id := range text {
		m.Allowed(nil)
		m.Accept(id)
	}
	ahead := cut(rand.New(rand.NewPCG(8, 9)), v, `xyz", "b": [1, 2]}, {"a": "`)
	round := func() {
		for i := range ahead {
			m.Allowed(ahead[:i])
		}
		for _, id := range ahead {
			m.Accept(id)
		}
	}
	round()
	if n := testing.AllocsPerRun(50, round); n > 0 {
		t.Errorf("%v allocations for %d tokens", n, len(ahead))
	}
}

func TestNestedAlternativesStaySmall(t *testing.T) {
	// Two alternatives that are equal up to their ends: stacks that were not merged
	// would double with every level.
	v := bytesVocab(t, pieces...)
	g := compile(t, Schema([]byte(`{"anyOf": [
		{"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"type": "integer"}}},
		{"type": "object", "properties": {"a": {"$ref": "#"}, "c": {"type": "integer"}}}]}`)), v)
	m := newMachine(g.program)
	s := m.start()
	const depth = 200
	for range depth {
		var ok bool
		if s, ok = m.feed(s, `{"a":`); !ok {
			t.Fatal("refused")
		}
		if n := len(m.of(s)); n > 20 {
			t.Fatalf("%d ways to read the text", n)
		}
	}
	text := `{"b": 1}` + strings.Repeat(`, "c": 2}`, depth)
	if s, ok := m.feed(s, text); !ok || !m.states[s].ends {
		t.Error("the end is refused")
	}
}
