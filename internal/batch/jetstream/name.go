package jetstream

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Our names may have any byte; a token of a subject may not. Bytes other than letters, digits, - and _
// are written as = and two digits, so different names stay different.

const plain = "-_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// token is a name as one token of a subject.
func token(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if strings.IndexByte(plain, name[i]) >= 0 {
			b.WriteByte(name[i])
		} else {
			fmt.Fprintf(&b, "=%02x", name[i])
		}
	}
	if b.Len() == 0 {
		return "=" // the empty name: a token has a character
	}
	return b.String()
}

// untoken is the name that a token stands for, and whether it is one that token writes.
func untoken(t string) (name string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(t) && t != "="; i++ {
		if t[i] != '=' {
			b.WriteByte(t[i])
			continue
		}
		if i+3 > len(t) {
			return "", false
		}
		c, err := hex.DecodeString(t[i+1 : i+3])
		if err != nil {
			return "", false
		}
		b.WriteByte(c[0])
		i += 2
	}
	return b.String(), token(b.String()) == t
}

// path is a key of a store as a subject: a token for each part between slashes, so that the
// servers can filter by prefix.
func path(key string) string {
	parts := strings.Split(key, "/")
	for i, p := range parts {
		parts[i] = token(p)
	}
	return strings.Join(parts, ".")
}

// unpath is the key that a subject stands for.
func unpath(subject string) (key string, ok bool) {
	parts := strings.Split(subject, ".")
	for i, p := range parts {
		if parts[i], ok = untoken(p); !ok {
			return "", false
		}
	}
	return strings.Join(parts, "/"), true
}
