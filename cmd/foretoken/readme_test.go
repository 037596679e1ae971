package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// The first two commands of the README work in a fresh clone. The arguments of the first one are run here, by this program,
// which go run would link once more; continuous integration runs the second one.
func TestReadmeCommands(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("../..")
	text := filetest.Read(t, "README.md")
	blocks := regexp.MustCompile("(?s)```\n(.*?)\n```").FindAllSubmatch(text, 2)
	if len(blocks) < 2 {
		t.Fatal("README.md has no two commands")
	}
	words := regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(string(blocks[0][1]), -1)
	for i, w := range words {
		words[i] = strings.Trim(w, `"`)
	}
	if want := []string{"go", "run", "./cmd/foretoken"}; len(words) < 4 || strings.Join(words[:3], " ") != strings.Join(want, " ") {
		t.Fatalf("the first command of README.md is %q, want one that begins with %q", words, want)
	}
	run := exec.CommandContext(t.Context(), program, words[3:]...)
	run.Env = append(os.Environ(), asProgram+"=1")
	var out, log strings.Builder
	run.Stdout, run.Stderr = &out, &log
	if err := run.Run(); err != nil || len(strings.Fields(out.String())) < 3 {
		t.Errorf("%q: %v, printed %q\n%s", words, err, out.String(), log.String())
	}
	script := filetest.Read(t, ".ci/run")
	lines := strings.Split(strings.TrimSpace(string(script)), "\n")
	if got, want := lines[len(lines)-1], "exec "+string(blocks[1][1]); got != want {
		t.Errorf(".ci/run ends with %q, README.md wants %q", got, want)
	}
}
