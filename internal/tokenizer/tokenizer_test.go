package tokenizer

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/foretoken/foretoken/internal/filetest"
)

// tinyFile is the tokenizer of the embedded model: 8,192 tokens, the Qwen3.5
// pattern.
func tinyFile(tb testing.TB) []byte {
	tb.Helper()
	return filetest.Read(tb, filepath.Join("..", "models", "tiny", "tokenizer.json"))
}

// fixturesVariable names a folder with third-party tokenizers, which are no part of the
// repository: where it is set they are tested as well.
const fixturesVariable = "FORETOKEN_FIXTURES"

// qwen3File is a released tokenizer: 151,669 tokens, the Qwen2 pattern. It is nil where there
// are no third-party fixtures.
func qwen3File(tb testing.TB) []byte {
	tb.Helper()
	dir := os.Getenv(fixturesVariable)
	if dir == "" {
		return nil
	}
	return filetest.Read(tb, filepath.Join(dir, "tokenizer", "qwen3", "tokenizer.json"))
}

type tokenizerFile struct {
	name string
	size int // tokens
	file []byte
}

// charactersFile is a vocabulary of characters with a fallback to bytes, trained for tests.
func charactersFile(tb testing.TB) []byte {
	tb.Helper()
	return unzipped(tb, "characters.json")
}

// unzipped is the contents of a compressed file of testdata.
func unzipped(tb testing.TB, name string) []byte {
	tb.Helper()
	z, err := gzip.NewReader(bytes.NewReader(filetest.Read(tb, filepath.Join("testdata", name+".gz"))))
	if err != nil {
		tb.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// vocabularies are the embedded model's, one of characters, and the released one where there is any.
func vocabularies(tb testing.TB) []tokenizerFile {
	tb.Helper()
	found := []tokenizerFile{{"tiny", 8196, tinyFile(tb)}, {"characters", 3003, charactersFile(tb)}}
	if file := qwen3File(tb); file != nil {
		found = append(found, tokenizerFile{"qwen3", 151669, file})
	}
	return found
}

func tiny(tb testing.TB) *Tokenizer {
	tb.Helper()
	return mustNew(tb, tinyFile(tb))
}

func mustNew(tb testing.TB, file []byte) *Tokenizer {
	tb.Helper()
	t, err := New(file)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

type referenceCase struct {
	Text        string  `json:"text"`
	IDs         []int32 `json:"ids"`
	Decoded     string  `json:"decoded"`
	DecodedSkip string  `json:"decoded_skip"`
	Odd         bool    `json:"odd"` // no text has these ids
}

func referenceCases(tb testing.TB, name string) []referenceCase {
	tb.Helper()
	var file struct{ Cases, Decode []referenceCase }
	filetest.Decode(tb, unzipped(tb, name), &file)
	if len(file.Cases)+len(file.Decode) < 232 {
		tb.Fatalf("%s: only %d cases", name, len(file.Cases)+len(file.Decode))
	}
	return append(file.Cases, file.Decode...)
}

func TestEncodeEqualsReference(t *testing.T) {
	for _, set := range vocabularies(t) {
		t.Run("vocab="+set.name, func(t *testing.T) {
			tok := mustNew(t, set.file)
			if tok.Size() != set.size {
				t.Errorf("Size() = %d, want %d", tok.Size(), set.size)
			}
			for _, c := range referenceCases(t, set.name+"_cases.json") {
				// Twice: the second time words come from the cache.
				for range 2 {
					if c.Odd {
						continue
					}
					if ids := tok.Encode(c.Text); !slices.Equal(ids, c.IDs) {
						t.Errorf("Encode(%q)\n got %v\nwant %v", c.Text, ids, c.IDs)
					}
				}
				if text := tok.Decode(c.IDs, false); text != c.Decoded {
					t.Errorf("Decode(%v) = %q, want %q", c.IDs, text, c.Decoded)
				}
				if text := tok.Decode(c.IDs, true); text != c.DecodedSkip {
					t.Errorf("Decode(%v, skip) = %q, want %q", c.IDs, text, c.DecodedSkip)
				}
			}
		})
	}
}

// TestEncodeEqualsDefinition encodes the texts of all reference cases with the small vocabulary
// and either pattern, and compares them with the slow way: normalize, split by the expression,
// merge one pair at a time. So the Qwen2 pattern is tested without a tokenizer that has it.
func TestEncodeEqualsDefinition(t *testing.T) {
	texts := referenceCases(t, "tiny_cases.json")
	texts = append(texts, referenceCases(t, "qwen3_cases.json")...)
	if testing.Short() {
		texts = texts[len(texts)-300:]
	}
	for _, f := range flavors {
		t.Run("pattern="+f.name, func(t *testing.T) {
			spelled := func(expr string) []byte {
				return filetest.Encode(t, expr)
			}
			file := bytes.Replace(tinyFile(t), spelled(qwen35Pattern), spelled(f.expr), 1)
			if !bytes.Contains(file, spelled(f.expr)) {
				t.Fatal("the tokenizer has another pattern than the one to replace")
			}
			tok, plain, split := mustNew(t, file), newPlainBPE(t, file), oracle(t, f.expr)
			n := 0
			for _, c := range texts {
				if strings.Contains(c.Text, "<") || strings.Contains(c.Text, "\u017f") {
					continue // added tokens, and differences of case folding, have other tests
				}
				var want []int32
				for _, word := range pieces(split, norm.NFC.String(c.Text)) {
					want = append(want, plain.encode(word)...)
				}
				if got := tok.Encode(c.Text); !slices.Equal(got, want) {
					t.Errorf("Encode(%q)\n got %v\nwant %v", c.Text, got, want)
				}
				n++
			}
			if n < len(texts)/2 {
				t.Errorf("only %d of %d texts were tried", n, len(texts))
			}
		})
	}
}

func TestTokenInvertsID(t *testing.T) {
	tok := tiny(t)
	for id := range int32(tok.Size()) {
		text, ok := tok.Token(id)
		if !ok {
			t.Fatalf("Token(%d) is missing", id)
		}
		if back, ok := tok.ID(text); !ok || back != id {
			t.Fatalf("ID(%q) = %d, %v; want %d", text, back, ok, id)
		}
	}
	for _, id := range []int32{-1, int32(tok.Size()), 1<<31 - 1, -1 << 31} {
		if text, ok := tok.Token(id); ok || text != "" || tok.Special(id) {
			t.Errorf("Token(%d) = %q, %v, special %v", id, text, ok, tok.Special(id))
		}
	}
	if id, ok := tok.ID("not a token at all"); ok {
		t.Errorf("ID of nonsense = %d", id)
	}
	if got := tok.Decode([]int32{-5, 1 << 30}, false); got != "" {
		t.Errorf("ids without a token decode to %q", got)
	}
}

func TestSpecialFollowsFile(t *testing.T) {
	tok := tiny(t)
	for _, c := range []struct {
		token   string
		special bool
	}{
		{"<|endoftext|>", true},
		{"<|im_start|>", true},
		{"<|im_end|>", true},
		{"<think>", false},
		{"</tool_call>", false},
		{" the", false},
	} {
		id, ok := tok.ID(c.token)
		if !ok || tok.Special(id) != c.special {
			t.Errorf("%q: id %d, %v, special %v; want special %v", c.token, id, ok, tok.Special(id), c.special)
		}
	}
}

func TestAppendEncodeKeepsPrefix(t *testing.T) {
	tok := tiny(t)
	dst := []int32{7, 8, 9}
	got := tok.AppendEncode(dst, "Hello, world!")
	if want := append([]int32{7, 8, 9}, tok.Encode("Hello, world!")...); !slices.Equal(got, want) {
		t.Errorf("AppendEncode = %v, want %v", got, want)
	}
	if got := tok.AppendEncode(nil, ""); len(got) != 0 {
		t.Errorf("AppendEncode of nothing = %v", got)
	}
}

// TestEncodeConcurrently shares one word cache between goroutines; it is the race
// detector's.
func TestEncodeConcurrently(t *testing.T) {
	for _, v := range vocabularies(t)[:2] {
		encodeConcurrently(t, mustNew(t, v.file), referenceCases(t, v.name+"_cases.json"))
	}
}

func encodeConcurrently(t *testing.T, tok *Tokenizer, cases []referenceCase) {
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range cases {
				c := cases[(i*7+g*131)%len(cases)]
				if ids := tok.Encode(c.Text); !c.Odd && !slices.Equal(ids, c.IDs) {
					t.Errorf("Encode(%q) = %v, want %v", c.Text, ids, c.IDs)
				}
			}
		})
	}
	wg.Wait()
}

// TestEncodeKeepsNoWord checks that the cache copies its words: a caller's
// memory may change after the call.
func TestEncodeKeepsNoWord(t *testing.T) {
	tok := tiny(t)
	want := tok.Encode("unforgettable tales")
	ids := tok.AppendEncode(make([]int32, 0, 64), "unforgettable tales")
	clear(ids)
	if got := tok.Encode("unforgettable tales"); !slices.Equal(got, want) {
		t.Errorf("after the caller's ids were cleared: %v, want %v", got, want)
	}
}

func FuzzEncodeDecodesToItself(f *testing.F) {
	tok, characters := tiny(f), mustNew(f, charactersFile(f))
	for _, c := range referenceCases(f, "tiny_cases.json")[:60] {
		f.Add(c.Text)
	}
	f.Add("\xff\xf0\x9f\x98 broken \xe2\x82")
	f.Add("e\u0301<think>\u0301")
	f.Fuzz(func(t *testing.T, text string) {
		for _, plain := range []bool{false, true} {
			ids := tok.Encode(text)
			if plain {
				ids, _ = tok.EncodeWithin(text, nil, 0)
			}
			if got, want := characters.Decode(characters.Encode(text), false), unblank(validUTF8(text)); got != want {
				t.Errorf("characters: %q became %q, want %q", text, got, want)
			}
			got, want := tok.Decode(ids, false), composeNFC(validUTF8(text))
			if strings.Contains(text, "<") {
				// An added token may have kept characters from composing.
				got = composeNFC(got)
			}
			if got != want {
				t.Errorf("plain %v: %q became %v, which is %q", plain, text, ids, got)
			}
			for _, id := range ids {
				if _, ok := tok.Token(id); !ok {
					t.Errorf("%q became id %d, which has no token", text, id)
				}
			}
		}
	})
}
