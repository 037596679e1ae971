package generate

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/dialogue"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/tokenizer"
)

// TestCallsInTokensOfCharacters draws calls token by token from a vocabulary of characters, whose byte tokens
// have the bytes of other tokens too and whose tags are control tokens: the streamed text is the bytes of the
// tokens, and a call that fits its schema.
func TestCallsInTokensOfCharacters(t *testing.T) {
	tok := tokenizerOfCharacters(t)
	tok.Show(dialogue.Tags()...)
	tokens := make([]string, tok.Size())
	for id := range int32(tok.Size()) {
		if !tok.Special(id) {
			tokens[id], _ = tok.Token(id)
		}
	}
	end, _ := tok.ID("<turn|>")
	v, err := grammar.NewVocab(tokens, []int32{end})
	if err != nil {
		t.Fatal(err)
	}
	mark, _ := tok.ID(`<|"|>`)
	taught := dialogue.Teaches(marked)
	drawn := 0
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(3, seed))
		tools, err := chat.DecodeTools([]byte(RandomTool(r, []string{
			`{"type": "string", "maxLength": 40}`, `{"enum": ["a b", "漢", null]}`, `{"type": "integer", "minimum": -20, "maximum": 3000}`,
			`{"type": "array", "items": {"type": "string", "pattern": "^[é漢🙂]{1,5}$"}, "maxItems": 2}`,
		})))
		if err != nil {
			t.Fatal(err)
		}
		a := &Request{Tools: tools, Calls: CallRequired}
		source, err := a.calls(tools, taught)
		if err != nil {
			t.Fatal(err)
		}
		g, err := grammar.Compile(source, v)
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			ids, ok := drawIDs(r, g.Matcher(), mark, end)
			if !ok {
				continue
			}
			drawn++
			var streamed, whole strings.Builder
			d := tok.Decoder(true)
			for _, id := range ids {
				streamed.WriteString(d.Next(id))
				whole.WriteString(tokens[id])
			}
			streamed.WriteString(d.Flush())
			if streamed.String() != whole.String() {
				t.Fatalf("%v: streamed %q, the tokens have %q", ids, streamed.String(), whole.String())
			}
			call := parse(t, tools, taught, whole.String())
			if fault := Fault(t, tools[0], call); fault != "" {
				t.Fatalf("%q: %s", whole.String(), fault)
			}
		}
	}
	if drawn < 24 {
		t.Errorf("only %d calls", drawn)
	}
}

// tokenizerOfCharacters is the tokenizer of package tokenizer's tests.
func tokenizerOfCharacters(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(filetest.Read(t, "../../tokenizer/testdata/characters.json.gz")))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(data)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// drawIDs draws allowed ids, with a preference for mark, up to end.
func drawIDs(r *rand.Rand, m *grammar.Matcher, mark, end int32) (ids []int32, ok bool) {
	for range 2000 {
		mask := m.Allowed(nil)
		allowed := func(id int32) bool { return mask[id/64]>>(id%64)&1 != 0 }
		var list []int32
		for id := range int32(len(mask) * 64) {
			if allowed(id) {
				list = append(list, id)
			}
		}
		id := list[r.IntN(len(list))]
		if allowed(mark) && r.IntN(3) == 0 {
			id = mark
		}
		if id == end {
			return ids, true
		}
		ids = append(ids, id)
		m.Accept(id)
	}
	return nil, false
}
