package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
)

func TestDevicesListsWhatComputes(t *testing.T) {
	o := runIn(t, nil, "devices", "--json")
	var list []deviceReport
	if err := json.Unmarshal([]byte(o.out), &list); err != nil || o.code != 0 || o.err != "" {
		t.Fatalf("%+v: %v", o, err)
	}
	i := slices.IndexFunc(list, func(d deviceReport) bool { return d.Name == "cpu" })
	if i < 0 || !list[i].Available || list[i].Threads < 1 || list[i].FreeBytes < 1 || !slices.Equal(list[i].Compute, []string{"int8", "float32"}) {
		t.Fatalf("devices %+v", list)
	}
	var names, used []string
	for _, set := range list[i].ISAs {
		names = append(names, set.Name)
		if set.Default {
			used = append(used, set.Name)
		}
		if set.Available != (set.Missing == "") {
			t.Errorf("%+v", set)
		}
	}
	if last := list[i].ISAs[len(names)-1]; last.Name != "generic" || !last.Available || len(used) != 1 {
		t.Errorf("instruction sets %v, by default %v", names, used)
	}
	text := runIn(t, nil, "devices")
	if text.code != 0 || !strings.Contains(text.out, "cpu (default)\n") || !strings.Contains(text.out, used[0]+" (default)\n") {
		t.Errorf("%+v", text)
	}
}

func TestDeviceTableSaysWhyOneIsMissing(t *testing.T) {
	got := deviceTable(describeDevices([]backend.Info{
		{Name: "gpu", Missing: "there is no driver"},
		{
			Name: "cpu", Default: true, Memory: 16e9, Free: 4e9, Threads: 8, Reason: "one for each core, of 16 hardware threads", Compute: []backend.Compute{backend.Int8, backend.Float32},
			ISAs: []backend.ISA{{Name: "amx", Missing: "this processor lacks AMX"}, {Name: "avx2"}, {Name: "generic"}},
		},
		{Name: "other", Threads: 1, Detail: "proven", Compute: []backend.Compute{backend.Int8}},
	}))
	want := `gpu: not available: there is no driver

cpu (default)
  memory            16 GB, 4 GB free
  threads           8: one for each core, of 16 hardware threads
  compute           int8, float32
  instruction sets  amx: not available: this processor lacks AMX
                    avx2 (default)
                    generic

other
  device   proven
  memory   not known
  threads  1
  compute  int8
`
	if got != want {
		t.Errorf("table:\n%s\nwant:\n%s", got, want)
	}
}

// Every command that opens a model or a device has --device, and lists the available ones.
func TestDeviceIsAFlagOfEveryCommandThatComputes(t *testing.T) {
	for _, command := range []string{"generate", "run", "serve", "doctor tiny", "bench decode", "bench model", "bench kernels", "bench compare"} {
		words := strings.Fields(command)
		o := runIn(t, nil, append(words, "--device", "abacus")...)
		if o.code != exitUsage || !strings.Contains(o.err, `"--device" flag: device abacus: not available in this build; use auto or cuda or vulkan or cpu`) {
			t.Errorf("%s --device abacus: %+v", command, o)
		}
		o = runIn(t, nil, append(append([]string{"__complete"}, words...), "--device", "")...)
		if !strings.HasPrefix(o.out, "auto\ncuda\nvulkan\ncpu\n") {
			t.Errorf("%s: completion of --device: %q", command, o.out)
		}
	}
	o := runIn(t, nil, with([]string{"generate", "--device", "cpu", "--verbose", "--threads", "1", "--max-tokens", "1"}, ids...)...)
	if o.code != 0 || !strings.Contains(o.err, " on cpu ") {
		t.Errorf("--device cpu: %+v", o)
	}
}
