package tokenizer

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxFile bounds tokenizer.json, in bytes. Real ones are tens of megabytes.
const maxFile = 1 << 29

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

// document is where the parts of a tokenizer.json lie.
type document struct {
	added, normalizer, preTokenizer, decoder reader

	vocab, merges  reader // of the model, as is what follows
	modelType      string
	ignoreMerges   bool
	dropout        float64
	prefix, suffix string
}

func load(data []byte) (*Tokenizer, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("file of %d bytes; at most %d are read", len(data), maxFile)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("file is not UTF-8")
	}
	var d document
	if err := d.read(data); err != nil {
		return nil, err
	}
	if err := d.checkModel(); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	t := &Tokenizer{cache: newWordCache()}
	var err error
	if t.vocab, err = readVocabulary(d.vocab); err != nil {
		return nil, fmt.Errorf("model.vocab: %w", err)
	}
	if t.bpe, err = readBPE(d.merges, t.vocab); err != nil {
		return nil, fmt.Errorf("model.merges: %w", err)
	}
	t.bpe.ignoreMerges = d.ignoreMerges
	if t.nfc, err = readNormalizer(d.normalizer); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	var steps *preTokenizerJSON
	if err = d.preTokenizer.decode(&steps); err == nil {
		t.pretoken, err = newPretokenizer(steps)
	}
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	if err := checkDecoder(d.decoder); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	var added []addedToken
	if err = d.added.decode(&added); err == nil {
		err = t.addTokens(added)
	}
	if err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	for _, token := range t.vocab.tokens {
		t.longest = max(t.longest, len(token))
	}
	return t, nil
}

// read finds the parts of the file.
func (d *document) read(data []byte) error {
	null := reader{data: []byte("null")}
	*d = document{added: null, normalizer: null, preTokenizer: null, decoder: null}
	r := &reader{data: data}
	err := r.object(func(key []byte) error {
		var err error
		switch string(key) {
		case "added_tokens":
			d.added, err = r.value()
		case "normalizer":
			d.normalizer, err = r.value()
		case "pre_tokenizer":
			d.preTokenizer, err = r.value()
		case "decoder":
			d.decoder, err = r.value()
		case "model":
			err = d.readModel(r)
		default:
			err = r.ignore()
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.end()
}

func (d *document) readModel(r *reader) error {
	return r.object(func(key []byte) error {
		name := string(key)
		var err error
		switch name {
		case "vocab":
			d.vocab, err = r.value()
		case "merges":
			d.merges, err = r.value()
		case "type":
			err = r.next(&d.modelType)
		case "ignore_merges":
			err = r.next(&d.ignoreMerges)
		case "dropout":
			err = r.next(&d.dropout)
		case "continuing_subword_prefix":
			err = r.next(&d.prefix)
		case "end_of_word_suffix":
			err = r.next(&d.suffix)
		default:
			// unk_token, fuse_unk and byte_fallback are for text without a
			// token, of which there is none when every byte has one.
			err = r.ignore()
		}
		if err != nil {
			return fmt.Errorf("model.%s: %w", name, err)
		}
		return nil
	})
}

func (d *document) checkModel() error {
	switch {
	case d.modelType != "BPE" && d.modelType != "": // old files do not say
		return fmt.Errorf("type %q; only BPE is known", d.modelType)
	case d.vocab.data == nil:
		return errors.New("no vocab")
	case d.merges.data == nil:
		return errors.New("no merges")
	case d.dropout != 0:
		return errors.New("dropout is for training; expected null")
	case d.prefix != "":
		return fmt.Errorf("continuing_subword_prefix %q; byte-level vocabularies have none", d.prefix)
	case d.suffix != "":
		return fmt.Errorf("end_of_word_suffix %q; byte-level vocabularies have none", d.suffix)
	}
	return nil
}

// readNormalizer returns whether text is to be brought into form C.
func readNormalizer(r reader) (bool, error) {
	type normalizer struct {
		Type        string       `json:"type"`
		Normalizers []normalizer `json:"normalizers"` // Sequence
	}
	var root *normalizer
	if err := r.decode(&root); err != nil || root == nil {
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
		return false, fmt.Errorf("type %q; only NFC and Sequences of it are known", n.Type)
	}
	return nfc(root)
}

// checkDecoder checks that tokens are to be decoded as bytes.
func checkDecoder(r reader) error {
	type decoder struct {
		Type     string    `json:"type"`
		Decoders []decoder `json:"decoders"` // Sequence
	}
	var d decoder
	if err := r.decode(&d); err != nil {
		return err
	}
	if d.Type == "Sequence" && len(d.Decoders) == 1 {
		d = d.Decoders[0]
	}
	if d.Type != "ByteLevel" {
		return fmt.Errorf("type %q; only ByteLevel is known", d.Type)
	}
	return nil
}
