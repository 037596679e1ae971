package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestDecodeReplacesMaximalParts has the examples of Unicode 15, section 3.9,
// tables 3-8 to 3-11, and the ends of text.
func TestDecodeReplacesMaximalParts(t *testing.T) {
	const fffd = "\ufffd"
	for _, c := range []struct{ in, want string }{
		{"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82A", strings.Repeat(fffd, 8) + "A"},
		{"\xed\xa0\x80\xed\xbf\xbf\xed\xafA", strings.Repeat(fffd, 8) + "A"},
		{"\xf4\x91\x92\x93\xffA\x80\xbfB", strings.Repeat(fffd, 5) + "A" + fffd + fffd + "B"},
		{"\xe1\x80\xe2\xf0\x91\x92\xf1\xbfA", strings.Repeat(fffd, 4) + "A"},
		{"\xf0\x9f\x98", fffd},
		{"\xf0\x9f\x98\x80", "😀"},
		{"a\xe2\x82", "a" + fffd},
		{"\xe2", fffd},
		{"\xbf", fffd},
		{"\ufffd", fffd},
		{"", ""},
	} {
		if got := validUTF8(c.in); got != c.want {
			t.Errorf("%q became %q, want %q", c.in, got, c.want)
		}
	}
}

// streamed decodes ids one by one, and checks the intermediate text.
func streamed(t *testing.T, d *Decoder, ids []int32) string {
	t.Helper()
	var b strings.Builder
	for _, id := range ids {
		text := d.Next(id)
		if !utf8.ValidString(text) {
			t.Fatalf("Next(%d) = %q, not UTF-8", id, text)
		}
		b.WriteString(text)
	}
	b.WriteString(d.Flush())
	return b.String()
}

func TestDecoderEqualsDecode(t *testing.T) {
	for _, v := range vocabularies(t) {
		t.Run("vocab="+v.name, func(t *testing.T) {
			decoderEqualsDecode(t, mustNew(t, v.file), referenceCases(t, v.name+"_cases.json"))
		})
	}
}

func decoderEqualsDecode(t *testing.T, tok *Tokenizer, cases []referenceCase) {
	rng := rand.New(rand.NewPCG(1, 2))
	const random = 2000
	sequences := make([][]int32, 0, len(cases)+random)
	for _, c := range cases {
		sequences = append(sequences, c.IDs)
	}
	for range random { // mostly single bytes, so that broken characters abound
		ids := make([]int32, rng.IntN(12))
		for i := range ids {
			switch rng.IntN(8) {
			case 0:
				ids[i] = int32(rng.IntN(tok.Size()+20) - 10)
			case 1:
				ids[i] = int32(tok.Size() - 1 - rng.IntN(9)) // added tokens
			default:
				b := []byte{'a', 0x80, 0x9f, 0xa0, 0xbf, 0xc2, 0xe0, 0xe2, 0xed, 0xf0, 0xf4, 0xff}
				ids[i] = byteTokens(tok)[b[rng.IntN(len(b))]]
			}
		}
		sequences = append(sequences, ids)
	}
	for _, skip := range []bool{false, true} {
		d := tok.Decoder(skip) // one for all: Flush must leave it as new
		for _, ids := range sequences {
			if got, want := streamed(t, d, ids), tok.Decode(ids, skip); got != want {
				t.Fatalf("skip %v, ids %v: streamed %q, Decode %q", skip, ids, got, want)
			}
		}
	}
}

// TestDecoderHoldsBack checks that text comes as soon as it is whole.
func TestDecoderHoldsBack(t *testing.T) {
	tok := tiny(t)
	d := tok.Decoder(false)
	for i, step := range []struct {
		b    byte
		want string
	}{
		{'a', "a"},
		{0xf0, ""},
		{0x9f, ""},
		{0x98, ""},
		{0x80, "😀"},
		{0xe2, ""},
		{0x82, ""},
		{'b', "\ufffdb"},
		{0x80, "\ufffd"},
		{0xc3, ""},
	} {
		if got := d.Next(tok.bpe.bytes[step.b]); got != step.want {
			t.Errorf("step %d: Next = %q, want %q", i, got, step.want)
		}
	}
	if got := d.Flush(); got != "\ufffd" {
		t.Errorf("Flush = %q", got)
	}
	if got := d.Flush(); got != "" {
		t.Errorf("second Flush = %q", got)
	}
}

func TestDecoderAllocatesNothingForPlainText(t *testing.T) {
	tok := tiny(t)
	ids := tok.Encode("Once upon a time there was a cat.")
	d := tok.Decoder(true)
	if n := testing.AllocsPerRun(100, func() {
		for _, id := range ids {
			d.Next(id)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzDecoderEqualsDecode(f *testing.F) {
	both := []*Tokenizer{tiny(f), mustNew(f, charactersFile(f))}
	f.Add([]byte("\xf0\x9f\x98\x80"), false)
	f.Add([]byte("\xe2\x82\xe2\x82\xac"), true)
	f.Fuzz(func(t *testing.T, data []byte, skip bool) {
		for _, tok := range both {
			ids := make([]int32, len(data))
			for i, b := range data {
				if ids[i] = byteTokens(tok)[b]; b < 0x20 { // a character, or a control token
					ids[i] = int32(b) << 4
				}
			}
			if got, want := streamed(t, tok.Decoder(skip), ids), tok.Decode(ids, skip); got != want {
				t.Errorf("%q: streamed %q, Decode %q", data, got, want)
			}
		}
	})
}

// byteTokens are the tokens of single bytes, which a vocabulary of characters falls back to.
func byteTokens(tok *Tokenizer) *[256]int32 {
	if c := tok.bpe.chars; c != nil {
		return &c.fallback
	}
	return &tok.bpe.bytes
}
