package offload

import (
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// Preview is where a model would go on a device.
type Preview struct {
	Device string `json:"device"`
	Fits   bool   `json:"fits"`
	Where  string `json:"where"` // for people: the parts and their devices, or why it does not fit
}

// PreviewOn is the placement of a model on each device of a machine besides the CPU, and on all of several, by free
// memory and want: nothing is measured. It is empty without such devices.
func PreviewOn(devices []backend.Info, s *weights.Survey, want Want, o Options) []Preview {
	if o.Context == 0 {
		o.Context = min(s.Context, DefaultContext)
	}
	var host Side
	for i := range devices {
		if devices[i].Name == backend.HostName() {
			host = Side{Name: devices[i].Name, Free: devices[i].Free, Host: true}
		}
	}
	n := NewNeed(s, o)
	list := []Preview{}
	var all Machine
	add := func(name string, on Machine) {
		p, err := New(n, want, append(on, host))
		x := Preview{Device: name, Fits: err == nil}
		if err != nil {
			x.Where = strings.TrimPrefix(err.Error(), "offload: ")
		} else {
			x.Where = p.String()
		}
		list = append(list, x)
	}
	var names []string
	for i := range devices {
		d := &devices[i]
		if d.Missing != "" || d.Name == host.Name {
			continue
		}
		x := Side{Name: d.Name, Free: d.Free, Size: d.WeightBytes}
		add(d.Name, Machine{x})
		x.Named = true
		all, names = append(all, x), append(names, d.Name)
	}
	if len(all) > 1 && want.Layers == Auto {
		add(strings.Join(names, ","), all)
	}
	return list
}
