package cpu

import (
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"
)

// machine writes the files of a machine's topology.
type machine struct{ files fstest.MapFS }

func newMachine(online string) machine {
	m := machine{fstest.MapFS{}}
	m.file("online", online)
	return m
}

func (m machine) file(name, text string) machine {
	m.files["sys/devices/system/cpu/"+name] = &fstest.MapFile{Data: []byte(text + "\n")}
	return m
}

// each writes a file of processors from to last; the name's %d is the processor, the text's first %d too.
func (m machine) each(from, last int, name string, text func(cpu int) string) machine {
	for cpu := from; cpu <= last; cpu++ {
		m.file(fmt.Sprintf("cpu%d/%s", cpu, name), text(cpu))
	}
	return m
}

func same(text string) func(int) string { return func(int) string { return text } }

func single(cpu int) string { return fmt.Sprint(cpu) }

// TestCoresOfMachines reads trees of /sys as several kinds of machines have them.
func TestCoresOfMachines(t *testing.T) {
	const list, old = "topology/core_cpus_list", "topology/thread_siblings_list"
	pairs := func(cpu int) string { return fmt.Sprintf("%d-%d", cpu&^1, cpu|1) }
	apart := func(n int) func(int) string {
		return func(cpu int) string { return fmt.Sprintf("%d,%d", cpu%n, cpu%n+n) }
	}
	hybrid := newMachine("0-11").each(0, 7, list, pairs).each(8, 11, list, single).
		each(0, 7, "cpufreq/cpuinfo_max_freq", same("5000000")).each(8, 11, "cpufreq/cpuinfo_max_freq", same("3800000"))
	hybrid.files["sys/devices/cpu_core/cpus"] = &fstest.MapFile{Data: []byte("0-7\n")}
	hybrid.files["sys/devices/cpu_atom/cpus"] = &fstest.MapFile{Data: []byte("8-11\n")}
	all := func(int) bool { return true }
	for _, c := range []struct {
		name          string
		root          fs.FS
		allowed       func(int) bool
		cores, choice int
	}{
		{"no files", fstest.MapFS{}, all, 0, 64},
		{"a virtual machine without topology", newMachine("0-3").files, all, 4, 4},
		{"a server with hyper-threads", newMachine("0-15").each(0, 15, list, apart(8)).files, all, 8, 8},
		{"the same with an older kernel", newMachine("0-15").each(0, 15, old, apart(8)).files, all, 8, 8},
		{"an affinity mask of two cores", newMachine("0-15").each(0, 15, list, apart(8)).files, func(cpu int) bool { return cpu%8 < 2 }, 2, 2},
		{"an affinity mask of single hardware threads", newMachine("0-15").each(0, 15, list, apart(8)).files, func(cpu int) bool { return cpu < 3 }, 3, 3},
		{"processors that are off", newMachine("0,2-3").each(0, 3, list, single).files, all, 3, 3},
		{"a hybrid of Intel", hybrid.files, all, 8, 4},
		{"its efficiency cores alone", hybrid.files, func(cpu int) bool { return cpu >= 8 }, 4, 4},
		{"cores of two frequencies", newMachine("0-7").each(0, 7, list, pairs).each(0, 3, "cpufreq/cpuinfo_max_freq", same("5100000")).
			each(4, 7, "cpufreq/cpuinfo_max_freq", same("3300000")).files, all, 4, 4},
		{"big and little cores of ARM", newMachine("0-7").each(0, 7, list, single).each(0, 3, "cpu_capacity", same("398")).
			each(4, 7, "cpu_capacity", same("1024")).each(0, 7, "cpufreq/cpuinfo_max_freq", same("2400000")).files, all, 8, 4},
		{"capacities of some only", newMachine("0-3").each(0, 3, list, single).each(0, 1, "cpu_capacity", same("1024")).files, all, 4, 4},
		{"nonsense", newMachine("0-3,x").files, all, 0, 64},
		{"more nonsense", newMachine("3-1").each(0, 3, list, same("")).files, all, 0, 64},
	} {
		cores := coresOf(c.root, c.allowed)
		if n, why := chooseThreads(cores, 64); len(cores) != c.cores || n != c.choice {
			t.Errorf("%s: %d cores %v, %d threads (%s), want %d and %d", c.name, len(cores), cores, n, why, c.cores, c.choice)
		}
	}
}
