package gguf

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Words describes the tokens of a family's files.
type Words struct {
	Ends []string // tokens that end a text or a turn, in addition to the metadata
	// Patterns are the pre-tokenizer's patterns, applied in order, by the names in the
	// files.
	Patterns map[string][]string
	NFC      bool   // text is normalized before
	Class    string // tokenizer_class
}

// Folder is the other files of a checkpoint folder: tokenizer, template, and how to sample.
func (f *File) Folder(w Words) map[string]func() ([]byte, error) {
	g := &words{f, &w}
	texts := map[string]func() ([]byte, error){
		"generation_config.json": g.generation,
		"tokenizer.json":         g.tokenizer,
		"tokenizer_config.json":  g.tokenizerConfig,
	}
	if key := "tokenizer.chat_template"; g.Has(key) {
		texts["chat_template.jinja"] = func() ([]byte, error) {
			text, err := g.Text(key)
			return []byte(text), err
		}
	}
	return texts
}

// words writes the files of a folder.
type words struct {
	*File
	*Words
}

// generation is the text of generation_config.json: end tokens and sampling options.
func (g *words) generation() ([]byte, error) {
	var stop []int
	for _, key := range []string{"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"} {
		if !g.Has(key) {
			continue
		}
		id, err := g.Whole(key)
		if err != nil {
			return nil, err
		}
		stop = append(stop, id)
	}
	config := map[string]any{}
	if g.Has(tokensKey) {
		tokens, err := g.Texts(tokensKey)
		if err != nil {
			return nil, err
		}
		for i, t := range tokens { // which end a text or a turn in addition to the metadata
			if slices.Contains(g.Ends, t) {
				stop = append(stop, i)
			}
		}
	}
	if slices.Sort(stop); len(stop) > 0 {
		config["eos_token_id"] = slices.Compact(stop)
	}
	for key, name := range map[string]string{
		"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "penalty_repeat": "repetition_penalty",
	} {
		if key = "general.sampling." + key; !g.Has(key) {
			continue
		}
		x, err := g.Number(key)
		if err != nil {
			return nil, err
		}
		config[name] = float32(x)
	}
	if _, ok := config["temperature"]; ok {
		config["do_sample"] = true
	}
	return json.MarshalIndent(config, "", "  ")
}

const tokensKey = "tokenizer.ggml.tokens"

// Kinds of tokens; all others are ordinary.
const (
	tokenUnknown = 2
	tokenControl = 3
	tokenUser    = 4
	tokenUnused  = 5 // fills the vocabulary up to the width of the embedding
)

// ofCharacters are the models of tokenizers that merge characters and fall back to bytes, for which files name no
// pattern. They spell a space as blank.
var ofCharacters = []string{"gemma4"}

const blank = "\u2581"

// tokenizer is the text of tokenizer.json.
func (g *words) tokenizer() ([]byte, error) {
	model, err := g.Text("tokenizer.ggml.model")
	if err != nil {
		return nil, err
	}
	if slices.Contains(ofCharacters, model) {
		return g.characters()
	}
	pre, err := g.Text("tokenizer.ggml.pre")
	if err != nil {
		return nil, err
	}
	patterns, ok := g.Patterns[pre]
	if model != "gpt2" || !ok {
		return nil, fmt.Errorf("tokenizer %q with pre-tokenizer %q is not supported, want gpt2 with %s", model, pre,
			strings.Join(slices.Sorted(maps.Keys(g.Patterns)), " or "))
	}
	vocab, added, err := g.vocabulary(false)
	if err != nil {
		return nil, err
	}
	merges, err := g.Texts("tokenizer.ggml.merges")
	if err != nil {
		return nil, err
	}
	var cuts []object
	for _, p := range patterns {
		cuts = append(cuts, object{"type": "Split", "pattern": object{"Regex": p}, "behavior": "Isolated", "invert": false})
	}
	cuts = append(cuts, object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false})
	var normalizer any
	if g.NFC {
		normalizer = object{"type": "NFC"}
	}
	return json.Marshal(object{
		"version": "1.0", "added_tokens": added, "normalizer": normalizer,
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": cuts},
		"decoder":       object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
		"model":         object{"type": "BPE", "vocab": vocab, "merges": merges},
	})
}

type object map[string]any

// characters is the text of tokenizer.json of a vocabulary of characters.
func (g *words) characters() ([]byte, error) {
	vocab, added, err := g.vocabulary(true)
	if err != nil {
		return nil, err
	}
	merges, err := g.Texts("tokenizer.ggml.merges")
	if err != nil {
		return nil, err
	}
	replace := func(from, to string) object {
		return object{"type": "Replace", "pattern": object{"String": from}, "content": to}
	}
	return json.Marshal(object{
		"version": "1.0", "added_tokens": added, "normalizer": replace(" ", blank),
		"decoder": object{"type": "Sequence", "decoders": []object{replace(blank, " "), {"type": "ByteFallback"}, {"type": "Fuse"}}},
		"model":   object{"type": "BPE", "byte_fallback": true, "vocab": vocab, "merges": merges},
	})
}

// vocabulary is the tokens with their ids, and the added ones. In a vocabulary of characters merges may name these
// too, and spaces in them have been replaced.
func (g *words) vocabulary(characters bool) (json.RawMessage, []object, error) {
	tokens, err := g.Texts(tokensKey)
	if err != nil {
		return nil, nil, err
	}
	types, err := g.Wholes("tokenizer.ggml.token_type")
	if err != nil {
		return nil, nil, err
	}
	if len(types) != len(tokens) {
		return nil, nil, fmt.Errorf("%d tokens with %d types", len(tokens), len(types))
	}
	vocab, added := []byte("{"), []object{}
	for i, t := range tokens {
		kind := types[i]
		if !utf8.ValidString(t) {
			return nil, nil, fmt.Errorf("token %d is not UTF-8", i)
		}
		if kind == tokenUnused {
			continue
		}
		if characters && kind == tokenUser {
			t = strings.ReplaceAll(t, " ", blank)
		}
		own := kind == tokenUnknown || kind == tokenControl || kind == tokenUser
		if own {
			added = append(added, object{"id": i, "content": t, "special": kind != tokenUser})
		}
		if !own || characters {
			if len(vocab) > 1 {
				vocab = append(vocab, ',')
			}
			quoted, _ := json.Marshal(t) // a string
			vocab = append(append(append(vocab, quoted...), ':'), strconv.Itoa(i)...)
		}
	}
	return append(vocab, '}'), added, nil
}

// tokenizerConfig is the text of tokenizer_config.json.
func (g *words) tokenizerConfig() ([]byte, error) {
	config := map[string]any{"tokenizer_class": g.Class, "clean_up_tokenization_spaces": false}
	tokens, err := g.Texts(tokensKey)
	if err != nil {
		return nil, err
	}
	for key, name := range map[string]string{"bos_token_id": "bos_token", "eos_token_id": "eos_token", "padding_token_id": "pad_token"} {
		if key = "tokenizer.ggml." + key; !g.Has(key) {
			continue
		}
		id, err := g.Whole(key)
		if err != nil {
			return nil, err
		}
		if id < 0 || id >= len(tokens) {
			return nil, fmt.Errorf("%s is %d, but there are %d tokens", key, id, len(tokens))
		}
		config[name] = tokens[id]
	}
	if key := "tokenizer.ggml.add_bos_token"; g.Has(key) {
		add, err := g.Whole(key)
		if err != nil {
			return nil, err
		}
		config["add_bos_token"] = add != 0
	}
	return json.MarshalIndent(config, "", "  ")
}
