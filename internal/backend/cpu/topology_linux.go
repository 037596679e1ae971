package cpu

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func systemCores() []core {
	var mask unix.CPUSet
	if unix.SchedGetaffinity(0, &mask) != nil {
		return nil
	}
	return coresOf(os.DirFS("/"), mask.IsSet)
}

// coresOf are the cores of a machine with those files of which at least one processor is allowed. Speeds are, by what the
// system has: the kind of core of hybrids, the capacity that the kernel schedules by, the highest frequency.
func coresOf(root fs.FS, allowed func(cpu int) bool) []core {
	const cpus = "sys/devices/system/cpu"
	fast := processors(root, "sys/devices/cpu_core/cpus")
	var cores []core
	at := map[string]int{} // by the list of their processors
	for cpu := range processors(root, cpus+"/online") {
		if !allowed(cpu) {
			continue
		}
		dir := fmt.Sprintf("%s/cpu%d", cpus, cpu)
		name := text(root, path.Join(dir, "topology/core_cpus_list"))
		if name == "" {
			name = text(root, path.Join(dir, "topology/thread_siblings_list"))
		}
		if name == "" {
			name = strconv.Itoa(cpu)
		}
		i, seen := at[name]
		if !seen {
			i = len(cores)
			at[name] = i
			cores = append(cores, core{})
		}
		cores[i].threads++
		speed, err := number(root, path.Join(dir, "cpu_capacity"))
		if err != nil {
			speed, _ = number(root, path.Join(dir, "cpufreq/cpuinfo_max_freq"))
		}
		if fast != nil {
			speed = 0
			if fast[cpu] {
				speed = 1
			}
		}
		cores[i].speed = max(cores[i].speed, int(speed))
	}
	for _, c := range cores {
		if c.speed == 0 && fast == nil { // known of some only
			for i := range cores {
				cores[i].speed = 0
			}
			break
		}
	}
	return cores
}

// text is a file without the spaces around it; "" if it cannot be read.
func text(root fs.FS, name string) string {
	data, _ := fs.ReadFile(root, name)
	return strings.TrimSpace(string(data))
}

// processors reads a file with a list like 0-3,8; nil if there is none or it is no list.
func processors(root fs.FS, name string) map[int]bool {
	list := map[int]bool{}
	for part := range strings.SplitSeq(text(root, name), ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.Atoi(from)
		if err != nil {
			return nil
		}
		last, err := strconv.Atoi(to)
		if err != nil || last-first > 1<<16 {
			return nil
		}
		for i := first; i <= last; i++ {
			list[i] = true
		}
	}
	return list
}
