package foretoken

import (
	"os"
	"strconv"
	"strings"
)

// freeMemory is the bytes that this process may still take: what the machine has available,
// within the limit of its control group.
func freeMemory() int64 {
	free := int64(0)
	data, _ := os.ReadFile("/proc/meminfo") // where it is not, nothing is known
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			free = kb << 10
		}
	}
	limit, err := number("/sys/fs/cgroup/memory.max")
	if err != nil {
		return free
	}
	used, _ := number("/sys/fs/cgroup/memory.current")
	return min(free, max(limit-used, 0))
}

// number reads a file that holds one.
func number(name string) (int64, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}
