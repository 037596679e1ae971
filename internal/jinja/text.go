package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// text is Python's str(v).
func (r *run) text(v Value) (string, error) {
	switch v.kind {
	case KindString:
		return v.str, nil
	case KindUndefined, kindMissing:
		return "", nil
	}
	b, err := r.appendRepr(nil, v)
	return string(b), err
}

// appendRepr appends Python's repr(v).
func (r *run) appendRepr(dst []byte, v Value) ([]byte, error) {
	if err := r.enter(); err != nil {
		return dst, err
	}
	defer r.leave()
	start := len(dst)
	switch v.kind {
	case KindUndefined, kindMissing:
		dst = append(dst, "Undefined"...)
	case KindNone:
		dst = append(dst, "None"...)
	case KindBool:
		dst = append(dst, boolText(v.truth())...)
	case KindInt:
		dst = appendInt(dst, v)
	case KindFloat:
		dst = appendFloat(dst, v.float())
	case KindString:
		return r.appendStringRepr(dst, v)
	case KindList:
		return r.appendSequence(dst, v.Items(), "[", "]")
	case KindTuple:
		if len(v.Items()) == 1 {
			return r.appendSequence(dst, v.Items(), "(", ",)")
		}
		return r.appendSequence(dst, v.Items(), "(", ")")
	case KindMap:
		return r.appendMap(dst, v.Map())
	case KindNamespace:
		dst, err := r.appendMap(append(dst, "<Namespace "...), v.ref.(*namespace).attrs)
		return append(dst, '>'), err
	case KindIterator:
		if it := v.ref.(*iterator); it.view {
			return r.appendSequence(append(dst, it.name...), it.items, "([", "])")
		}
		dst = append(dst, "<"+v.typeName()+" object>"...)
	case KindFunction:
		dst = append(dst, "<function "+v.ref.(*function).name+">"...)
	default:
		dst = append(dst, "<"+v.typeName()+">"...)
	}
	return dst, r.alloc(len(dst) - start)
}

func (r *run) appendSequence(dst []byte, items []Value, open, end string) ([]byte, error) {
	if err := r.alloc(2*len(items) + len(open) + len(end)); err != nil {
		return dst, err
	}
	dst = append(dst, open...)
	for i, item := range items {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		var err error
		if dst, err = r.appendRepr(dst, item); err != nil {
			return dst, err
		}
	}
	return append(dst, end...), nil
}

func (r *run) appendMap(dst []byte, m *Map) ([]byte, error) {
	if err := r.alloc(4*m.Len() + 2); err != nil {
		return dst, err
	}
	dst = append(dst, '{')
	for i := range m.Len() {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		var err error
		if dst, err = r.appendRepr(dst, m.entries[i].key); err != nil {
			return dst, err
		}
		dst = append(dst, ": "...)
		if dst, err = r.appendRepr(dst, m.entries[i].value); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// appendStringRepr quotes v as Python does: with single quotes unless only they
// occur inside.
func (r *run) appendStringRepr(dst []byte, v Value) ([]byte, error) {
	s := v.str
	if err := r.alloc(2*len(s) + 10); err != nil {
		return dst, err
	}
	start := len(dst)
	if v.safe {
		dst = append(dst, "Markup("...)
	}
	quote := byte('\'')
	if strings.IndexByte(s, '\'') >= 0 && strings.IndexByte(s, '"') < 0 {
		quote = '"'
	}
	dst = append(dst, quote)
	for _, c := range s {
		switch {
		case c == rune(quote) || c == '\\':
			dst = append(dst, '\\', byte(c))
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case unicode.IsPrint(c):
			dst = utf8.AppendRune(dst, c)
		case c < 0x100:
			dst = appendHex(append(dst, `\x`...), c, 2)
		case c < 0x10000:
			dst = appendHex(append(dst, `\u`...), c, 4)
		default:
			dst = appendHex(append(dst, `\U`...), c, 8)
		}
	}
	dst = append(dst, quote)
	if v.safe {
		dst = append(dst, ')')
	}
	return dst, r.alloc(max(0, len(dst)-start-2*len(s)-10))
}

func appendHex(dst []byte, c rune, digits int) []byte {
	for i := digits - 1; i >= 0; i-- {
		dst = append(dst, "0123456789abcdef"[c>>(4*i)&15])
	}
	return dst
}

func boolText(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

func appendInt(dst []byte, v Value) []byte {
	if v.big() {
		return append(dst, v.str...)
	}
	return strconv.AppendInt(dst, int64(v.num), 10)
}

// appendFloat appends Python's repr of a float: the shortest digits that read
// back the same, with an exponent from 1e16 up and below 1e-4.
func appendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "nan"...)
	case math.IsInf(f, 0):
		if f < 0 {
			dst = append(dst, '-')
		}
		return append(dst, "inf"...)
	}
	start := len(dst)
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	for _, c := range dst[start:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, ".0"...)
}

// isSpace is Python's str.isspace for one character.
func isSpace(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f }

// escapeHTML is MarkupSafe's escape.
func (r *run) escapeHTML(v Value) (Value, error) {
	if v.kind == KindString && v.safe {
		return v, nil
	}
	s, err := r.text(v)
	if err != nil {
		return v, err
	}
	if err := r.alloc(len(s)); err != nil {
		return v, err
	}
	out := v.like(htmlEscaper.Replace(s))
	out.safe = true
	return out, r.alloc(len(out.str))
}

var htmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")
