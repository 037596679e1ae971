package tools_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSmokeRunsEverySetOfTheProcessor gives the script a program that answers every command with a list of devices: some of their
// names are not instruction sets.
func TestSmokeRunsEverySetOfTheProcessor(t *testing.T) {
	dir := t.TempDir()
	program, said := filepath.Join(dir, "program"), filepath.Join(dir, "said")
	script, err := filepath.Abs("smoke.sh")
	if err != nil {
		t.Fatal(err)
	}
	const devices = `[{"name": "cuda:0", "available": true, "isas": []}, {"name": "vulkan", "available": true, "isas": []},` +
		` {"name": "cpu", "available": true, "detail": "Fast, at 2 GHz", "isas": [{"name": "amx", "available": false, "missing": "this processor lacks AMX"},` +
		` {"name": "avx2", "available": true}, {"name": "generic", "available": true}]}]`
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$*\" >>'"+said+"'\necho '"+devices+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", script, program)
	c.Dir = dir
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	var sets []string
	for line := range strings.Lines(string(text)) {
		if command, set, ok := strings.Cut(strings.TrimSpace(line), " --isa "); ok {
			set, _, _ = strings.Cut(set, " ")
			sets = append(sets, strings.Fields(command)[0]+" "+set)
		}
	}
	if got, want := strings.Join(sets, ", "), "generate avx2, generate generic, bench avx2"; got != want {
		t.Errorf("instruction sets %s, want %s", got, want)
	}
}
