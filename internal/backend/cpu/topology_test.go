package cpu

import (
	"runtime"
	"strings"
	"testing"
)

// TestThreadsAreFastCores checks the number of threads for cores of several kinds and limits.
func TestThreadsAreFastCores(t *testing.T) {
	some := func(n, threads, speed int) []core {
		cores := make([]core, n)
		for i := range cores {
			cores[i] = core{threads: threads, speed: speed}
		}
		return cores
	}
	for _, c := range []struct {
		name  string
		cores []core
		slots int
		want  int
		why   string
	}{
		{"nothing is known", nil, 6, 6, "does not describe"},
		{"cores of one thread", some(4, 1, 0), 4, 4, "one for each core"},
		{"cores of two threads", some(8, 2, 3500), 16, 8, "of 16 hardware threads"},
		{"a hybrid of two kinds", append(some(8, 2, 1), some(16, 1, 0)...), 32, 8, "performance core; 16 cores are slower"},
		{"efficient cores of full instruction sets", append(some(4, 2, 5100), some(8, 2, 3300)...), 24, 12, "of 24 hardware threads"},
		{"capacities of three kinds", append(append(some(1, 1, 1024), some(3, 1, 870)...), some(4, 1, 325)...), 8, 4, "4 cores are slower"},
		{"a quota", append(some(8, 2, 1), some(16, 1, 0)...), 3, 3, "of 8 cores: a quota"},
	} {
		if n, why := chooseThreads(c.cores, c.slots); n != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%s: %d threads (%s), want %d (… %s …)", c.name, n, why, c.want, c.why)
		}
	}
	n, why := usualThreads()
	if n < 1 || n > runtime.NumCPU() || why == "" {
		t.Errorf("this machine: %d threads (%s) of %d processors", n, why, runtime.NumCPU())
	}
	if cores := systemCores(); len(cores) < 1 || len(cores) > runtime.NumCPU() {
		t.Errorf("this machine: cores %v of %d processors", cores, runtime.NumCPU())
	}
}
