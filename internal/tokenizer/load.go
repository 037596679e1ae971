package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/foretoken/foretoken/internal/jsontext"
)

// limits of tokenizer.json. Real ones are tens of megabytes.
var limits = jsontext.Limits{Bytes: 1 << 29, Depth: 64}

// New reads the contents of a tokenizer.json, which it does not keep. It
// returns an error that names the part of the file if anything there is broken
// or of a kind that would give other ids than the reference.
func New(tokenizerJSON []byte) (*Tokenizer, error) {
	t, err := load(tokenizerJSON)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return t, nil
}

// document is the contents of a tokenizer.json. The vocabulary and its merges, megabytes of short
// strings, are read in place: through reflection into maps they would take longer than
// everything else at load, and a token listed twice would go unseen. The small parts, nil if
// missing, go through encoding/json.
type document struct {
	added, normalizer, preTokenizer, decoder, post *jsontext.Reader

	// Of the model:
	vocab        *vocabulary
	bpe          bpe
	merges       *jsontext.Reader // that came before the vocabulary and are read at the end
	ignoreMerges bool
}

func load(data []byte) (*Tokenizer, error) {
	var d document
	if err := jsontext.Read(data, limits, d.read); err != nil {
		return nil, err
	}
	switch {
	case d.vocab == nil:
		return nil, errors.New("model: no vocab")
	case d.bpe.products == nil:
		return nil, errors.New("model: no merges")
	}
	t := &Tokenizer{cache: newWordCache(), vocab: d.vocab, bpe: d.bpe}
	t.bpe.ignoreMerges = d.ignoreMerges
	var err error
	if t.nfc, err = readNormalizer(d.normalizer); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	var steps *preTokenizerJSON
	if err = decode(d.preTokenizer, &steps); err == nil {
		t.pretoken, err = newPretokenizer(steps)
	}
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	if err := checkDecoder(d.decoder); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	var added []addedToken
	if err = decode(d.added, &added); err == nil {
		err = t.addTokens(added)
	}
	if err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	if t.prefix, err = t.readPrefix(d.post); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	t.begins = sync.OnceValue(t.findBegins)
	for _, token := range t.vocab.tokens {
		t.longest = max(t.longest, len(token))
	}
	return t, nil
}

// read reads the model and finds the other parts of the file.
func (d *document) read(r *jsontext.Reader) error {
	return r.Object(func(key []byte) (err error) {
		switch string(key) {
		case "added_tokens":
			d.added, err = r.Value()
		case "normalizer":
			d.normalizer, err = r.Value()
		case "pre_tokenizer":
			d.preTokenizer, err = r.Value()
		case "decoder":
			d.decoder, err = r.Value()
		case "post_processor":
			d.post, err = r.Value()
		case "model":
			err = d.readModel(r)
		default:
			err = r.Skip()
		}
		return err
	})
}

func (d *document) readModel(r *jsontext.Reader) error {
	err := r.Object(func(key []byte) error {
		name := string(key)
		if err := d.readField(r, name); err != nil {
			return fmt.Errorf("model.%s: %w", name, err)
		}
		return nil
	})
	if err == nil && d.vocab != nil && d.merges != nil {
		if d.bpe, err = readBPE(d.merges, d.vocab); err != nil {
			err = fmt.Errorf("model.merges: %w", err)
		}
	}
	return err
}

// readField reads a field of the model.
func (d *document) readField(r *jsontext.Reader, name string) (err error) {
	switch {
	case name == "vocab" && d.vocab != nil:
		return r.Errorf("appears twice")
	case name == "vocab":
		d.vocab, err = readVocabulary(r)
		return err
	case name == "merges" && d.vocab != nil:
		d.bpe, err = readBPE(r, d.vocab)
		return err
	}
	value, err := r.Value()
	if err != nil {
		return err
	}
	var text string
	var dropout float64
	switch name {
	case "merges":
		d.merges = value
	case "ignore_merges":
		err = decode(value, &d.ignoreMerges)
	case "type":
		if err = decode(value, &text); err == nil && text != "BPE" && text != "" { // old files do not say
			err = fmt.Errorf("%q is not supported, want BPE", text)
		}
	case "dropout":
		if err = decode(value, &dropout); err == nil && dropout != 0 {
			err = errors.New("dropout is for training, want null")
		}
	case "continuing_subword_prefix", "end_of_word_suffix":
		if err = decode(value, &text); err == nil && text != "" {
			err = fmt.Errorf("%q is not supported: byte-level vocabularies have none", text)
		}
	default:
		// unk_token, fuse_unk and byte_fallback are for text without a
		// token, which does not exist because every byte has one.
	}
	return err
}

// decode reads a part of the file into v with encoding/json. A part that is not there leaves v.
func decode(part *jsontext.Reader, v any) error {
	if part == nil {
		return nil
	}
	if err := json.Unmarshal(part.Rest(), v); err != nil {
		return part.Errorf("%w", err)
	}
	return nil
}

// readNormalizer returns whether text is to be brought into form C.
func readNormalizer(part *jsontext.Reader) (bool, error) {
	type normalizer struct {
		Type        string       `json:"type"`
		Normalizers []normalizer `json:"normalizers"` // Sequence
	}
	var root *normalizer
	if err := decode(part, &root); err != nil || root == nil {
		return false, err
	}
	var nfc func(n *normalizer) (bool, error)
	nfc = func(n *normalizer) (bool, error) {
		switch n.Type {
		case "NFC":
			return true, nil
		case "Sequence":
			found := false
			for i := range n.Normalizers {
				one, err := nfc(&n.Normalizers[i])
				if err != nil {
					return false, err
				}
				found = found || one
			}
			return found, nil
		}
		return false, fmt.Errorf("type %q is not supported, want NFC or a Sequence of it", n.Type)
	}
	return nfc(root)
}

// readPrefix returns the tokens that the post-processor puts before a text.
func (t *Tokenizer) readPrefix(part *jsontext.Reader) ([]int32, error) {
	type processor struct {
		Type       string      `json:"type"`
		Processors []processor `json:"processors"` // Sequence
		Single     []struct {  // TemplateProcessing
			Token *struct {
				ID string `json:"id"`
			} `json:"SpecialToken"`
		} `json:"single"`
		Tokens map[string]struct {
			IDs []int32 `json:"ids"`
		} `json:"special_tokens"`
	}
	var root *processor
	if err := decode(part, &root); err != nil || root == nil {
		return nil, err
	}
	var prefix []int32
	for _, p := range append([]processor{*root}, root.Processors...) {
		if p.Type != "TemplateProcessing" {
			continue
		}
		for _, piece := range p.Single {
			if piece.Token == nil {
				break // the text
			}
			token, ok := p.Tokens[piece.Token.ID]
			if !ok || len(token.IDs) == 0 {
				return nil, fmt.Errorf("the token %q has no ids", piece.Token.ID)
			}
			for _, id := range token.IDs {
				if _, ok := t.Token(id); !ok {
					return nil, fmt.Errorf("token %q: the vocabulary has no id %d", piece.Token.ID, id)
				}
			}
			prefix = append(prefix, token.IDs...)
		}
	}
	return prefix, nil
}

// checkDecoder checks that tokens are to be decoded as bytes.
func checkDecoder(part *jsontext.Reader) error {
	type decoder struct {
		Type     string    `json:"type"`
		Decoders []decoder `json:"decoders"` // Sequence
	}
	var d decoder
	if err := decode(part, &d); err != nil {
		return err
	}
	if d.Type == "Sequence" && len(d.Decoders) == 1 {
		d = d.Decoders[0]
	}
	if d.Type != "ByteLevel" {
		return fmt.Errorf("type %q is not supported, want ByteLevel", d.Type)
	}
	return nil
}
