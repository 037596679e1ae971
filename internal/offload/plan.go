package offload

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// Want is the requested placement. The zero value leaves it to the plan.
type Want struct {
	Layers     int  // on the device, the last ones; more than the model has: all; Auto or None
	CPUExperts bool // the experts of all layers stay on the host
}

const (
	// Auto is the fastest number of layers.
	Auto = 0
	// None computes everything on the host.
	None = -1
)

// Side is a device in a plan.
type Side struct {
	Name      string
	Free      int64         // bytes
	Bandwidth float64       // bytes read per second; 0: not known
	RoundTrip time.Duration // of a token's row to the device and back
	Host      bool          // the processor of this machine, which gets what other devices have no memory for
	Named     bool          // it computes at least one layer: the user named it beside others
	// Size is the memory of a matrix on the device; nil: as on the host.
	Size func(m *dtype.Matrix) int64
}

// Machine is the devices for a model, one of which is the host. The last layers are on the first of those that have any,
// with output and head, and the first layers on the last.
type Machine []Side

// host is the index of the host.
func (m Machine) host() int { return slices.IndexFunc(m, func(s Side) bool { return s.Host }) }

// hop is the time that a token's row takes from one device to another: half of its way to each and back.
func (m Machine) hop(from, to int) float64 {
	if from == to {
		return 0
	}
	return (m[from].RoundTrip + m[to].RoundTrip).Seconds() / 2
}

// Plan is the placement of the parts of a model.
type Plan struct {
	Layers  int // of the model
	Machine Machine
	Token   time.Duration // predicted time of a token; 0: not known

	at   map[backend.Part]int // the device of a part
	core int                  // the device of output and head, and of what is not in at
	need *Need
}

// Place is the device that computes a part.
func (p *Plan) Place(x backend.Part) int {
	if i, ok := p.at[x]; ok {
		return i
	}
	return p.core
}

// Whole reports whether all parts are on one device, and on which.
func (p *Plan) Whole() (at int, whole bool) {
	for x := range p.need.Parts {
		if p.Place(x) != p.core {
			return 0, false
		}
	}
	return p.core, true
}

// reserve is the part of a device's free memory that stays free, 1/reserve: for its kernels, and for
// fragmentation.
const reserve = 20

func (s *Side) limit() int64 { return s.Free - s.Free/reserve }

// takes is the memory of a device that is in use, in bytes.
func (p *Plan) takes(at int) int64 {
	n := int64(0)
	computes := false
	for x, s := range p.need.Parts {
		if p.Place(x) == at {
			s = s.on(&p.Machine[at])
			n += s.Weights + s.State
			computes = computes || x.Kind == backend.LayerPart || x.Kind == backend.ExpertsPart || x.Kind == backend.HeadPart
		}
	}
	if computes {
		n += p.need.Work
	}
	if p.core == at {
		n += p.need.Logits
	}
	return n
}

// fits reports whether a device has memory for its parts.
func (p *Plan) fits(at int) bool { return p.takes(at) <= p.Machine[at].limit() }

// New plans the placement of the parts of a model.
func New(n *Need, want Want, on Machine) (*Plan, error) {
	if want.CPUExperts && !n.experts() {
		return nil, errors.New("offload: the model has no experts to keep on the host")
	}
	on = slices.Clone(on)
	known := !slices.ContainsFunc(on, func(s Side) bool { return s.Bandwidth == 0 })
	for i := range on {
		if on[i].Host && !known {
			on[i].Bandwidth, on[i].RoundTrip = usualHost, 0
		} else if !known {
			on[i].Bandwidth, on[i].RoundTrip = usualDevice, 0
		}
	}
	best := newSearch(n, want, on, 1).best()
	if best == nil {
		return nil, unfit{n.refuse(want, on)}
	}
	p := balanced(n, want, on, best).plan(n, on)
	if !known {
		p.Token = 0
	}
	return p, nil
}

// balanced is a placement that takes hardly longer than the best, of which the fullest device is emptier: devices that are
// equally fast get equal shares, so that sequences find memory on all.
func balanced(n *Need, want Want, on Machine, best *stage) *stage {
	const worth = 1.02
	devices := slices.DeleteFunc(best.devices(), func(i int) bool { return on[i].Host && !on[i].Named })
	if len(devices) < 2 {
		return best
	}
	limit, low, high := worth*best.time, 0.0, 0.0
	p := best.plan(n, on)
	for _, i := range devices {
		high = max(high, float64(p.takes(i))/float64(on[i].limit()))
	}
	for range 8 {
		part := (low + high) / 2
		if x := newSearch(n, want, on, part).best(); x != nil && x.time <= limit {
			best, high = x, part
		} else {
			low = part
		}
	}
	return best
}

// The bandwidths of a plan where nothing was measured, in bytes per second.
const (
	usualDevice = 500e9
	usualHost   = 50e9
)

// unfit marks the error of refuse.
type unfit struct{ error }

// refuse is the error for a model that fits nowhere, or not as requested.
func (n *Need) refuse(want Want, on Machine) error {
	for i := range on {
		least, with := n.leastLayer(&on[i]), "one layer"
		if i == 0 {
			core, _ := (&search{need: n}).core(&on[i])
			least, with = least+core, "one layer with output and head"
		}
		if on[i].Named && least > on[i].limit() {
			return fmt.Errorf("offload: %s has %s free, too little for %s, which takes %s: leave the device out of the list", on[i].Name, inGB(on[i].Free), with, inGB(least))
		}
	}
	t := n.total()
	free := fmt.Sprintf("%s has %s free", on[0].Name, inGB(on[0].Free))
	for i := range on[1:] {
		with := ", "
		if i == len(on)-2 {
			with = " and "
		}
		free += with + on[i+1].Name + " " + inGB(on[i+1].Free)
	}
	numbers := fmt.Sprintf("%s of weights, %s for sequences of up to %d tokens and %s of activations; %s",
		inGB(t.Weights), inGB(t.State), n.Context, inGB(n.Work+n.Logits), free)
	const remedy = "load fewer bits (--quantize 4), a shorter --context or --kv-bits 8"
	if want.Layers == Auto && !want.CPUExperts {
		return fmt.Errorf("offload: the model does not fit into memory: it has %s; 5 %% of the memory must stay free: %s", numbers, remedy)
	}
	asked := "its experts on the host"
	if want.Layers == None {
		asked = "all of it on the host"
	} else if want.Layers > 0 {
		asked = fmt.Sprintf("%d of its %d layers on the device", min(want.Layers, n.Layers), n.Layers)
		if want.CPUExperts {
			asked += " and its experts on the host"
		}
	}
	advice := remedy
	if p, err := New(n, Want{}, on); err == nil {
		_, layers := p.parts(0)
		advice = fmt.Sprintf("--gpu-layers auto puts %d layers on the device; or %s", layers, remedy)
	}
	return fmt.Errorf("offload: the model does not fit with %s: it has %s: %s", asked, numbers, advice)
}

// leastLayer is the memory of the smallest layer on a device, with its activations.
func (n *Need) leastLayer(on *Side) int64 {
	least := int64(math.MaxInt64)
	for x, s := range n.Parts {
		if x.Kind == backend.LayerPart {
			own, experts := s.on(on), n.Parts[backend.Part{Kind: backend.ExpertsPart, Layer: x.Layer}].on(on)
			least = min(least, own.Weights+own.State+experts.Weights+n.Work)
		}
	}
	return least
}

// inGB is bytes for people.
func inGB(bytes int64) string {
	if bytes < 1e9 {
		return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(bytes)/1e9)
}

// Use is the part of a model on one device.
type Use struct {
	Name    string
	Layers  int      // how many
	Parts   []string // for people
	Weights int64    // bytes
	State   int64    // bytes, for the planned sequences
}

// Uses are the parts of all devices in their order; one without parts is left out.
func (p *Plan) Uses() []Use {
	var list []Use
	for i := range p.Machine {
		u := Use{Name: p.Machine[i].Name}
		for x, s := range p.need.Parts {
			if p.Place(x) == i {
				s = s.on(&p.Machine[i])
				u.Weights, u.State = u.Weights+s.Weights, u.State+s.State
			}
		}
		u.Parts, u.Layers = p.parts(i)
		if len(u.Parts) > 0 {
			list = append(list, u)
		}
	}
	return list
}

// parts names the parts of a device.
func (p *Plan) parts(at int) (names []string, layers int) {
	var own, experts []int
	for x := range p.need.Parts {
		switch {
		case p.Place(x) != at:
		case x.Kind == backend.LayerPart:
			own = append(own, x.Layer)
		case x.Kind == backend.ExpertsPart && p.Place(backend.Part{Kind: backend.LayerPart, Layer: x.Layer}) != at:
			experts = append(experts, x.Layer)
		}
	}
	if len(own) > 0 {
		names = append(names, "layers "+weights.Ranges(own))
	}
	if len(experts) > 0 {
		names = append(names, "experts of layers "+weights.Ranges(experts))
	}
	for _, x := range []struct {
		kind backend.PartKind
		name string
	}{{backend.EmbeddingPart, "embedding"}, {backend.OutputPart, "output"}, {backend.HeadPart, "head"}, {backend.TowerPart, "vision tower"}} {
		part := backend.Part{Kind: x.kind}
		if _, ok := p.need.Parts[part]; ok && p.Place(part) == at {
			names = append(names, x.name)
		}
	}
	return names, len(own)
}

// String is the plan in one line.
func (p *Plan) String() string {
	var sides []string
	for _, u := range p.Uses() {
		sides = append(sides, fmt.Sprintf("%s on %s, %s", strings.Join(u.Parts, ", "), u.Name, inGB(u.Weights)))
	}
	text := strings.Join(sides, "; ")
	if p.Token > 0 {
		text += fmt.Sprintf("; about %.1f ms a token", p.Token.Seconds()*1e3)
	}
	return text
}
