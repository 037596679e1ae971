package body

import (
	"encoding/json"
	"iter"
)

// parts yields the elements of an array with no keys, or the values of an object with their keys. Both
// are parts of text, which is JSON. Nothing is allocated.
func parts(text []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		object := len(text) > 0 && text[0] == '{'
		for at := 1; at < len(text); {
			if !begins(text[at]) {
				at++ // space, a comma, or the end
				continue
			}
			var key []byte
			if object {
				key, at = next(text, at)
				for !begins(text[at]) { // space and a colon
					at++
				}
			}
			var value []byte
			if value, at = next(text, at); !yield(key, value) {
				return
			}
		}
	}
}

// begins reports whether a byte between two values is the first of the second.
func begins(c byte) bool {
	switch c {
	case ' ', '\t', '\r', '\n', ',', ':', ']', '}':
		return false
	}
	return true
}

// next is the value that begins at a place of a JSON text, and where it ends.
func next(text []byte, at int) ([]byte, int) {
	from, depth := at, 0
	for at < len(text) {
		switch text[at] {
		case '"':
			at = stringEnd(text, at)
		case '[', '{':
			depth++
			at++
		case ']', '}':
			depth--
			at++
		default: // a number, a word, or punctuation of an array or object
			for at++; at < len(text) && begins(text[at]) && text[at] != '"' && text[at] != '[' && text[at] != '{'; {
				at++
			}
		}
		if depth == 0 {
			break
		}
	}
	return text[from:at], at
}

// stringEnd is where the string ends that begins at a place of a text.
func stringEnd(text []byte, at int) int {
	for at++; at < len(text) && text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return min(at+1, len(text))
}

// count is the number of elements and fields that a JSON text has in its arrays and objects, down to
// some depth. Any text has a count.
func count(text []byte, deep int) int {
	n, depth := 0, 0
	for at := 0; at < len(text); {
		c := text[at]
		if c == '"' {
			at = stringEnd(text, at)
		} else {
			at++
		}
		switch {
		case c == ',' && depth <= deep:
			n++
		case c == '[' || c == '{':
			if depth++; depth <= deep && !empty(text[at:]) {
				n++
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return n
}

// empty reports whether an array or object ends here.
func empty(text []byte) bool {
	for _, c := range text {
		if begins(c) {
			return false
		}
		if c == ']' || c == '}' {
			break
		}
	}
	return true
}

// unquote is the text of a JSON string.
func unquote(quoted []byte) (text string) {
	_ = json.Unmarshal(quoted, &text) // it is JSON
	return text
}
