package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlclark/regexp2"
)

const (
	// gpt2Pattern is the default of ByteLevel without a Split before it.
	gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

	maxPattern = 4096 // bytes; bounds the depth of a pattern as well
	maxSplits  = 16

	// matchTimeout ends a match that backtracks without end.
	matchTimeout = 2 * time.Second
)

// splitter cuts text into pieces: it calls emit with each in order, none empty, until emit returns
// false, which is then the result.
type splitter interface {
	split(text string, emit func(piece string) bool) bool
}

// pretokenizer applies splitters one to the other's pieces.
type pretokenizer []splitter

func (p pretokenizer) run(text string, emit func(string) bool) bool {
	switch len(p) {
	case 0:
		return emit(text)
	case 1:
		return p[0].split(text, emit)
	}
	return p[0].split(text, func(piece string) bool { return p[1:].run(piece, emit) })
}

// pattern splits by a regular expression: a match is a piece, and so is
// the text between matches.
type pattern struct{ re *regexp2.Regexp }

func newPattern(expr string) (splitter, error) {
	switch known := spelled(expr); {
	case known == qwen35Pattern:
		return newScanner(letter, 1), nil
	case known == qwen2Pattern:
		return newScanner(other, 1), nil
	case known == glmPattern:
		return newScanner(other, 3), nil
	case expr == "":
		return nil, errors.New("empty pattern")
	case len(expr) > maxPattern:
		return nil, fmt.Errorf("pattern of %d bytes, want at most %d", len(expr), maxPattern)
	}
	// The reference's engine lets ^ and $ match at lines.
	re, err := regexp2.Compile(expr, regexp2.Multiline)
	if err != nil {
		return nil, fmt.Errorf("pattern %.100q: %w", expr, err)
	}
	re.MatchTimeout = matchTimeout
	return pattern{re}, nil
}

// split implements splitter. If a match takes too long the rest of text
// becomes one piece: its tokens then differ from the reference's, but no text
// is lost and no caller hangs. Only expressions with excessive backtracking get
// there, none of a known model.
func (p pattern) split(text string, emit func(string) bool) bool {
	rest := text
	chars := 0 // characters before rest
	match, err := p.re.FindStringMatch(text)
	for match != nil && err == nil {
		for _, n := range [2]int{match.Index - chars, match.Length} {
			if end := charOffset(rest, n); end > 0 {
				if !emit(rest[:end]) {
					return false
				}
				rest = rest[end:]
			}
			chars += n
		}
		match, err = p.re.FindNextMatch(match)
	}
	return rest == "" || emit(rest)
}

// charOffset returns the length in bytes of the first n characters of text.
func charOffset(text string, n int) int {
	for i := range text {
		if n <= 0 {
			return i
		}
		n--
	}
	return len(text)
}

// prefixSpace puts a space before text that does not begin with one.
type prefixSpace struct{}

func (prefixSpace) split(text string, emit func(string) bool) bool {
	if !strings.HasPrefix(text, " ") {
		text = " " + text
	}
	return emit(text)
}

// preTokenizerJSON is the file's pre_tokenizer, of any type.
type preTokenizerJSON struct {
	Type          string             `json:"type"`
	PreTokenizers []preTokenizerJSON `json:"pretokenizers"` // Sequence

	Pattern struct { // Split
		Regex  string `json:"Regex"`
		String string `json:"String"`
	} `json:"pattern"`
	Behavior string `json:"behavior"`

	AddPrefixSpace bool  `json:"add_prefix_space"` // ByteLevel
	UseRegex       *bool `json:"use_regex"`        // true when absent
}

// newPretokenizer reads the pre_tokenizer: Splits and then one
// ByteLevel.
func newPretokenizer(root *preTokenizerJSON) (pretokenizer, error) {
	if root == nil {
		return nil, errors.New("null, want ByteLevel or a Sequence that ends with it")
	}
	var p pretokenizer
	var exprs []string // of the Splits
	byteLevel := false
	var add func(step *preTokenizerJSON) error
	add = func(step *preTokenizerJSON) error {
		if byteLevel {
			return fmt.Errorf("%q after ByteLevel, which must come last", step.Type)
		}
		switch step.Type {
		case "Sequence":
			for i := range step.PreTokenizers {
				if err := add(&step.PreTokenizers[i]); err != nil {
					return err
				}
			}
			return nil
		case "ByteLevel":
			byteLevel = true
			if step.AddPrefixSpace {
				p = append(p, prefixSpace{})
			}
			if step.UseRegex != nil && !*step.UseRegex {
				return nil
			}
			split, err := newPattern(gpt2Pattern)
			p = append(p, split)
			return err
		case "Split":
			split, err := newSplit(step)
			if err == nil && len(p) == maxSplits {
				err = fmt.Errorf("more than %d Splits", maxSplits)
			}
			p, exprs = append(p, split), append(exprs, spelled(step.Pattern.Regex))
			return err
		}
		return fmt.Errorf("type %q is not supported, want Split, ByteLevel or a Sequence of them", step.Type)
	}
	if err := add(root); err != nil {
		return nil, err
	}
	if slices.Equal(exprs, deepSeekPatterns) {
		p = slices.Replace(p, 0, len(exprs), splitter(newDeepSeekScanner()))
	}
	if !byteLevel {
		return nil, errors.New("ByteLevel is missing: only byte-level vocabularies are supported")
	}
	return p, nil
}

func newSplit(step *preTokenizerJSON) (splitter, error) {
	// "invert" swaps matches and gaps, which are pieces alike when isolated.
	if step.Behavior != "Isolated" {
		return nil, fmt.Errorf("behavior %q of a Split is not supported, want Isolated", step.Behavior)
	}
	expr := step.Pattern.Regex
	if expr == "" {
		expr = regexp2.Escape(step.Pattern.String)
	}
	return newPattern(expr)
}
