package grammar

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// longestOf encodes text in the longest tokens, and leaves out the last one
// if more may follow.
func longestOf(v *Vocab) func(text string, more bool) []int32 {
	return func(text string, more bool) []int32 {
		ids := longest(v, text)
		if more {
			ids = ids[:len(ids)-1]
		}
		return ids
	}
}

// TestSettledTextHasOneSpelling compares masks with an encoder with those without one: if
// all continuations begin with one text, the mask has only the encoder's first token, if there is
// one; otherwise it is the same. Forced text is found by trying each byte.
func TestSettledTextHasOneSpelling(t *testing.T) {
	more := append([]string{"<call", ">{", "ca", "but", "es, b", "othing"}, pieces...)
	v, free := bytesVocab(t, more...), bytesVocab(t, more...)
	encode := longestOf(v)
	v.SetEncoder(encode)
	settled, left := 0, 0
	walkTexts(t, free, 11, func(_ *rand.Rand, name string, m *Matcher, said []int32) {
		spelled := m.onVocab(v)
		text, at := "", m.now
		for len(text) < maxSettled && !m.machine.states[at].ends {
			var bytes []byte
			for b := range 256 {
				if _, ok := m.machine.feed(at, string([]byte{byte(b)})); ok {
					bytes = append(bytes, byte(b))
				}
			}
			if len(bytes) != 1 {
				break
			}
			text += string(bytes)
			at, _ = m.machine.feed(at, string(bytes))
		}
		got, want := members(spelled.mask(spelled.at(said))), members(m.Allowed(nil))
		if text != "" {
			settled++
			if ids := encode(text, len(m.machine.of(at)) > 0); len(ids) > 0 {
				left++
				want = ids[:1]
			}
		}
		if len(got) != len(want) || got[0] != want[0] {
			t.Fatalf("%s: after %q and before %q: %d are allowed, want %d", name, spell(v, said), text, got, want)
		}
	})
	t.Logf("%d settled states, %d of them with one token left", settled, left)
	if left < 80 || settled == left {
		t.Errorf("%d settled states, %d of them with one token left", settled, left)
	}
}

// onVocab is a matcher of the same grammar for another vocabulary.
func (m *Matcher) onVocab(v *Vocab) *Matcher {
	g := *m.g
	g.vocab = v
	return g.Matcher()
}

// at is the state after some tokens.
func (m *Matcher) at(ids []int32) int32 {
	for _, id := range ids {
		m.Accept(id)
	}
	return m.now
}

// TestSpellingLosesNoText writes texts under the masks of an encoder, with any allowed token that
// they continue with: none becomes impossible.
func TestSpellingLosesNoText(t *testing.T) {
	v := bytesVocab(t, pieces...)
	v.SetEncoder(longestOf(v))
	for _, s := range sources {
		g := compile(t, s.source, v)
		for i, text := range s.texts {
			r := rand.New(rand.NewPCG(13, uint64(i)))
			for m, rest := g.Matcher(), text; rest != ""; {
				var fit []int32
				for _, id := range members(m.Allowed(nil)) {
					if token := v.tokens[id]; token != "" && strings.HasPrefix(rest, token) {
						fit = append(fit, id)
					}
				}
				if len(fit) == 0 {
					t.Fatalf("%s: %q cannot go on with %q", s.name, strings.TrimSuffix(text, rest), rest)
				}
				id := fit[r.IntN(len(fit))]
				m.Accept(id)
				rest = rest[len(v.tokens[id]):]
			}
		}
	}
}

// TestEncoderIsNotTrusted has encoders that return tokens that may not follow: masks are as without one.
func TestEncoderIsNotTrusted(t *testing.T) {
	want := members(compile(t, Literal("yes"), bytesVocab(t, "yes", "ye")).Matcher().Allowed(nil))
	for _, ids := range [][]int32{nil, {-1}, {9999}, {256}, {'n'}} {
		v := bytesVocab(t, "yes", "ye")
		v.SetEncoder(func(string, bool) []int32 { return ids })
		if got := members(compile(t, Literal("yes"), v).Matcher().Allowed(nil)); len(got) != len(want) {
			t.Errorf("encoder that says %d: %d are allowed, want %d", ids, got, want)
		}
	}
}
