package hub

import (
	"slices"
	"strings"
)

// CardFile is the name of a repository's model card.
const CardFile = "README.md"

// BaseModels are the repositories that a model card lists under base_model in the YAML at its
// beginning: the sources of the model. Invalid names are left out.
func BaseModels(card []byte) []Repo {
	text, ok := strings.CutPrefix(strings.ReplaceAll(strings.TrimPrefix(string(card), "\uFEFF"), "\r\n", "\n"), "---\n")
	text, _, closed := strings.Cut(text, "\n---")
	if !ok || !closed {
		return nil
	}
	var found []Repo
	add := func(value string) {
		value, _, _ = strings.Cut(value, " #")
		repo, revision, err := ParseName(strings.Trim(strings.TrimSpace(value), `"'`))
		if err == nil && revision == "" && strings.Contains(string(repo), "/") && !slices.Contains(found, repo) {
			found = append(found, repo)
		}
	}
	inside := false // the list of the key
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\n")
		item, isItem := strings.CutPrefix(strings.TrimLeft(line, " \t"), "- ")
		value, isKey := strings.CutPrefix(line, "base_model:")
		value = strings.TrimSpace(value)
		switch {
		case isKey && strings.HasPrefix(value, "[") && strings.HasSuffix(value, "]"):
			for _, v := range strings.Split(value[1:len(value)-1], ",") {
				add(v)
			}
		case isKey:
			inside = true
			add(value)
		case inside && isItem:
			add(item)
		case line != "":
			inside = false
		}
	}
	return found
}
