package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tinyFile is the tokenizer of the embedded model: 8,192 tokens, the Qwen3.5
// pattern.
func tinyFile(tb testing.TB) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("..", "models", "tiny", "tokenizer.json"))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// qwen3File is a released tokenizer: 151,669 tokens, the Qwen2 pattern. It is
// third-party data and no part of the repository.
func qwen3File(tb testing.TB) []byte {
	tb.Helper()
	path := filepath.Join("..", "..", "shared", "fixtures", "tokenizer", "qwen3", "tokenizer.json")
	data, err := os.ReadFile(path)
	if err == nil {
		return data
	}
	if os.Getenv("CI") == "true" {
		tb.Fatalf("third-party tokenizer must be there in CI: %v", err)
	}
	tb.Skipf("third-party tokenizer is not here: %v", err)
	return nil
}

func tiny(tb testing.TB) *Tokenizer {
	tb.Helper()
	return mustNew(tb, tinyFile(tb))
}

func qwen3(tb testing.TB) *Tokenizer {
	tb.Helper()
	return mustNew(tb, qwen3File(tb))
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
}

func referenceCases(tb testing.TB, name string) []referenceCase {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	var file struct{ Cases []referenceCase }
	if err := json.Unmarshal(data, &file); err != nil {
		tb.Fatal(err)
	}
	if len(file.Cases) < 500 {
		tb.Fatalf("%s: only %d cases", name, len(file.Cases))
	}
	return file.Cases
}

func TestEncodeEqualsReference(t *testing.T) {
	for _, set := range []struct {
		name string
		size int
		tok  func(testing.TB) *Tokenizer
	}{{"tiny", 8192, tiny}, {"qwen3", 151669, qwen3}} {
		t.Run("vocab="+set.name, func(t *testing.T) {
			tok := set.tok(t)
			if tok.Size() != set.size {
				t.Errorf("Size() = %d, want %d", tok.Size(), set.size)
			}
			for _, c := range referenceCases(t, set.name+"_cases.json") {
				// Twice: the second time words come from the cache.
				for range 2 {
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

// TestEncodeConcurrently shares one word cache among goroutines; it is the race
// detector's.
func TestEncodeConcurrently(t *testing.T) {
	tok := tiny(t)
	cases := referenceCases(t, "tiny_cases.json")
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range cases {
				c := cases[(i*7+g*131)%len(cases)]
				if ids := tok.Encode(c.Text); !slices.Equal(ids, c.IDs) {
					t.Errorf("Encode(%q) = %v, want %v", c.Text, ids, c.IDs)
				}
			}
		})
	}
	wg.Wait()
}

// TestEncodeKeepsNoWord checks that the cache copies what it stores: a caller's
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
	tok := tiny(f)
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
