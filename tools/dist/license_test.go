package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLicensesOfModules has a program with two modules built in, one of which has no license.
func TestLicensesOfModules(t *testing.T) {
	dir := repository(t)
	for name, text := range map[string]string{
		"go.mod":   "module example\n\ngo 1.26\n\nrequire (\n\texample.com/a v1.2.3\n\texample.com/b v0.1.0\n)\n\nreplace example.com/a => ./a\n\nreplace example.com/b => ./b\n",
		"a/go.mod": "module example.com/a\n", "a/a.go": "package a\n", "a/LICENSE.txt": "terms of a\n", "a/NOTICE": "made by a\n", "a/notices.go": "package a\n",
		"b/go.mod": "module example.com/b\n", "b/b.go": "package b\n",
		"cmd/foretoken/main.go": "package main\n\nimport (\n\t_ \"example.com/a\"\n\t_ \"example.com/b\"\n)\n\nfunc main() {}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(t.TempDir(), "licenses")
	if err := writeLicenses(out, os.Environ(), ""); err == nil || !strings.Contains(err.Error(), "example.com/b v0.1.0 has no license") {
		t.Errorf("error %v, want the module without a license", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b", "COPYING"), []byte("terms of b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeLicenses(out, os.Environ(), ""); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, want := range []string{"Go: LICENSE", "The Go Authors", "example.com/a v1.2.3: LICENSE.txt", "terms of a", "a v1.2.3: NOTICE", "made by a", "example.com/b v0.1.0: COPYING", "terms of b"} {
		i := strings.Index(string(data)[at:], want)
		if i < 0 {
			t.Fatalf("no %q after byte %d of\n%.300s", want, at, data)
		}
		at += i
	}
}
