package grammar

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/tokenizer"
)

// qwenLike is a vocabulary of the size and shape of Qwen's: every byte, then words with
// and without a blank before them, numbers of a digit only, Chinese, punctuation with
// quotation marks and escapes, runs of white space, and parts of characters.
var qwenLike = sync.OnceValue(func() []string {
	const size = 151_643
	r := rand.New(rand.NewPCG(1, 151))
	tokens := make([]string, 0, size+1)
	known := map[string]bool{}
	add := func(s string) {
		if !known[s] && len(tokens) < size {
			known[s] = true
			tokens = append(tokens, s)
		}
	}
	for b := range 256 {
		add(string([]byte{byte(b)}))
	}
	for _, p := range pieces {
		add(p)
	}
	syllables := strings.Fields("a e i o u an en in on er re st th ch ing tion al ly com pro de con per ment able ver ter ss ck ate ous ism get set id name file value list type ser con fig")
	marks := strings.Fields(`" ' ( ) [ ] { } : ; , . / \ - _ = + * & # @ ! ? < > | ~ ", ": "] "} \n \" \\ ") ."`)
	spaces := []string{" ", "\n", "\t", "\r\n", "  "}
	for len(tokens) < size {
		var b strings.Builder
		switch n := r.IntN(1000); {
		case n < 25: // white space
			for range 1 + r.IntN(12) {
				b.WriteString(spaces[r.IntN(len(spaces))])
			}
		case n < 45: // punctuation
			for range 1 + r.IntN(4) {
				b.WriteString(marks[r.IntN(len(marks))])
			}
		case n < 55: // the beginning of a character, or the end of one
			c := string(rune(0x400 + r.IntN(0x9000)))
			if b.WriteString(c[:len(c)-1]); n < 50 {
				b.Reset()
				b.WriteString(c[1:])
			}
		case n < 250:
			for range 1 + r.IntN(3) {
				b.WriteRune(rune(0x4E00 + r.IntN(0x4000)))
			}
		default:
			if r.IntN(2) == 0 {
				b.WriteByte(' ')
			}
			word := ""
			for range 1 + r.IntN(4) {
				word += syllables[r.IntN(len(syllables))]
			}
			if r.IntN(4) == 0 {
				word = strings.ToUpper(word[:1]) + word[1:]
			}
			if r.IntN(40) == 0 {
				word += marks[r.IntN(len(marks))]
			}
			b.WriteString(word)
		}
		add(b.String())
	}
	return append(tokens, "")
})

func qwenVocab(b testing.TB) *Vocab {
	b.Helper()
	tokens := qwenLike()
	v, err := NewVocab(tokens, []int32{int32(len(tokens) - 1)})
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// tinyVocab is the embedded model's vocabulary.
func tinyVocab(b testing.TB) *Vocab {
	b.Helper()
	data := filetest.Read(b, filepath.Join(golden.Dir(b, "tiny"), "tokenizer.json"))
	tok, err := tokenizer.New(data)
	if err != nil {
		b.Fatal(err)
	}
	tokens := make([]string, tok.Size())
	for id := range tokens {
		if !tok.Special(int32(id)) {
			tokens[id], _ = tok.Token(int32(id))
		}
	}
	end, ok := tok.ID("<|im_end|>")
	if !ok {
		b.Fatal("no end token")
	}
	v, err := NewVocab(tokens, []int32{end})
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// longest cuts a text into the longest tokens there are.
func longest(v *Vocab, text string) []int32 {
	index := map[string]int32{}
	for id, token := range v.tokens {
		if token != "" {
			index[token] = int32(id)
		}
	}
	var ids []int32
	for text != "" {
		n := min(len(text), v.deepest)
		for ; ; n-- {
			if id, ok := index[text[:n]]; ok {
				ids = append(ids, id)
				break
			}
		}
		text = text[n:]
	}
	return ids
}

var benchmarks = []struct {
	name   string
	source Source
	text   string
}{
	{
		"person", Schema([]byte(`{"type": "object", "properties": {
			"name": {"type": "string", "maxLength": 60}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
			"email": {"type": "string", "format": "email"}, "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 5},
			"notes": {"type": "string"}, "scores": {"type": "object", "additionalProperties": {"type": "number"}}},
			"required": ["name", "age"]}`)),
		`{"name": "Ada Lovelace", "age": 36, "email": "ada@example.com", "tags": ["red", "blue"], "notes": "The first \"programmer\" of them all; she wrote notes on the engine.", "scores": {"x": 1.5, "y": 2e10}, "more": [1, 2, {"a": "b"}]}`,
	},
	{
		"tree", Schema([]byte(`{"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "additionalProperties": false,
			"properties": {"label": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "required": ["label", "children"]}}}`)),
		`{"label": "root", "children": [{"label": "left", "children": [{"label": "leaf", "children": []}, {"label": "leaf", "children": []}]}, {"label": "right", "children": [{"label": "a", "children": []}]}]}`,
	},
	{"json", JSON(), "{\n  \"items\": [\n    {\"id\": 1, \"ok\": true, \"text\": \"Some text with \\\"quotes\\\" in it\"},\n    {\"id\": 2, \"ok\": false, \"text\": null}\n  ]\n}"},
	{"regexp", Regexp(`[A-Z][a-z]+( [a-z]+){1,20}\.`), "The quick brown fox jumps over the lazy dog and the list of names."},
}

// BenchmarkMask measures the mask of every token of a text. Warm is the second text of a
// grammar, cold its first, compilation not included.
func BenchmarkMask(b *testing.B) {
	for _, v := range []struct {
		name  string
		vocab func(testing.TB) *Vocab
	}{{"151k", qwenVocab}, {"tiny", tinyVocab}} {
		b.Run("vocab="+v.name, func(b *testing.B) { benchmarkMask(b, v.vocab(b)) })
	}
}

func benchmarkMask(b *testing.B, v *Vocab) {
	for _, c := range benchmarks {
		ids := longest(v, c.text)
		follow := func(g *Grammar) {
			m := g.Matcher()
			for _, id := range ids {
				if !has(m.Allowed(nil), id) {
					b.Fatalf("%q is not allowed", v.tokens[id])
				}
				m.Accept(id)
			}
			if !m.mayEnd() {
				b.Fatal("may not end")
			}
		}
		b.Run("grammar="+c.name+"/phase=warm", func(b *testing.B) {
			g := compile(b, c.source, v)
			follow(g)
			for b.Loop() {
				follow(g)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(ids)), "µs/token")
		})
		b.Run("grammar="+c.name+"/phase=cold", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				g := compile(b, c.source, v)
				b.StartTimer()
				follow(g)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(ids)), "µs/token")
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	v := qwenVocab(b)
	for _, c := range benchmarks {
		b.Run("grammar="+c.name, func(b *testing.B) {
			for b.Loop() {
				compile(b, c.source, v)
			}
		})
	}
}

func BenchmarkNewVocab(b *testing.B) {
	qwenLike()
	for b.Loop() {
		qwenVocab(b)
	}
}
