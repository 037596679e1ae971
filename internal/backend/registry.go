package backend

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	Threads int          // of the host, to compute with or to feed the device; 0: one per processor this process may use
	ISA     string       // instruction set, one of Device.ISAs; "": the best the device can run
	Log     *slog.Logger // nil: warnings go to the default one
}

// Device is a kind of device that this build has code for. Its package registers it, and
// nothing but a blank import names that package.
type Device struct {
	Name string // for users: short, in lower case
	Rank int    // auto selects the device of the highest rank that can be opened; the CPU has 0
	// ISAs lists the instruction sets with kernels, the best first. It does not examine
	// the machine.
	ISAs func() []string
	// Probe examines the machine. It may take as long as opening a driver does.
	Probe func() Info
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

// Known is nil if Open accepts the name. Otherwise it is the error that Open returns.
func Known(name string) error { return devices.known(name) }

// Open opens a device by its name. Auto, or no name, is the device of the highest rank that this
// machine has and that has the instruction set of the options, if they name one.
func Open(name string, o Options) (Backend, error) {
	b, _, err := devices.open(name, o)
	return b, err
}

// OpenNamed is Open, and returns the name of the opened device.
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

func (r registry) list() []Info {
	list := make([]Info, len(r))
	chosen := false
	for i, d := range r {
		list[i] = d.Probe()
		list[i].Name, list[i].Default = d.Name, !chosen && list[i].Missing == ""
		chosen = chosen || list[i].Default
	}
	return list
}

func (r registry) known(name string) error {
	if name == "" || name == Auto || r.find(name) != nil {
		return nil
	}
	return fmt.Errorf("device %s: %w in this build; use %s", name, ErrUnavailable, strings.Join(r.names(), " or "))
}

func (r registry) open(name string, o Options) (b Backend, called string, err error) {
	if name != "" && name != Auto {
		if err := r.known(name); err != nil {
			return nil, name, err
		}
		b, err := r.find(name).Open(o)
		return b, name, err
	}
	var missing []error
	for _, d := range r.having(o.ISA) {
		b, err := d.Open(o)
		if !errors.Is(err, ErrUnavailable) {
			return b, d.Name, err
		}
		missing = append(missing, err)
	}
	if missing == nil {
		return nil, "", fmt.Errorf("device: %w in this build", ErrUnavailable)
	}
	return nil, "", errors.Join(missing...)
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
