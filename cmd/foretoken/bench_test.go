package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// runBench runs a bench command and returns what it prints.
func runBench(args ...string) (string, error) {
	var out bytes.Buffer
	root := newRootCommand()
	root.SetOut(&out)
	root.SetErr(new(bytes.Buffer))
	root.SetArgs(append([]string{"bench"}, args...))
	err := root.Execute()
	return out.String(), err
}

func TestBenchRefusesWhatItCannotMeasure(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"kernels --types q9", "--types q9"},
		{"kernels --rows 0", "--rows 0"},
		{"kernels --isa mmx", "isa"},
		{"kernels extra", "extra"},
		{"model --shape 3b", "shape"},
		{"model --bits 7", "bits"},
		{"model --rows 5000", "--rows 5000"},
		{"nothing", "unknown command"},
	} {
		if _, err := runBench(strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("bench %s: error %v, want %q", c.args, err, c.want)
		}
	}
}

func TestBenchKernelsPrintsTableAndJSON(t *testing.T) {
	if testing.Short() {
		t.Skip("reads gigabytes of memory")
	}
	text, err := runBench("kernels", "--types", "q4", "--rows", "1,2", "--repeats", "1")
	if err != nil || !strings.Contains(text, "of one row") || strings.Count(text, "q4") != 2 {
		t.Errorf("error %v, table:\n%s", err, text)
	}
	text, err = runBench("kernels", "--types", "q4", "--rows", "1", "--repeats", "1", "--json")
	var report struct {
		Kernels []struct{ Type string }
	}
	if err != nil || json.Unmarshal([]byte(text), &report) != nil || len(report.Kernels) != 1 || report.Kernels[0].Type != "q4" {
		t.Errorf("error %v, JSON:\n%s", err, text)
	}
}
