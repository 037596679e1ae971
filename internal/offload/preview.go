package offload

import (
	"cmp"
	"errors"
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
		list = append(list, preview(name, p, err))
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

// PreviewBeside is the placement by For of a model on devices with More, which it opens, measures and closes. An error is that of a
// device; that the model does not fit is in the preview.
func PreviewBeside(s *weights.Survey, on Devices, want Want, o Options) (Preview, error) {
	b, p, err := open(func() *weights.Survey { return s }, on, want, o)
	if err == nil {
		err = b.Close()
	}
	if no := (unfit{}); err != nil && !errors.As(err, &no) {
		return Preview{}, err
	}
	return preview(cmp.Or(on.Name, backend.Auto), p, err), nil
}

// preview is that of a plan, or of the reason why there is none.
func preview(name string, p *Plan, err error) Preview {
	if err != nil {
		return Preview{name, false, strings.TrimPrefix(err.Error(), "offload: ")}
	}
	return Preview{name, true, p.String()}
}
