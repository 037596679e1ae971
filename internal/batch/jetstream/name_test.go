package jetstream_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/batch/jetstream"
)

// Every name has a distinct token, which servers accept, and back.
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

// Two processes with one folder download the same object at a time: both have all of it.
func TestCacheOfTwoProcesses(t *testing.T) {
	dir, whole := t.TempDir(), strings.Repeat("0123456789", 1000)
	half := func(w io.Writer) error { _, err := io.WriteString(w, whole[:5000]); return err }
	rest := func(w io.Writer) error { _, err := io.WriteString(w, whole[5000:]); return err }
	open := func(download func(io.Writer) error) error {
		data, err := jetstream.OpenCached(dir, "object", int64(len(whole)), download)
		if err == nil && string(data) != whole {
			err = fmt.Errorf("%d bytes, and others than were sent", len(data))
		}
		return err
	}
	err := open(func(first io.Writer) error {
		return errors.Join(half(first), open(func(second io.Writer) error {
			return errors.Join(half(second), rest(first), rest(second))
		}))
	})
	if err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the folder has %v, %v", left, err)
	}
}
