package jetstream_test

import (
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/batch/jetstream"
)

// Every name has a token of its own, which servers take, and back.
func FuzzTokens(f *testing.F) {
	for _, s := range []string{"", "=", "a", "a.b", "batch_Az-09", "*", ">", "a b", "ä", "\x00", "==", "=3d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		token := jetstream.Token(s)
		if token == "" || strings.ContainsAny(token, " .*>\t\r\n\x00") {
			t.Errorf("%q is no token", token)
		}
		if back, ok := jetstream.Untoken(token); back != s || !ok {
			t.Errorf("%q became %q and %q", s, token, back)
		}
		if name, ok := jetstream.Untoken(s); ok && jetstream.Token(name) != s {
			t.Errorf("%q is no token of %q", s, name)
		}
		if back, ok := jetstream.Unpath(jetstream.Path(s)); back != s || !ok {
			t.Errorf("%q became %q and %q", s, jetstream.Path(s), back)
		}
	})
}
