package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckFindsWhatOnePlatformRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":     "module example\n\ngo 1.26\n",
		"a.go":       "package example\n\nimport \"os\"\n\n// Size is n times two, as text.\nfunc Size(f *os.File) int { return 2 * n() }\n",
		"a_linux.go": "package example\n\nfunc n() int { return 1 }\n",
		"a_other.go": "//go:build !linux\n\npackage example\n\nfunc n() string { return \"1\" }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	if err := newFiles().check("linux/arm64"); err != nil {
		t.Errorf("linux: %v", err)
	}
	if err := newFiles().check("darwin/arm64"); err == nil || !strings.Contains(err.Error(), "a.go:6:") {
		t.Errorf("darwin: %v", err)
	}
	test := "package example_test\n\nimport (\n\t\"syscall\"\n\t\"testing\"\n)\n\nfunc TestLimit(*testing.T) { var _ syscall.Rlimit }\n"
	if err := os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(test), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := newFiles().check("linux/arm64"); err != nil {
		t.Errorf("linux with a test: %v", err)
	}
	if err := newFiles().check("windows/amd64"); err == nil || !strings.Contains(err.Error(), "a_test.go:8:") {
		t.Errorf("windows: %v", err)
	}
	for name, text := range map[string]string{
		"a_test.go":    "package example\n",
		"a_windows.go": "package example\n\nimport \"log\"\n\nfunc note() { log.Printf(\"%d\", \"one\") }\n",
		"a_tagged.go":  "//go:build tagged\n\npackage example\n\nfunc (t *T) Wrong() { t = t }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("package example\n\n// T is empty.\ntype T struct{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for platform, want := range map[string]string{
		"linux/amd64": "", "windows/amd64": "a_windows.go:5:27: printf: ", "linux/amd64:tagged": "a_tagged.go:5:23: assign: ",
	} {
		err := newFiles().check(platform)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s vetted: %v", platform, err)
		}
	}
	if err := newFiles().check("linux"); err == nil {
		t.Error("half a platform passed")
	}
}
