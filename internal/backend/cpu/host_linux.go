package cpu

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// systemMemory is the bytes of memory of the machine, and those that this process may still
// allocate.
func systemMemory() (total, free int64) {
	root := os.DirFS("/")
	return field(root, "proc/meminfo", "MemTotal:") << 10, freeMemoryOf(root)
}

// freeMemoryOf is the bytes that a process may still allocate on a machine with those files: the available
// memory, within the limits of the control groups of the process.
func freeMemoryOf(root fs.FS) int64 {
	free := field(root, "proc/meminfo", "MemAvailable:") << 10 // if it is missing, nothing is known
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(parts) != 3 {
			continue
		}
		switch controllers := strings.Split(parts[1], ","); {
		case parts[0] == "0" && parts[1] == "":
			free = unified.free(root, parts[2], free)
		case slices.Contains(controllers, "memory"):
			free = legacy.free(root, parts[2], free)
		}
	}
	return free
}

// hierarchy is the location and the names of the files of a version of control groups.
type hierarchy struct {
	mount, limit, used string
	// cache is the field of memory.stat with the pages of files that the system would
	// reclaim. They count as used and are not.
	cache string
}

var (
	unified = hierarchy{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}
	legacy  = hierarchy{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
)

// free is the memory that a group and its parents leave of free bytes. A missing path is
// outside of a container's own root: then the root counts.
func (h *hierarchy) free(root fs.FS, group string, free int64) int64 {
	for dir := path.Join("/", group); ; dir = path.Dir(dir) {
		at := path.Join(h.mount, dir)
		limit, err := number(root, path.Join(at, h.limit))
		if err == nil {
			used, _ := number(root, path.Join(at, h.used))
			used -= field(root, path.Join(at, "memory.stat"), h.cache)
			free = min(free, max(limit-max(used, 0), 0))
		}
		if dir == "/" {
			return free
		}
	}
}

// number reads a file with one number. A limit of "max" is an error here.
func number(root fs.FS, name string) (int64, error) {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 1<<63 - 1, nil // some systems write no limit like that
	}
	return n, err
}

// field reads the number behind a name at the start of a line; 0 if there is none.
func field(root fs.FS, file, name string) int64 {
	data, _ := fs.ReadFile(root, file)
	for line := range strings.Lines(string(data)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == name {
			n, _ := strconv.ParseInt(words[1], 10, 64)
			return n
		}
	}
	return 0
}

func processorName() string { return processorOf(os.DirFS("/")) }

// processorOf is the processor of a machine with those files: the maker's name on x86, the numbers of its kinds of cores on arm64,
// where the system has no name; "" if it does not tell.
func processorOf(root fs.FS) string {
	maker, kinds := "", []string(nil)
	for line := range strings.Lines(text(root, "proc/cpuinfo")) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "model name":
			return value
		case "CPU implementer":
			maker = value
		case "CPU part":
			if kind := "part " + value + " of implementer " + maker; !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	return strings.Join(kinds, ", ")
}
