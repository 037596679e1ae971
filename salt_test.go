package foretoken

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/sample"
)

// TestSaltsAreOneFoldersOwn: salts are the same in every process that uses a folder, and different with
// another folder. They cannot be computed from the folder's files without its secret.
func TestSaltsAreOneFoldersOwn(t *testing.T) {
	dir, other := filepath.Join(t.TempDir(), "made"), t.TempDir()
	salt := func(dir, text string) prefix.Salt {
		t.Helper()
		secret, err := openSecret(dir)
		if err != nil {
			t.Fatal(err)
		}
		return (&Model{secret: secret}).salt(text)
	}
	first := salt(dir, "a")
	if again := salt(dir, "a"); again != first || first == (prefix.Salt{}) {
		t.Errorf("%x, then %x", first, again)
	}
	for what, got := range map[string]prefix.Salt{
		"another text": salt(dir, "b"), "another folder": salt(other, "a"), "no folder": salt("", "a"),
	} {
		if got == first {
			t.Errorf("%s has the same salt", what)
		}
	}
	if salt(dir, "") != (prefix.Salt{}) {
		t.Error("no text has a salt")
	}
	if one, other := salt("", "a"), salt("", "a"); one == other {
		t.Error("two processes without a folder share their salts")
	}
	path := filepath.Join(dir, saltSecret)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	filetest.Write(t, path, "short")
	if _, err := openSecret(dir); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("a damaged secret: %v", err)
	}
}

// TestSecretIsMadeOnce has many make it at the same time: all get the same one.
func TestSecretIsMadeOnce(t *testing.T) {
	dir := t.TempDir()
	secrets := make([][]byte, 16)
	var all sync.WaitGroup
	for i := range secrets {
		all.Go(func() {
			s, err := openSecret(dir)
			if err != nil {
				t.Error(err)
			}
			secrets[i] = s[:]
		})
	}
	all.Wait()
	for _, s := range secrets {
		if !bytes.Equal(s, secrets[0]) {
			t.Errorf("%x and %x", s, secrets[0])
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("%v %v", list, err)
	}
}

// TestNextTurnKeepsToItsSalt: a next turn that is prefilled in the background serves only requests with the
// salt of the last one.
func TestNextTurnKeepsToItsSalt(t *testing.T) {
	m := openThinking(t, Options{KVMemory: 1 << 30})
	talk := say(strings.Repeat("Tell me a long story. ", 8), true)
	a := collect(t, m, Request{Prompt: ask(t, m, talk), MaxTokens: 30, MaxThinking: 10, CacheSalt: "anna", Sampling: &sample.Options{}})
	m.warming.Wait()
	talk.Messages = append(talk.Messages, a.Message())
	next := ask(t, m, Conversation{Messages: append(talk.Messages, say("And then?", true).Messages...), Variables: talk.Variables})
	for _, x := range []struct {
		salt  string
		known bool
	}{{"", false}, {"bert", false}, {"anna", true}} {
		if r := collect(t, m, Request{Prompt: next, MaxTokens: 1, CacheSalt: x.salt, Sampling: &sample.Options{}}).Result; (r.Cached > 0) != x.known {
			t.Errorf("salt %q: %d tokens known", x.salt, r.Cached)
		}
	}
}
