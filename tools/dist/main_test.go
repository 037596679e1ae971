package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// repository is a folder under git with a program that prints its stamp.
func repository(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "cmd", "foretoken"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.mod": "module example\n\ngo 1.26\n", "LICENSE": "license\n", "README.md": "readme\n", ".gitignore": "/dist/\n",
		"cmd/foretoken/main.go": "package main\n\nvar stampedCommit string\n\nfunc main() { print(stampedCommit) }\n", "cmd/foretoken/version.txt": "0.1.0\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	git(t, "init", "-q")
	git(t, "add", ".")
	git(t, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "first", "--date", "2026-01-02T03:04:05Z")
	return dir
}

func git(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.Command("git", args...)
	c.Env = append(os.Environ(), "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// made is the content of the folder dist by name.
func made(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	found, err := os.ReadDir("dist")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		data, err := os.ReadFile(filepath.Join("dist", f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name()] = string(data)
	}
	return files
}

func TestDistStampsAndRepeats(t *testing.T) {
	repository(t)
	platform := runtime.GOOS + "/" + runtime.GOARCH
	if err := run([]string{platform}); err != nil {
		t.Fatal(err)
	}
	first := made(t)
	commit := git(t, "rev-parse", "HEAD")
	folder := "foretoken-0.1.0-" + strings.ReplaceAll(platform, "/", "-")
	data := first[folder+".tar.gz"]
	if want := fmt.Sprintf("%x  %s.tar.gz\n", sha256.Sum256([]byte(data)), folder); first["SHA256SUMS"] != want {
		t.Fatalf("SHA256SUMS is %q, want %q", first["SHA256SUMS"], want)
	}
	z, err := gzip.NewReader(strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF { //nolint:errorlint // as documented
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if filepath.Base(h.Name) != "foretoken" {
			continue
		}
		program, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("program", program, h.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{folder + "/LICENSE", folder + "/README.md", folder + "/THIRD_PARTY_LICENSES", folder + "/foretoken"}; fmt.Sprint(names) != fmt.Sprint(want) {
		t.Errorf("the archive has %q, want %q", names, want)
	}
	if out, err := exec.Command("./program").CombinedOutput(); err != nil || string(out) != commit {
		t.Errorf("the stamp is %q, %v", out, err)
	}
	if err := os.Remove("program"); err != nil {
		t.Fatal(err)
	}

	if err := run([]string{platform}); err != nil {
		t.Fatal(err)
	}
	if second := made(t); fmt.Sprint(second) != fmt.Sprint(first) {
		t.Error("a second run of the same commit wrote other bytes")
	}
	git(t, "tag", "v0.1.0")
	if s, err := readSource(); err != nil || s.version != "0.1.0" || s.commit != commit {
		t.Errorf("with a tag: %+v, %v", s, err)
	}
	if err := os.WriteFile("cmd/foretoken/version.txt", []byte("0.2.0-dev\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := readSource(); err == nil || !strings.Contains(err.Error(), "v0.1.0") {
		t.Errorf("with the tag of another version: %+v, %v", s, err)
	}
	git(t, "tag", "-d", "v0.1.0")
	if s, err := readSource(); err != nil || s.version != "0.2.0-dev" || s.commit != commit+"+dirty" {
		t.Errorf("with changes: %+v, %v", s, err)
	}
}

func TestZipKeepsNamesModesAndTimes(t *testing.T) {
	when := time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC) // even: zip files count in pairs of seconds
	var out bytes.Buffer
	if err := zipped(&out, []entry{{"a/LICENSE", []byte("text"), 0o644, when}, {"a/foretoken.exe", []byte("program"), 0o755, when}}); err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.File) != 2 || r.File[0].Name != "a/LICENSE" || r.File[1].Name != "a/foretoken.exe" || r.File[1].Mode() != 0o755 || !r.File[1].Modified.Equal(when) {
		t.Errorf("%+v", r.File)
	}
}

// Tags choose what is built, and the archive is named after them.
func TestDistBuildsWithTags(t *testing.T) {
	dir := repository(t)
	tagged := "//go:build other\n\npackage main\n\nfunc init() { this does not compile }\n"
	if err := os.WriteFile(filepath.Join(dir, "cmd", "foretoken", "tagged.go"), []byte(tagged), 0o600); err != nil {
		t.Fatal(err)
	}
	platform := runtime.GOOS + "/" + runtime.GOARCH
	if err := run([]string{platform + ":special"}); err != nil {
		t.Fatal(err)
	}
	want := "foretoken-0.1.0-" + strings.ReplaceAll(platform, "/", "-") + "-special.tar.gz"
	if made(t)[want] == "" {
		t.Errorf("there is no %s", want)
	}
	if err := run([]string{platform + ":other"}); err == nil {
		t.Error("a file with the tag was not built")
	}
}

func TestDistRefusesHalfAPlatform(t *testing.T) {
	repository(t)
	if err := run([]string{"linux"}); err == nil || !strings.Contains(err.Error(), "want a platform") {
		t.Error(err)
	}
}
