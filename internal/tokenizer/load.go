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

	model *jsontext.Reader // that came before the decoder and is read at the end

	// Of the model:
	chars        *characters // nil: the vocabulary is byte-level
	vocab        *vocabulary
	bpe          bpe
	merges       *jsontext.Reader // that came before the vocabulary and are read at the end
	ignoreMerges bool
}

func load(data []byte) (*Tokenizer, error) {
	var d document
	err := jsontext.Read(data, limits, d.read)
	if err == nil && d.model != nil {
		err = d.readModel(d.model)
	}
	switch {
	case err != nil:
		return nil, err
	case d.vocab == nil:
		return nil, errors.New("model: no vocab")
	case d.bpe.products == nil:
		return nil, errors.New("model: no merges")
	}
	t := &Tokenizer{cache: newWordCache(), vocab: d.vocab, bpe: d.bpe}
	t.bpe.ignoreMerges = d.ignoreMerges
	if t.normalize, err = readNormalizer(d.normalizer, d.chars); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	var steps *preTokenizerJSON
	if err = decode(d.preTokenizer, &steps); err == nil && d.chars != nil {
		t.pretoken, err = d.chars.pretokenizer(steps, d.ignoreMerges)
	} else if err == nil {
		t.pretoken, err = newPretokenizer(steps)
	}
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
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
			if d.decoder == nil {
				d.model, err = r.Value()
			} else {
				err = d.readModel(r)
			}
		default:
			err = r.Skip()
		}
		return err
	})
}

func (d *document) readModel(r *jsontext.Reader) (err error) {
	if d.chars, err = readDecoder(d.decoder); err != nil {
		return fmt.Errorf("decoder: %w", err)
	}
	err = r.Object(func(key []byte) error {
		name := string(key)
		if err := d.readField(r, name); err != nil {
			return fmt.Errorf("model.%s: %w", name, err)
		}
		return nil
	})
	if err == nil && d.vocab != nil && d.merges != nil {
		if d.bpe, err = readBPE(d.merges, d.vocab, d.chars); err != nil {
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
		if d.chars == nil {
			d.vocab, err = readVocabulary(r, appendBytes)
		} else {
			d.vocab, err = d.chars.readVocabulary(r)
		}
		return err
	case name == "merges" && d.vocab != nil:
		d.bpe, err = readBPE(r, d.vocab, d.chars)
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
			err = fmt.Errorf("%q is not supported: want none", text)
		}
	default:
		// unk_token, fuse_unk and byte_fallback are for text without a
		// token, which does not exist because every byte has one: the decoder
		// says whether they are in an alphabet, or a fallback.
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

// readNormalizer returns what is done to text before it is encoded, nil for nothing: form C, or for
// a vocabulary of characters the replacement of spaces, which it must have.
func readNormalizer(part *jsontext.Reader, c *characters) (func(string) string, error) {
	type normalizer struct {
		Type        string       `json:"type"`
		Normalizers []normalizer `json:"normalizers"` // Sequence
		replacement
	}
	var root *normalizer
	if err := decode(part, &root); err != nil {
		return nil, err
	}
	var found func(string) string
	var read func(n *normalizer) error
	read = func(n *normalizer) error {
		switch {
		case n.Type == "NFC" && c == nil:
			found = composeNFC
		case n.Type == "Replace" && c != nil && n.Pattern.String == " " && n.Content == blank && found == nil:
			found = unblank
		case n.Type == "Sequence":
			for i := range n.Normalizers {
				if err := read(&n.Normalizers[i]); err != nil {
					return err
				}
			}
		case c != nil:
			return fmt.Errorf("type %q (from %q to %q) is not supported, want one Replace of spaces by %q", n.Type, n.Pattern.String, n.Content, blank)
		default:
			return fmt.Errorf("type %q is not supported, want NFC or a Sequence of it", n.Type)
		}
		return nil
	}
	if root != nil {
		if err := read(root); err != nil {
			return nil, err
		}
	}
	if c != nil && found == nil {
		return nil, fmt.Errorf("none, want one Replace of spaces by %q, which the decoder reverses", blank)
	}
	return found, nil
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

// replacement is the fields of a Replace.
type replacement struct {
	Pattern struct {
		String string `json:"String"`
	} `json:"pattern"`
	Content string `json:"content"`
}

// readDecoder returns nil if tokens are to be decoded as bytes, or an empty vocabulary of characters.
func readDecoder(part *jsontext.Reader) (*characters, error) {
	type decoder struct {
		Type     string    `json:"type"`
		Decoders []decoder `json:"decoders"` // Sequence
		replacement
	}
	var d decoder
	if err := decode(part, &d); err != nil {
		return nil, err
	}
	if d.Type == "ByteLevel" || d.Type == "Sequence" && len(d.Decoders) == 1 && d.Decoders[0].Type == "ByteLevel" {
		return nil, nil
	}
	kinds := d.Type
	for i, step := range d.Decoders {
		kinds += " " + step.Type
		if i == 0 && step.Type == "Replace" && (step.Pattern.String != blank || step.Content != " ") {
			kinds += " of other texts"
		}
	}
	if kinds == "Sequence Replace ByteFallback Fuse" {
		return &characters{}, nil
	}
	return nil, fmt.Errorf("type %q is not supported, want ByteLevel, or a Sequence of Replace (%q by a space), ByteFallback and Fuse", kinds, blank)
}
