package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// judged runs the gate's judge on what benchstat once printed; the pinned program itself is
// installed by make only.
func judged(t *testing.T, csv string, env ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	file, program := filepath.Join(dir, "out.csv"), filepath.Join(dir, "benchstat")
	filetest.Write(t, file, csv)
	if err := os.WriteFile(program, []byte("#!/bin/sh\ncat "+file+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "gate.sh", "--judge", "old.txt", "new.txt")
	cmd.Env = append(append(os.Environ(), "BENCHSTAT="+program), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestGateFailsOnlyForWhatIsSlower(t *testing.T) {
	data := filetest.Read(t, "testdata/benchstat.csv")
	out, err := judged(t, string(data))
	if err == nil || !strings.Contains(out, "slower: example.org/m/vector Dot/n=4096-2 +13.25% (p=0.000 n=8)\n") || !strings.HasSuffix(out, "1 of 3 benchmarks are more than 5 % slower\n") {
		t.Errorf("%v\n%s", err, out)
	}
	// More bytes per second, and an average over all, are no reason.
	if out, err = judged(t, string(data), "LIMIT=14"); err != nil || !strings.HasSuffix(out, "none of 3 benchmarks is more than 14 % slower\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err = judged(t, ""); err == nil || !strings.Contains(out, "nothing was compared") {
		t.Errorf("%v\n%s", err, out)
	}
}
