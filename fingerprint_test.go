package foretoken

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// A fingerprint identifies models with the same answers. It changes with every option and file that the
// answers depend on, and does not change with options for speed.
func TestFingerprintIsOfWhatDecides(t *testing.T) {
	x := newCacheTest(t)
	x.o.PrefixCache = PrefixCache{}
	records := t.TempDir()
	fingerprint := func() string {
		m, err := Open(t.Context(), x.dir, x.o)
		if err != nil {
			t.Fatal(err)
		}
		id, err := m.Fingerprint(t.Context(), records)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		return id
	}
	replace := func(name, from, to string) {
		t.Helper()
		file := filepath.Join(x.dir, name)
		data, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(data), from) {
			t.Fatal(name, err)
		}
		filetest.Write(t, file, strings.Replace(string(data), from, to, 1))
	}
	first, options := fingerprint(), x.o
	other := newCacheTest(t).dir // the same files elsewhere
	seen := map[string]string{first: "the first"}
	for _, c := range []struct {
		name       string
		set, reset func()
		same       bool
	}{
		{"elsewhere, slower and smaller", func() {
			x.o.Threads, x.o.ISA, x.o.KVMemory = 1, "generic", 32<<20
			x.dir, other = other, x.dir
		}, nil, true},
		{"one bit of a weight", func() { x.flip(t, "model-00001-of-00002.safetensors") }, func() { x.flip(t, "model-00001-of-00002.safetensors") }, false},
		{"the tokenizer", func() { replace("tokenizer.json", "{", "{ ") }, func() { replace("tokenizer.json", "{ ", "{") }, false},
		{"the template", func() { replace("chat_template.jinja", "{%", "x{%") }, func() { replace("chat_template.jinja", "x{%", "{%") }, false},
		{"8 bits of keys", func() { x.o.KVBits = 8 }, nil, false},
		{"another context", func() { x.o.Context = 256 }, nil, false},
		{"as it was", func() {}, nil, true},
	} {
		c.set()
		id := fingerprint()
		if before := seen[id]; (id == first) != c.same || before != "" && !c.same {
			t.Errorf("%s: %s, and the first was %s; it was that of %q", c.name, id, first, before)
		}
		seen[id] = c.name
		if c.reset != nil {
			c.reset()
		}
		x.o = options
	}
}
