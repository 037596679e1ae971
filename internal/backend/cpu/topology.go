package cpu

import (
	"fmt"
	"runtime"
)

// core is a processor core that this process may use.
type core struct {
	threads int // hardware threads that this process may use
	speed   int // in any unit, the same for all cores; 0: not known
}

// slots is the number of threads that Go runs at once in this process, from affinity masks, quotas of containers or GOMAXPROCS,
// before a command has changed it.
var slots = runtime.GOMAXPROCS(0)

// usualThreads is the number of threads that compute unless options say otherwise, and the reason.
func usualThreads() (n int, why string) { return chooseThreads(systemCores(), slots) }

// chooseThreads takes one thread for each of the cores that are not much slower than the fastest, within slots. A second thread
// of a core shares its units and its paths to memory, which one thread of our kernels keeps busy, and all threads wait for
// the last chunk of an operation, which a slow core may have.
func chooseThreads(cores []core, slots int) (n int, why string) {
	fastest, hardware := 0, 0
	for _, c := range cores {
		fastest = max(fastest, c.speed)
	}
	for _, c := range cores {
		if 5*c.speed >= 3*fastest {
			n++
		}
		hardware += c.threads
	}
	switch {
	case n == 0:
		return slots, "one for each processor: the system does not describe its cores"
	case slots < n:
		return slots, fmt.Sprintf("of %d cores: a quota, an affinity mask or GOMAXPROCS allows no more", n)
	case n < len(cores):
		return n, fmt.Sprintf("one for each performance core; %d cores are slower", len(cores)-n)
	case hardware > n:
		return n, fmt.Sprintf("one for each core, of %d hardware threads", hardware)
	}
	return n, "one for each core"
}
