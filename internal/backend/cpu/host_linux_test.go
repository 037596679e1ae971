package cpu

import (
	"testing"
	"testing/fstest"
)

// TestFreeMemoryIsTheGroups checks the memory that a process may take against the files of
// machines and containers of several kinds.
func TestFreeMemoryIsTheGroups(t *testing.T) {
	const meminfo = "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n"
	const available = 8000000 << 10
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"no groups", nil, available},
		{"no limit", map[string]string{
			"proc/self/cgroup": "0::/user.slice\n", "sys/fs/cgroup/user.slice/memory.max": "max\n", "sys/fs/cgroup/user.slice/memory.current": "5\n",
		}, available},
		{"a container, which sees its group as the root", map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1000000\n", "sys/fs/cgroup/memory.current": "400000\n",
		}, 600_000},
		{"a service of systemd with MemoryMax", map[string]string{
			"proc/self/cgroup": "0::/system.slice/foretoken.service\n",
			"sys/fs/cgroup/system.slice/foretoken.service/memory.max":     "3000000\n",
			"sys/fs/cgroup/system.slice/foretoken.service/memory.current": "500000\n",
			"sys/fs/cgroup/system.slice/memory.max":                       "max\n",
		}, 2_500_000},
		{"a slice around it with less", map[string]string{
			"proc/self/cgroup": "0::/system.slice/foretoken.service\n",
			"sys/fs/cgroup/system.slice/foretoken.service/memory.max":     "3000000\n",
			"sys/fs/cgroup/system.slice/foretoken.service/memory.current": "500000\n",
			"sys/fs/cgroup/system.slice/memory.max":                       "4000000\n",
			"sys/fs/cgroup/system.slice/memory.current":                   "3000000\n",
		}, 1_000_000},
		{"files that the system would give up", map[string]string{
			"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "3000000\n", "sys/fs/cgroup/a/memory.current": "2500000\n",
			"sys/fs/cgroup/a/memory.stat": "anon 400000\nfile 2000000\ninactive_file 1500000\nactive_file 500000\n",
		}, 2_000_000},
		{"more used than allowed", map[string]string{
			"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "3000000\n", "sys/fs/cgroup/a/memory.current": "3500000\n",
		}, 0},
		{"groups of version 1", map[string]string{
			"proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/jobs/one\n",
			"sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes": "2000000\n", "sys/fs/cgroup/memory/jobs/one/memory.usage_in_bytes": "1500000\n",
			"sys/fs/cgroup/memory/jobs/one/memory.stat":  "inactive_file 7\ntotal_inactive_file 200000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 700_000},
		{"version 1 in a container, whose path is the host's", map[string]string{
			"proc/self/cgroup":                           "4:memory:/docker/0123\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "2000000\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "1500000\n",
		}, 500_000},
		{"nonsense", map[string]string{"proc/self/cgroup": "\nx\n0::/../../etc\n", "sys/fs/cgroup/memory.max": "-\n"}, available},
	} {
		files := fstest.MapFS{"proc/meminfo": {Data: []byte(meminfo)}}
		for name, text := range c.files {
			files[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := freeMemoryOf(files); got != c.want {
			t.Errorf("%s: %d bytes are free, want %d", c.name, got, c.want)
		}
	}
	if total, free := systemMemory(); free <= 0 || free > total {
		t.Errorf("this machine has %d bytes of memory, %d of them free", total, free)
	}
}

func TestProcessorHasTheNameOfItsMakerOrItsKindsOfCores(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"", ""},
		{"processor\t: 0\nmodel name\t: Fast(R) Processor @ 2.5GHz\nflags\t: a b\n\nprocessor\t: 1\nmodel name\t: other\n", "Fast(R) Processor @ 2.5GHz"},
		{
			"CPU implementer\t: 0x41\nCPU part\t: 0xd46\n\nCPU implementer\t: 0x41\nCPU part\t: 0xd46\n\nCPU implementer\t: 0x41\nCPU part\t: 0xd4d\n",
			"part 0xd46 of implementer 0x41, part 0xd4d of implementer 0x41",
		},
	} {
		if got := processorOf(fstest.MapFS{"proc/cpuinfo": {Data: []byte(c.file)}}); got != c.want {
			t.Errorf("%q is %q, want %q", c.file, got, c.want)
		}
	}
}
