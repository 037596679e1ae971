package offload

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
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
	Free      int64   // bytes
	Bandwidth float64 // bytes read per second; 0: not known
}

// Machine is the two devices for a model.
type Machine struct {
	Device, Host Side
	Border       time.Duration // of a transfer of a token's row between the two
}

// Plan is the placement of the parts of a model.
type Plan struct {
	Layers  int // of the model
	Machine Machine
	Token   time.Duration // predicted time of a token; 0: not known

	first   int  // layers from there on are on the device
	experts int  // and from there on their experts
	core    bool // output and head are
	embed   bool // and the embedding
	tower   bool
	need    *Need
}

// OnHost reports whether a part is computed by the host.
func (p *Plan) OnHost(x backend.Part) bool {
	switch x.Kind {
	case backend.LayerPart:
		return x.Layer < p.first
	case backend.ExpertsPart:
		return x.Layer < p.experts
	case backend.EmbeddingPart:
		return !p.embed
	case backend.TowerPart:
		return !p.tower
	}
	return !p.core
}

// Whole reports whether all parts are on one side, and on which.
func (p *Plan) Whole() (whole, onHost bool) {
	some, all := false, true
	for x := range p.need.Parts {
		h := p.OnHost(x)
		some, all = some || h, all && h
	}
	return some == all, all
}

// reserve is the part of a device's free memory that stays free, 1/reserve: for its kernels, and for
// fragmentation.
const reserve = 20

// takes is the memory of a side, in bytes.
func (p *Plan) takes(onHost bool) int64 {
	n := int64(0)
	computes := false
	for x, s := range p.need.Parts {
		if p.OnHost(x) == onHost {
			s = s.on(onHost)
			n += s.Weights + s.State
			computes = computes || x.Kind == backend.LayerPart || x.Kind == backend.ExpertsPart || x.Kind == backend.HeadPart
		}
	}
	if computes {
		n += p.need.Work
	}
	if p.core != onHost {
		n += p.need.Logits
	}
	return n
}

// fits reports whether a side has memory for its parts.
func (p *Plan) fits(onHost bool) bool {
	free := p.Machine.Device.Free
	if onHost {
		free = p.Machine.Host.Free
	}
	return p.takes(onHost) <= free-free/reserve
}

// crossings is how often a token's row changes sides, in the model and, for a draft, in the head.
func (p *Plan) crossings() int {
	n := 0
	embedding := p.OnHost(backend.Part{Kind: backend.EmbeddingPart})
	at := embedding
	visit := func(x backend.Part) {
		if _, ok := p.need.Parts[x]; ok && p.OnHost(x) != at {
			at = !at
			n++
		}
	}
	for i := range p.Layers {
		visit(backend.Part{Kind: backend.LayerPart, Layer: i})
		visit(backend.Part{Kind: backend.ExpertsPart, Layer: i})
	}
	visit(backend.Part{Kind: backend.OutputPart})
	at = embedding
	visit(backend.Part{Kind: backend.HeadPart})
	return n
}

// time is the predicted time of a token.
func (p *Plan) time() time.Duration {
	seconds := float64(p.crossings()) * p.Machine.Border.Seconds()
	for x, s := range p.need.Parts {
		side := &p.Machine.Device
		if p.OnHost(x) {
			side = &p.Machine.Host
		}
		if side.Bandwidth > 0 && x.Kind != backend.TowerPart && x.Kind != backend.HeadPart {
			seconds += float64(s.on(p.OnHost(x)).Pass) / side.Bandwidth
		}
	}
	return time.Duration(seconds * float64(time.Second))
}

// New plans the placement of the parts of a model.
func New(n *Need, want Want, on Machine) (*Plan, error) {
	if want.CPUExperts && !n.experts() {
		return nil, fmt.Errorf("offload: the model has no experts to keep on the host")
	}
	fewest, most := 0, n.Layers
	if want.Layers != Auto {
		most = min(max(want.Layers, 0), n.Layers) // None: no layers
		fewest = most
	}
	known := on.Device.Bandwidth > 0 && on.Host.Bandwidth > 0
	if !known {
		on.Device.Bandwidth, on.Host.Bandwidth = usualDevice, usualHost
	}
	var best *Plan
	for k := most; k >= fewest; k-- {
		for _, p := range n.candidates(k, want, on) {
			p.Token = p.time()
			if p.fits(true) && p.fits(false) && (best == nil || p.Token < best.Token) {
				best = p
			}
		}
	}
	if best == nil {
		return nil, n.refuse(want, on)
	}
	if !known {
		best.Token = 0
	}
	return best, nil
}

// The bandwidths of a plan where nothing was measured, in bytes per second.
const (
	usualDevice = 500e9
	usualHost   = 50e9
)

// candidates are the placements with k layers on the device: with the experts of all of them, of some,
// and of none.
func (n *Need) candidates(k int, want Want, on Machine) []*Plan {
	first := n.Layers - k
	starts := []int{first}
	if n.experts() {
		starts = nil
		for i := first; i <= n.Layers; i++ {
			starts = append(starts, i)
		}
	}
	if want.CPUExperts {
		starts = []int{n.Layers}
	}
	var list []*Plan
	for _, experts := range starts {
		p := &Plan{Layers: n.Layers, Machine: on, need: n, first: first, experts: experts, core: k > 0}
		p.embed = p.core && n.Tied
		// The following parts gain less than a layer, and get the memory that the layers leave.
		if p.core && !p.embed {
			p.embed = true
			p.embed = p.fits(false)
		}
		if p.core {
			p.tower = true
			p.tower = p.fits(false)
		}
		list = append(list, p)
	}
	return list
}

// refuse is the error for a model that fits nowhere, or not as requested.
func (n *Need) refuse(want Want, on Machine) error {
	t := n.total()
	numbers := fmt.Sprintf("%s of weights, %s for sequences of up to %d tokens and %s of activations; %s has %s free and %s %s",
		inGB(t.Weights), inGB(t.State), n.Context, inGB(n.Work+n.Logits), on.Device.Name, inGB(on.Device.Free), on.Host.Name, inGB(on.Host.Free))
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
		advice = fmt.Sprintf("--gpu-layers auto puts %d layers on the device; or %s", p.Layers-p.first, remedy)
	}
	return fmt.Errorf("offload: the model does not fit with %s: it has %s: %s", asked, numbers, advice)
}

// inGB is bytes for people.
func inGB(bytes int64) string {
	if bytes < 1e9 {
		return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(bytes)/1e9)
}

// Use is the part of a model on one side.
type Use struct {
	Name    string
	Layers  int      // how many
	Parts   []string // for people
	Weights int64    // bytes
	State   int64    // bytes, for the planned sequences
}

// Uses are the parts of both sides, the device first; an empty side is left out.
func (p *Plan) Uses() []Use {
	var list []Use
	for _, onHost := range []bool{false, true} {
		u := Use{Name: p.Machine.Device.Name}
		if onHost {
			u.Name = p.Machine.Host.Name
		}
		for x, s := range p.need.Parts {
			if p.OnHost(x) == onHost {
				s = s.on(onHost)
				u.Weights, u.State = u.Weights+s.Weights, u.State+s.State
			}
		}
		u.Parts, u.Layers = p.parts(onHost)
		if len(u.Parts) > 0 {
			list = append(list, u)
		}
	}
	return list
}

// parts names the parts of a side.
func (p *Plan) parts(onHost bool) (names []string, layers int) {
	var own, experts []int
	for x := range p.need.Parts {
		switch {
		case p.OnHost(x) != onHost:
		case x.Kind == backend.LayerPart:
			own = append(own, x.Layer)
		case x.Kind == backend.ExpertsPart && p.OnHost(backend.Part{Kind: backend.LayerPart, Layer: x.Layer}) != onHost:
			experts = append(experts, x.Layer)
		}
	}
	if len(own) > 0 {
		names = append(names, "layers "+span(own))
	}
	if len(experts) > 0 {
		names = append(names, "experts of layers "+span(experts))
	}
	for _, x := range []struct {
		kind backend.PartKind
		name string
	}{{backend.EmbeddingPart, "embedding"}, {backend.OutputPart, "output"}, {backend.HeadPart, "head"}, {backend.TowerPart, "vision tower"}} {
		part := backend.Part{Kind: x.kind}
		if _, ok := p.need.Parts[part]; ok && p.OnHost(part) == onHost {
			names = append(names, x.name)
		}
	}
	return names, len(own)
}

// span is the first and the last of a list of numbers that follow each other.
func span(list []int) string {
	from, to := slices.Min(list), slices.Max(list)
	if from == to {
		return fmt.Sprint(from)
	}
	return fmt.Sprintf("%d-%d", from, to)
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
