package backend

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken/internal/dtype"
)

// ErrUnavailable is wrapped by the error for a device that this build or this machine does not
// have.
var ErrUnavailable = errors.New("not available")

// Auto is the name that stands for the best device there is. So does no name.
const Auto = "auto"

// Options say how a device is opened. The zero value is the default.
type Options struct {
	Threads int          // of the host, to compute with or to feed the device; 0: as Threads says
	ISA     string       // instruction set, one of Device.ISAs; "": the best the device can run
	Log     *slog.Logger // nil: warnings go to the default one
	// Number is which of several devices of a kind is opened, plus 1; 0: the first that can be. Open sets it by the name.
	Number int
	Auto   bool // the device was not named: one that cannot be used, or should not without being named, is unavailable. Open sets it.
}

// Device is a kind of device that this build has code for. Its package registers it, and
// nothing but a blank import names that package.
type Device struct {
	Name string // for users: short, in lower case
	Rank int    // auto selects the device of the highest rank that can be opened; the CPU has 0
	// ISAs lists the instruction sets with kernels, the best first. It does not examine
	// the machine.
	ISAs func() []string
	// Numbered is set for a kind of which a machine may have several devices: users select one as NAME:0 or NAME:1.
	Numbered bool
	// Probe examines the machine. It may take as long as opening a driver does. It returns one Info for each device in the
	// order of their numbers, and one that says what is missing if there is none.
	Probe func() []Info
	// Threads is Info's and its reason, for the device of rank 0.
	Threads func() (n int, why string)
	// Open opens the device. If there is none, the error wraps ErrUnavailable and says why.
	Open func(Options) (Backend, error)
}

// Info describes a kind of device of a machine.
type Info struct {
	Name    string    // set by List
	Default bool      // selected by auto; set by List
	Missing string    // why it cannot be used; "": it can
	Memory  int64     // bytes; 0: not known
	Free    int64     // bytes of Memory that this process may still take
	Threads int       // of the host, unless Options say otherwise
	Reason  string    // of this number
	Manual  bool      // auto never selects it
	Detail  string    // more about it, for people; "": nothing
	ISAs    []ISA     // the best first; the first that is not missing is used by default
	Compute []Compute // how it can multiply with quantized weights
	// WeightBytes is Sizer's; nil: weights take as much as on the host.
	WeightBytes func(m *dtype.Matrix) int64
}

// Sizer is a device whose weights take another size than on the host.
type Sizer interface {
	// WeightBytes is the memory of a weight that is encoded like m, with the tables of its input. m may have no data.
	WeightBytes(m *dtype.Matrix) int64
}

// Runnable lists the instruction sets that the machine can run, the best first.
func (i *Info) Runnable() []string {
	var names []string
	for _, set := range i.ISAs {
		if set.Missing == "" {
			names = append(names, set.Name)
		}
	}
	return names
}

// ISA is an instruction set of a kind of device.
type ISA struct {
	Name    string
	Missing string // why it cannot be used; "": it can
}

// registry is the devices of a build, by rank, the highest first.
type registry []Device

var devices registry

// Register makes a kind of device known. It is called from the init of its package.
func Register(d Device) { devices.register(d) }

// Names lists the names for Open: Auto, and the devices of this build, by rank.
func Names() []string { return devices.names() }

// ISAs lists the instruction sets of all devices of this build.
func ISAs() []string { return devices.isas() }

// List describes the devices of this build, by rank, including those that this machine lacks.
func List() []Info { return devices.list() }

// Known is nil if OpenNamed accepts each name of a list with commas. Otherwise it is the error.
func Known(list string) error { return devices.knownAll(list) }

// Others are the names of the devices of a kind that a machine has besides one, which is one of them, without those that have to be named.
func Others(name string) (list []string) {
	kind, _, _ := strings.Cut(name, ":")
	for _, i := range List() {
		if k, _, several := strings.Cut(i.Name, ":"); several && k == kind && i.Name != name && i.Missing == "" && !i.Manual {
			list = append(list, i.Name)
		}
	}
	return list
}

// Open opens a device by its name. Auto, or no name, is the device of the highest rank that this
// machine has and that has the instruction set of the options, if they name one.
func Open(name string, o Options) (Backend, error) {
	b, _, err := devices.open(name, o)
	return b, err
}

// OpenNamed is Open, and returns the name of the opened device, with its number if its kind has some.
func OpenNamed(name string, o Options) (b Backend, called string, err error) {
	return devices.open(name, o)
}

// HostName is the name of the CPU, the device of rank 0; "" if this build has none.
func HostName() string {
	for _, d := range devices {
		if d.Rank == 0 {
			return d.Name
		}
	}
	return ""
}

// Threads is the number of threads of the host that compute or feed a device unless Options say otherwise, and the reason.
func Threads() (n int, why string) {
	if d := devices.find(HostName()); d != nil && d.Threads != nil {
		return d.Threads()
	}
	return runtime.GOMAXPROCS(0), "one for each processor"
}

// OpenHost opens the host's processor beside another device.
func OpenHost(o Options) (Backend, error) {
	name := HostName()
	if d := devices.find(name); d != nil && !slices.Contains(d.ISAs(), o.ISA) {
		o.ISA = "" // it is the other's
	}
	return Open(name, o)
}

func (r *registry) register(d Device) {
	if d.Name == "" || d.Name == Auto || r.find(d.Name) != nil {
		panic(fmt.Sprintf("backend: device %q is registered twice, or has no name", d.Name))
	}
	*r = append(*r, d)
	slices.SortStableFunc(*r, func(a, b Device) int { return cmp.Compare(b.Rank, a.Rank) })
}

func (r registry) find(name string) *Device {
	if i := slices.IndexFunc(r, func(d Device) bool { return d.Name == name }); i >= 0 {
		return &r[i]
	}
	return nil
}

func (r registry) names() []string {
	names := []string{Auto}
	for _, d := range r {
		names = append(names, d.Name)
	}
	return names
}

func (r registry) isas() []string {
	var all []string
	for _, d := range r {
		for _, name := range d.ISAs() {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

func (r registry) list() (list []Info) {
	chosen := false
	for _, d := range r {
		some := d.Probe()
		for i := range some {
			x := &some[i]
			if x.Name = d.Name; len(some) > 1 {
				x.Name += ":" + strconv.Itoa(i)
			}
			x.Default = !chosen && x.Missing == "" && !x.Manual
			chosen = chosen || x.Default
		}
		list = append(list, some...)
	}
	return list
}

// kind is the kind of the device of a name, and its number for Options; nil: there is none.
func (r registry) kind(name string) (*Device, int) {
	if d := r.find(name); d != nil {
		return d, 0
	}
	kind, number, _ := strings.Cut(name, ":")
	n, err := strconv.Atoi(number)
	if d := r.find(kind); d != nil && d.Numbered && err == nil && n >= 0 {
		return d, n + 1
	}
	return nil, 0
}

func (r registry) known(name string) error {
	if d, _ := r.kind(name); d != nil || name == "" || name == Auto {
		return nil
	}
	if strings.Contains(name, ",") {
		return fmt.Errorf("device %s: one device is needed here, not several", name)
	}
	return fmt.Errorf("device %s: %w in this build; use %s", name, ErrUnavailable, strings.Join(r.names(), " or "))
}

func (r registry) knownAll(list string) error {
	names := strings.Split(list, ",")
	host := 0
	for _, name := range names {
		name = strings.TrimSpace(name)
		if len(names) > 1 && (name == "" || name == Auto) {
			return fmt.Errorf("device %s: %s selects the devices itself and cannot be in a list", list, Auto)
		}
		if err := r.known(name); err != nil {
			return err
		}
		if d := r.find(name); d != nil && d.Rank == 0 {
			host++
		}
	}
	if host > 1 {
		return fmt.Errorf("device %s: the processor can be in the list once: its cores and its memory are the same", list)
	}
	return nil
}

func (r registry) open(name string, o Options) (b Backend, called string, err error) {
	if name != "" && name != Auto {
		if err := r.known(name); err != nil {
			return nil, name, err
		}
		d, number := r.kind(name)
		o.Number = number
		b, err := d.Open(o)
		return b, d.called(o), err
	}
	var missing []error
	o.Auto = true
	for _, d := range r.having(o.ISA) {
		b, err := d.Open(o)
		if !errors.Is(err, ErrUnavailable) {
			return b, d.called(o), err
		}
		missing = append(missing, err)
	}
	if missing == nil {
		return nil, "", fmt.Errorf("device: %w in this build", ErrUnavailable)
	}
	return nil, "", errors.Join(missing...)
}

// called is the name of the device that was opened with options.
func (d *Device) called(o Options) string {
	if !d.Numbered {
		return d.Name
	}
	number := o.Number
	if number == 0 {
		number = 1 + max(0, slices.IndexFunc(d.Probe(), func(i Info) bool { return i.Missing == "" && (!o.Auto || !i.Manual) }))
	}
	return fmt.Sprintf("%s:%d", d.Name, number-1)
}

// having are the devices with an instruction set. If none has it all are returned: opening
// them reports the available ones.
func (r registry) having(isa string) registry {
	var some registry
	for _, d := range r {
		if isa == "" || slices.Contains(d.ISAs(), isa) {
			some = append(some, d)
		}
	}
	if some == nil {
		return r
	}
	return some
}
