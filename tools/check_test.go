// Package tools_test tests the scripts of make check.
package tools_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a copy of the scripts, in a folder with the few programs that they may find.
func machine(t *testing.T, programs ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, folder := range []string{"tools", "path"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"check.sh", "need.sh"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "tools", name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sh", "awk", "cat", "date", "dirname", "grep", "id", "mkdir", "printf", "rm", "sed", "sleep", "sort", "tr", "uname"} {
		found, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(found, filepath.Join(dir, "path", name)); err != nil {
			t.Fatal(err)
		}
	}
	// make passes, except for the target broken; the programs are there and do nothing.
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, "path", name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("make", "#!/bin/sh\necho ran $2\n[ $2 != broken ]\n")
	for _, name := range programs {
		write(name, "#!/bin/sh\n")
	}
	return dir
}

// check runs stages and returns what was printed, its last line, and the status.
func check(t *testing.T, dir, setting string, stages ...string) (all, last string, status int) {
	t.Helper()
	c := exec.Command("sh", append([]string{filepath.Join(dir, "tools", "check.sh"), "check"}, stages...)...)
	c.Env = []string{"PATH=" + filepath.Join(dir, "path"), setting}
	text, err := c.CombinedOutput()
	if err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return string(text), lines[len(lines)-1], c.ProcessState.ExitCode()
}

func TestCheckNamesWhatCannotRun(t *testing.T) {
	dir := machine(t, "gcc")
	all, last, status := check(t, dir, "", "first", "pages:node", "race:cc", "last")
	if status != 0 || last != "== check: passed, but these stages did not run: pages" {
		t.Errorf("status %d, %q", status, last)
	}
	for _, want := range []string{"ran first", "ran race", "ran last", "sudo apt-get install nodejs npm", "sudo dnf install nodejs npm", "brew install node", "pages           not run", "stage           seconds  processor"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing in\n%s", want, all)
		}
	}
	if strings.Contains(all, "ran pages") {
		t.Errorf("pages ran:\n%s", all)
	}
}

func TestCheckStrictAcceptsNoGap(t *testing.T) {
	dir := machine(t, "gcc")
	if _, last, status := check(t, dir, "STRICT=1", "first", "pages:node"); status == 0 || last != "== check: STRICT=1 and these stages did not run: pages" {
		t.Errorf("status %d, %q", status, last)
	}
	if _, last, status := check(t, dir, "STRICT=1", "first", "race:cc"); status != 0 || last != "== check: all stages passed" {
		t.Errorf("nothing missing: status %d, %q", status, last)
	}
}

func TestCheckFailsWithAStage(t *testing.T) {
	dir := machine(t)
	if all, last, status := check(t, dir, "", "broken", "last"); status == 0 || last != "== check: failed: broken" || strings.Contains(all, "ran last") {
		t.Errorf("status %d\n%s", status, all)
	}
	if all, last, status := check(t, dir, "KEEP=1", "broken", "last"); status == 0 || last != "== check: failed: broken" || !strings.Contains(all, "ran last") {
		t.Errorf("status %d\n%s", status, all)
	}
}

func TestCheckRunsStagesBesideOthers(t *testing.T) {
	dir := machine(t, "gcc")
	all, last, status := check(t, dir, "", "first", "last", "--", "slow:cc", "pages:node", "end")
	if status != 0 || last != "== check: passed, but these stages did not run: pages" {
		t.Errorf("status %d, %q", status, last)
	}
	for _, stage := range []string{"first", "last", "slow", "end"} {
		if strings.Count(all, "ran "+stage+"\n") != 1 {
			t.Errorf("%s did not run once:\n%s", stage, all)
		}
	}
	if slow, end := strings.Index(all, "ran slow"), strings.Index(all, "ran end"); slow > end {
		t.Errorf("not one after another:\n%s", all)
	}
	all, last, status = check(t, dir, "KEEP=1", "broken", "last", "--", "broken", "end")
	if status == 0 || last != "== check: failed: broken broken" || !strings.Contains(all, "ran last") || !strings.Contains(all, "ran end") {
		t.Errorf("status %d\n%s", status, all)
	}
	if all, last, status = check(t, dir, "", "first", "--", "broken", "end"); status == 0 || last != "== check: failed: broken" || strings.Contains(all, "ran end") {
		t.Errorf("status %d\n%s", status, all)
	}
}
