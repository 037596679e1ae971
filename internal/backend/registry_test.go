package backend

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// fake is a device that can do nothing but tell how it was opened.
type fake struct {
	Backend
	device string
	o      Options
}

// fakeDevice is a kind of device with two instruction sets. missing is why the machine has none.
func fakeDevice(name string, rank int, missing string) Device {
	sets := []string{name + "2", name + "1"}
	return Device{
		Name: name, Rank: rank,
		ISAs: func() []string { return sets },
		Probe: func() []Info {
			return []Info{{Missing: missing, Memory: int64(rank), ISAs: []ISA{{sets[0], "too new"}, {sets[1], ""}}}}
		},
		Open: func(o Options) (Backend, error) {
			switch {
			case missing != "":
				return nil, fmt.Errorf("%s: %w: %s", name, ErrUnavailable, missing)
			case o.ISA != "" && !slices.Contains(sets, o.ISA):
				return nil, fmt.Errorf("%s: no instruction set %q, want one of %s", name, o.ISA, strings.Join(sets, ", "))
			}
			return &fake{device: name, o: o}, nil
		},
	}
}

func TestOpenChoosesTheDevice(t *testing.T) {
	var r registry
	r.register(fakeDevice("host", 0, ""))
	r.register(fakeDevice("fast", 2, "no driver"))
	r.register(fakeDevice("good", 1, ""))
	for _, c := range []struct{ name, isa, want string }{
		{"", "", "good"}, // the fastest is not here
		{Auto, "", "good"},
		{Auto, "host1", "host"}, // the only one that has it
		{Auto, "good2", "good"},
		{"host", "", "host"},
		{"good", "good1", "good"},
		{"fast", "", "fast: not available: no driver"},
		{Auto, "fast1", "fast: not available: no driver"},
		{Auto, "mmx", `good: no instruction set "mmx", want one of good2, good1`},
		{"host", "good1", `host: no instruction set "good1", want one of host2, host1`},
		{"abacus", "", "device abacus: not available in this build; use auto or fast or good or host"},
		{"Host", "", "device Host: not available in this build"},
	} {
		b, _, err := r.open(c.name, Options{ISA: c.isa, Threads: 3})
		got := ""
		if f, ok := b.(*fake); ok && f.o == (Options{ISA: c.isa, Threads: 3, Auto: c.name == "" || c.name == Auto}) {
			got = f.device
		} else if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, c.want) || errors.Is(err, ErrUnavailable) != strings.Contains(c.want, "not available") {
			t.Errorf("device %q with %q: %s, %v, want %s", c.name, c.isa, got, err, c.want)
		}
		if known := r.known(c.name); known != nil && known.Error() != err.Error() {
			t.Errorf("%q is known to be %q, but opened it is %q", c.name, known, err)
		}
	}
}

func TestListDescribesEveryDevice(t *testing.T) {
	var r registry
	slow := fakeDevice("slow", 3, "")
	slow.Probe = func() []Info { return []Info{{Manual: true, Memory: 3, ISAs: []ISA{{"slow1", ""}}}} }
	slow.ISAs = func() []string { return nil }
	for _, d := range []Device{fakeDevice("host", 0, ""), fakeDevice("fast", 2, "no driver"), fakeDevice("good", 1, ""), slow} {
		r.register(d)
	}
	if got, want := r.names(), []string{Auto, "slow", "fast", "good", "host"}; !slices.Equal(got, want) {
		t.Errorf("names %v, want %v", got, want)
	}
	if got, want := r.isas(), []string{"fast2", "fast1", "good2", "good1", "host2", "host1"}; !slices.Equal(got, want) {
		t.Errorf("instruction sets %v, want %v", got, want)
	}
	list := r.list()
	for i, want := range []Info{{Name: "slow", Memory: 3}, {Name: "fast", Missing: "no driver", Memory: 2}, {Name: "good", Default: true, Memory: 1}, {Name: "host"}} {
		got := list[i]
		if got.Name != want.Name || got.Default != want.Default || got.Missing != want.Missing || got.Memory != want.Memory {
			t.Errorf("device %d is %+v, want %+v", i, got, want)
		}
		if sets := got.Runnable(); !slices.Equal(sets, []string{want.Name + "1"}) {
			t.Errorf("%s runs %v", got.Name, sets)
		}
	}
}

// TestSeveralDevicesOfAKind has two devices of a kind, and names of them.
func TestSeveralDevicesOfAKind(t *testing.T) {
	var r registry
	r.register(fakeDevice("host", 0, ""))
	d := fakeDevice("good", 1, "")
	d.Numbered = true
	d.Probe = func() []Info { return []Info{{Missing: "too old"}, {Memory: 1}, {Memory: 2}} }
	r.register(d)
	var names []string
	for _, i := range r.list() {
		names = append(names, fmt.Sprint(i.Name, i.Default))
	}
	if want := []string{"good:0false", "good:1true", "good:2false", "hostfalse"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	for name, want := range map[string]string{"good": "good:1 0", "": "good:1 0", "good:0": "good:0 1", "good:2": "good:2 3", "host": "host 0"} {
		b, called, err := r.open(name, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(called, " ", b.(*fake).o.Number); got != want {
			t.Errorf("%q is %s, want %s", name, got, want)
		}
	}
	d = fakeDevice("slow", 2, "")
	d.Numbered = true
	d.Probe = func() []Info { return []Info{{Manual: true}, {}} }
	slow := registry{d}
	for name, want := range map[string]string{"": "slow:1", "slow": "slow:0"} { // a device that has to be named
		if _, called, err := slow.open(name, Options{}); err != nil || called != want {
			t.Errorf("%q is %s, want %s: %v", name, called, want, err)
		}
	}
	for list, want := range map[string]string{
		"good:0,good:1,host": "", "good, good:1": "", "good:0,good:0": "", "": "", "auto": "",
		"good:x":    "device good:x: not available in this build; use auto or good or host",
		"host:0":    "device host:0: not available in this build; use auto or good or host",
		"good,":     "device good,: auto selects the devices itself and cannot be in a list",
		"auto,host": "device auto,host: auto selects the devices itself and cannot be in a list",
		"host,host": "device host,host: the processor can be in the list once: its cores and its memory are the same",
	} {
		if err := r.knownAll(list); err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%q: %v, want %q", list, err, want)
		}
	}
	if _, _, err := r.open("good:0,host", Options{}); err == nil || err.Error() != "device good:0,host: one device is needed here, not several" {
		t.Error(err)
	}
}

func TestNothingIsAvailableInAnEmptyBuild(t *testing.T) {
	var r registry
	for _, name := range []string{"", Auto, "cpu"} {
		if b, _, err := r.open(name, Options{}); b != nil || !errors.Is(err, ErrUnavailable) {
			t.Errorf("device %q: %v, %v", name, b, err)
		}
	}
	if list := r.list(); len(list) != 0 {
		t.Errorf("devices %v", list)
	}
}

func TestRegisterRefusesNamesThatAreTaken(t *testing.T) {
	for _, name := range []string{"", Auto, "host"} {
		var r registry
		r.register(fakeDevice("host", 0, ""))
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q was registered", name)
				}
			}()
			r.register(fakeDevice(name, 1, ""))
		}()
	}
}
