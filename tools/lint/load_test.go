package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestVetFindsWhatOnePlatformRefuses(t *testing.T) {
	module := map[string]string{
		"go.mod":     "module example\n\ngo 1.26\n",
		"a.go":       "package example\n\nimport \"os\"\n\n// Size is n times two, as text.\nfunc Size(f *os.File) int { return 2 * n() }\n",
		"a_linux.go": "package example\n\nfunc n() int { return 1 }\n",
		"a_other.go": "//go:build !linux\n\npackage example\n\nfunc n() string { return \"1\" }\n",
	}
	f := newFiles() // which reads the standard library once
	// check has a module of its own, with some files changed.
	check := func(platform string, changes map[string]string, want string) {
		t.Helper()
		dir := t.TempDir()
		files := maps.Clone(module)
		maps.Copy(files, changes)
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Chdir(dir)
		err := newChecker(f, platform, suite(), false).module(".", (*listed).foreign)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", platform, err, want)
		}
	}
	check("darwin/arm64", nil, "a.go:6:")
	test := map[string]string{
		"a_test.go": "package example_test\n\nimport (\n\t\"syscall\"\n\t\"testing\"\n)\n\nfunc TestLimit(*testing.T) { var _ syscall.Rlimit }\n",
	}
	check("linux/arm64", test, "")
	check("windows/amd64", test, "a_test.go:8:")
	vetted := map[string]string{
		"a.go":         "package example\n\n// T is empty.\ntype T struct{}\n",
		"a_windows.go": "package example\n\nimport \"log\"\n\nfunc note() { log.Printf(\"%d\", \"one\") }\n",
		"a_tagged.go":  "//go:build tagged\n\npackage example\n\nfunc (t *T) Wrong() { t = t }\n",
	}
	check("linux/amd64", vetted, "")
	check("windows/amd64", vetted, "a_windows.go:5:27: govet: ")
	check("linux/amd64:tagged", vetted, "a_tagged.go:5:23: govet: ")
	check("linux", nil, "want a platform")
}
