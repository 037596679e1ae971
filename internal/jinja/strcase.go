package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

func capitalize(s string) string {
	_, size := utf8.DecodeRuneInString(s)
	return strings.ToTitle(s[:size]) + strings.ToLower(s[size:])
}

// titleCase is Python's str.title: a letter after a letter is small.
func titleCase(s string) string {
	inWord := false
	return strings.Map(func(c rune) rune {
		was := inWord
		inWord = isCased(c)
		if was {
			return unicode.ToLower(c)
		}
		return unicode.ToTitle(c)
	}, s)
}

func isCased(c rune) bool { return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) }
