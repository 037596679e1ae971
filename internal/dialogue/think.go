package dialogue

import (
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/jinja"
)

// ThinkTags are the tags around think blocks. The zero value is <think> and </think>.
type ThinkTags struct {
	Open, Close string
	Label       string // text behind Open that is not part of the thought; "": none
	// Anywhere: a block may also begin behind other text, and a closing tag without a block is
	// dropped.
	Anywhere bool
}

// thinkForms are the tags of the families, the default first.
var thinkForms = []ThinkTags{
	{Open: "<think>", Close: "</think>"},
	{Open: "<|channel>", Label: "thought", Close: "<channel|>", Anywhere: true}, // Gemma's
}

// Known is t, or the default.
func (t ThinkTags) Known() ThinkTags {
	if t.Open == "" {
		return thinkForms[0]
	}
	return t
}

// tagsOf are the tags that the source of a template mentions.
func tagsOf(source string) ThinkTags {
	for _, t := range thinkForms {
		if strings.Contains(source, t.Close) {
			return t
		}
	}
	return thinkForms[0]
}

// StartsThinking reports whether the prompt ends with a think block that the template opened,
// so that the answer begins inside it.
func (r Rendered) StartsThinking() bool {
	return slices.ContainsFunc(thinkForms, func(t ThinkTags) bool { return r.endsWith(t.Open + t.Label) })
}

// EndsThinking reports whether the prompt ends with a think block that the template closed, so
// that the answer begins behind it.
func (r Rendered) EndsThinking() bool {
	return slices.ContainsFunc(thinkForms, func(t ThinkTags) bool { return r.endsWith(t.Close) })
}

// endsWith reports whether the template ended the prompt with the tag, and with white space.
func (r Rendered) endsWith(tag string) bool {
	text := strings.TrimRight(r.Text, " \t\r\n")
	if !strings.HasSuffix(text, tag) {
		return false
	}
	for _, own := range slices.Backward(r.Trusted) {
		if own[0] <= len(text)-len(tag) {
			return own[1] >= len(text)
		}
	}
	return false
}

// Asks reports whether the variables of a template, as in [Input], ask for thinking; said is false if
// they say nothing about it.
func Asks(variables map[string]any) (think, said bool) {
	for _, name := range []string{"enable_thinking", "thinking"} {
		if v, ok := variables[name]; ok {
			value, err := variable(v)
			text, err2 := jinja.AppendJSON(nil, value)
			return err == nil && err2 == nil && string(text) == "true", true
		}
	}
	return false, false
}
