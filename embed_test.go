// The race detector has other tests, and would compile the imports of these for nothing.
//go:build !race

package foretoken_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// libraryModules are the modules that the library imports. The program has more: an import that adds
// one here belongs in the program.
var libraryModules = []string{"github.com/dlclark/regexp2", "golang.org/x/image", "golang.org/x/sys", "golang.org/x/text"}

// TestLibraryImportsFewModules holds the list of modules, for every platform, and with the tag cuda.
func TestLibraryImportsFewModules(t *testing.T) {
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, tags := range []string{"", "cuda"} {
			want := slices.Clone(libraryModules)
			if tags == "cuda" && system != "darwin" {
				want = append(want, "github.com/ebitengine/purego")
			}
			slices.Sort(want)
			args := append([]string{"list", "-tags", tags, "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}"}, public...)
			if got := modules(t, goCommand(t, ".", []string{"GOOS=" + system}, args...)); !slices.Equal(got, want) {
				t.Errorf("%s, tags %q: the library needs %q, want %q", system, tags, got, want)
			}
		}
	}
}

// embedder is a program of thirty lines that embeds the library.
const embedder = `package main

import (
	"context"
	"fmt"
	"log"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/sample"
)

func main() {
	ctx := context.Background()
	m, err := foretoken.Open(ctx, foretoken.Tiny, foretoken.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	question := chat.Message{Role: "user", Content: chat.Text("Tell me a story about a cat.")}
	prompt, err := m.ChatPrompt(ctx, foretoken.Conversation{Messages: []chat.Message{question}})
	if err != nil {
		log.Fatal(err)
	}
	text, err := m.Complete(ctx, foretoken.Request{Prompt: prompt, MaxTokens: 16, Sampling: &sample.Options{}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
}
`

// TestProgramEmbedsTheLibrary lists the packages of a program in an empty folder, whose modules come from a
// module cache of its own. It shows the modules that were downloaded for it. The program is built from this folder,
// with packages that are compiled already: in its own, all of them are compiled once more.
func TestProgramEmbedsTheLibrary(t *testing.T) {
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := filetest.Folder(t, map[string]string{
		"main.go": embedder,
		"go.mod":  "module embedder\n\ngo 1.25\n\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + root + "\n",
	})
	known := strings.TrimSpace(goCommand(t, ".", nil, "env", "GOMODCACHE"))
	cache := filepath.Join(t.TempDir(), "modules")
	offline := []string{
		"GOFLAGS=-mod=mod -modcacherw", "GOPROXY=file://" + filepath.ToSlash(filepath.Join(known, "cache", "download")),
		"GOMODCACHE=" + cache, "GOSUMDB=off", "GOWORK=off", "GOTOOLCHAIN=local",
	}
	want := slices.Clone(libraryModules)
	if got := modules(t, goCommand(t, dir, offline, "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")); !slices.Equal(got, append([]string{"embedder"}, want...)) {
		t.Errorf("the program needs %q, want %q", got, want)
	}
	var downloaded []string
	err = filepath.WalkDir(filepath.Join(cache, "cache", "download"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".zip") {
			name, _ := filepath.Rel(filepath.Join(cache, "cache", "download"), path)
			name, _, _ = strings.Cut(filepath.ToSlash(name), "/@v/")
			downloaded = append(downloaded, name)
		}
		return err
	})
	if err != nil || !slices.Equal(downloaded, want) {
		t.Errorf("%q were downloaded, want %q: %v", downloaded, want, err)
	}
	program := filepath.Join(dir, "embedder")
	goCommand(t, ".", nil, "build", "-o", program, filepath.Join(dir, "main.go"))
	text, err := exec.CommandContext(t.Context(), program).Output()
	if err != nil || string(text) != "Once upon a time, there was a little cat. The cat was very dirty\n" {
		t.Errorf("the program writes %q: %v", text, err)
	}
}

// goCommand runs the go command in a folder and returns its output.
func goCommand(t *testing.T, dir string, environment []string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", args...)
	c.Dir, c.Env = dir, append(os.Environ(), environment...)
	var errors strings.Builder
	c.Stderr = &errors
	out, err := c.Output()
	if err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, &errors)
	}
	return string(out)
}

// modules are the lines of a text, sorted and each once, without our own module.
func modules(t *testing.T, text string) []string {
	t.Helper()
	list := slices.Sorted(strings.FieldsSeq(text))
	return slices.DeleteFunc(slices.Compact(list), func(m string) bool { return m == module })
}
