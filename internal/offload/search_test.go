package offload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// gpus are devices of some gigabytes, all equally fast, and the host.
func gpus(host float64, list ...float64) Machine {
	var on Machine
	for i, free := range list {
		on = append(on, Side{Name: fmt.Sprintf("gpu%d", i), Free: int64(free * gb), Bandwidth: 1000e9, RoundTrip: 40 * time.Microsecond})
	}
	return append(on, Side{Name: "cpu", Free: int64(host * gb), Bandwidth: 50e9, Host: true})
}

// named has the user name all devices but the host.
func named(on Machine) Machine {
	for i := range on {
		on[i].Named = !on[i].Host
	}
	return on
}

// TestPlanOfSeveral has models on several devices.
func TestPlanOfSeveral(t *testing.T) {
	slow := named(gpus(64, 24, 24))
	slow[1].Bandwidth, slow[1].RoundTrip = 100e9, 2*time.Millisecond
	leader := Machine{
		{Name: "cpu", Free: 64 * gb, Bandwidth: 50e9, Host: true, Named: true},
		{Name: "node", Free: 64 * gb, Bandwidth: 50e9, RoundTrip: time.Millisecond, Named: true},
	}
	small := named(gpus(64, 24, 1))
	tied := dense()
	tied.Tied = true
	for _, c := range []struct {
		name string
		need *Need
		on   Machine
		plan string
	}{
		{"one has room: others are not used", dense(), gpus(64, 24, 24), "layers 0-9, embedding, output, head, vision tower on gpu0"},
		{"two instead of the host", dense(), gpus(64, 9, 9), "layers 6-9, embedding, output, head, vision tower on gpu0; layers 0-5 on gpu1"},
		{"two and the host", dense(), gpus(64, 5, 5), "layers 8-9, output, head, vision tower on gpu0; layers 4-7 on gpu1; layers 0-3, embedding on cpu"},
		{"equal shares of two that were named", dense(), named(gpus(64, 24, 24)), "layers 6-9, embedding, output, head, vision tower on gpu0; layers 0-5 on gpu1"},
		{"three that were named", dense(), named(gpus(64, 24, 24, 24)), "layers 8-9, embedding, output, head, vision tower on gpu0; layers 4-7 on gpu1; layers 0-3 on gpu2"},
		{"a slow one gets as little as possible", dense(), slow, "layers 1-9, embedding, output, head, vision tower on gpu0; layers 0 on gpu1"},
		{"a leader without a GPU", dense(), leader, "layers 6-9, embedding, output, head, vision tower on cpu; layers 0-5 on node"},
		{"experts apart", mixture(), gpus(64, 9, 9), "layers 7-9, output, head on gpu0; layers 0-6 on gpu1; experts of layers 0-3, embedding, vision tower on cpu"},
		{"tied", tied, named(gpus(64, 24, 24)), "layers 6-9, embedding, output, head, vision tower on gpu0; layers 0-5 on gpu1"},
		{"too small", dense(), small, "!gpu1 has 1.0 GB free, too little for one layer, which takes 1.2 GB: leave the device out of the list"},
		{"nowhere", dense(), gpus(3, 3, 3), "!the model does not fit into memory: it has 13.0 GB of weights, 1.1 GB for sequences of up to 4096 tokens and 110.0 MB of activations; gpu0 has 3.0 GB free, gpu1 3.0 GB and cpu 3.0 GB; 5 % of the memory must stay free: load fewer bits (--quantize 4), a shorter --context or --kv-bits 8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := New(c.need, Want{}, c.on)
			if err != nil {
				if got := "!" + strings.TrimPrefix(err.Error(), "offload: "); got != c.plan {
					t.Errorf("error %q, want %q", got, c.plan)
				}
				return
			}
			var sides []string
			for _, u := range p.Uses() {
				sides = append(sides, fmt.Sprintf("%s on %s", strings.Join(u.Parts, ", "), u.Name))
			}
			if got := strings.Join(sides, "; "); got != c.plan {
				t.Errorf("plan %q, want %q", got, c.plan)
			}
			for i := range c.on {
				if !p.fits(i) {
					t.Errorf("does not fit: %s", p)
				}
			}
		})
	}
}

// TestSearchFindsTheBest compares plans with all placements there are, for small models on random machines.
func TestSearchFindsTheBest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found, none := 0, 0
	for range 60 {
		n := dense()
		if r.IntN(2) == 0 {
			n = mixture()
		}
		n.Layers = 5
		for x := range n.Parts {
			if x.Layer >= n.Layers {
				delete(n.Parts, x)
			}
		}
		on := gpus(2+r.Float64()*8, 1+r.Float64()*6, 1+r.Float64()*6, 1+r.Float64()*6)[r.IntN(3):]
		for i := range on {
			if !on[i].Host {
				on[i].Bandwidth, on[i].RoundTrip = 100e9+r.Float64()*900e9, time.Duration(r.IntN(1000))*time.Microsecond
			}
		}
		want := everyPlan(n, on)
		got := newSearch(n, Want{}, on, 1).best()
		if got == nil != math.IsInf(want, 1) {
			t.Fatalf("%v: found %v, best %v", on, got, want)
		}
		if got == nil {
			none++
			continue
		}
		found++
		p := got.plan(n, on)
		if math.Abs(got.time-want) > 1e-9 || math.Abs(timeOf(p)-want) > 1e-9 {
			t.Errorf("%v: %s, %v s, by its parts %v; the best takes %v", on, p, got.time, timeOf(p), want)
		}
	}
	if found < 20 || none < 2 {
		t.Errorf("%d plans, %d machines too small", found, none)
	}
}

// everyPlan is the least time of all placements: layers in order, experts apart where they may be.
func everyPlan(n *Need, on Machine) float64 {
	best := math.Inf(1)
	host := on.host()
	var place func(p *Plan, device, left int)
	leaf := func(p *Plan) {
		for parts := range 4 {
			p.at[backend.Part{Kind: backend.EmbeddingPart}] = []int{p.core, host}[parts%2]
			p.at[backend.Part{Kind: backend.TowerPart}] = []int{p.core, host}[parts/2]
			fits := true
			for i := range on {
				fits = fits && p.fits(i)
			}
			if fits {
				best = min(best, timeOf(p))
			}
		}
	}
	place = func(p *Plan, device, left int) {
		if left == 0 {
			leaf(p)
			return
		}
		if device == len(on) {
			return
		}
		place(p, device+1, left)
		core := p.core
		for from := range left {
			for apart := from; apart <= left; apart++ {
				for l := from; l < left; l++ {
					p.at[backend.Part{Kind: backend.LayerPart, Layer: l}] = device
					p.at[backend.Part{Kind: backend.ExpertsPart, Layer: l}] = device
					if l < apart {
						p.at[backend.Part{Kind: backend.ExpertsPart, Layer: l}] = host
					}
				}
				if p.core < 0 {
					p.core = device
				}
				place(p, device+1, from)
				p.core = core
				if !n.experts() || device == host {
					break
				}
			}
		}
	}
	place(&Plan{Layers: n.Layers, Machine: on, need: n, at: map[backend.Part]int{}, core: -1}, 0, n.Layers)
	return best
}

// timeOf is the time of a token by where its row goes.
func timeOf(p *Plan) float64 {
	way := []backend.Part{{Kind: backend.EmbeddingPart}}
	for l := range p.Layers {
		way = append(way, backend.Part{Kind: backend.LayerPart, Layer: l})
		if x := (backend.Part{Kind: backend.ExpertsPart, Layer: l}); p.need.Parts[x].Weights > 0 {
			way = append(way, x)
		}
	}
	way = append(way, backend.Part{Kind: backend.OutputPart})
	seconds := p.Machine.hop(p.Place(way[0]), p.Place(backend.Part{Kind: backend.HeadPart}))
	for i, x := range way {
		at := p.Place(x)
		seconds += float64(p.need.Parts[x].Pass) / p.Machine[at].Bandwidth
		if i > 0 {
			seconds += p.Machine.hop(p.Place(way[i-1]), at)
		}
	}
	return seconds
}

// TestOpenSeveral opens lists of devices, and devices that a caller opens.
func TestOpenSeveral(t *testing.T) {
	how := backend.Options{Threads: 1}
	calls := 0
	more := func() (backend.Backend, error) {
		calls++
		b, err := backend.Open("cpu", how)
		return backendtest.NewOpaque(b), err
	}
	closed := 0
	failing := func() (backend.Backend, error) { return nil, fmt.Errorf("no such node") }
	counted := func() (backend.Backend, error) {
		b, err := more()
		return &closing{b, &closed}, err
	}
	for _, c := range []struct {
		on   Devices
		want Want
		plan string
	}{
		{Devices{Name: "opaque, opaque"}, Want{}, "opaque cpu * and opaque cpu *"},
		{Devices{Name: "cpu", More: []func() (backend.Backend, error){more, more}}, Want{}, "cpu *, opaque cpu * and opaque cpu *"},
		{Devices{Name: "opaque,cpu"}, Want{}, "opaque cpu * and cpu *"},
		{Devices{Name: "opaque,opaque"}, Want{Layers: 3}, "!offload: --gpu-layers is for one device: of several, the plan chooses the layers of each"},
		{Devices{Name: "cpu,cpu"}, Want{}, "!device cpu,cpu: the processor can be in the list once: its cores and its memory are the same"},
		{Devices{Name: "opaque,auto"}, Want{}, "!device opaque,auto: auto selects the devices itself and cannot be in a list"},
		{Devices{Name: "opaque,abacus"}, Want{}, "!device abacus: not available in this build; use auto or pair or cpu or opaque"},
		{Devices{Name: "opaque", More: []func() (backend.Backend, error){counted, failing}}, Want{}, "!no such node"},
	} {
		c.on.How = how
		b, p, err := ForShape("0.8b", weights.BitsForm(4), c.on, c.want, Options{Context: 64})
		if err != nil {
			if "!"+err.Error() != c.plan {
				t.Errorf("%s: error %q, want %q", c.on.Name, err, c.plan)
			}
			continue
		}
		kinds := strings.Count(b.Name(), "opaque")
		if want := strings.Count(c.plan, "opaque"); kinds != want || len(p.Uses()) != strings.Count(c.plan, "*") {
			t.Errorf("%s: %s, %s", c.on.Name, b.Name(), p)
		}
		var names []string
		for _, u := range p.Uses() {
			names = append(names, u.Name)
			if u.Layers == 0 {
				t.Errorf("%s: no layers on %s", c.on.Name, u.Name)
			}
		}
		slices.Sort(names)
		if len(slices.Compact(names)) != len(p.Uses()) {
			t.Errorf("names are equal: %v", names)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if calls != 3 || closed != 1 {
		t.Errorf("%d devices were opened by functions, %d closed after an error", calls, closed)
	}
}

func init() {
	backend.Register(backend.Device{
		Name: "pair", Rank: 9, Numbered: true, ISAs: func() []string { return nil },
		Probe: func() []backend.Info { return []backend.Info{{Memory: pairMemory}, {Memory: pairMemory}} },
		Open: func(o backend.Options) (backend.Backend, error) {
			b, err := backend.Open("cpu", backend.Options{Threads: 1})
			return &limited{backendtest.NewOpaque(b), pairMemory}, err
		},
	})
}

// pairMemory is the memory of each of two devices: one has not enough for 0.8b at 4 bits.
const pairMemory = 400e6

// TestAutoUsesAllGPUs has a model that is too large for the first GPU, with other devices beside and without.
func TestAutoUsesAllGPUs(t *testing.T) {
	more := func() (backend.Backend, error) {
		b, err := backend.Open("cpu", backend.Options{Threads: 1})
		return backendtest.NewOpaque(b), err
	}
	for _, c := range []struct {
		on      Devices
		want    Want
		devices int
	}{
		{Devices{}, Want{}, 2},
		{Devices{Name: "auto"}, Want{Layers: 5}, 2}, // the first, and the CPU
		{Devices{Name: "pair"}, Want{}, 2},          // likewise
		{Devices{Name: "pair:1"}, Want{Layers: None}, 1},
		{Devices{Name: "pair:0,pair:1"}, Want{}, 2},
		{Devices{Name: "pair:1,pair:1"}, Want{}, 0}, // half of its memory for each is too little
		{Devices{More: []func() (backend.Backend, error){more}}, Want{}, 3},
	} {
		c.on.How.Threads = 1
		b, p, err := ForShape("0.8b", weights.BitsForm(4), c.on, c.want, Options{Context: 64, NoVision: true})
		if c.devices == 0 && err != nil && strings.Contains(err.Error(), " has 200.0 MB free, too little for one layer with output and head, which takes ") {
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if n := strings.Count(b.Name(), "cpu"); n != c.devices {
			t.Errorf("%q, %+v: %s computes: %s", c.on.Name, c.want, b.Name(), p)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A device with too little memory for a layer with output and head leaves all layers to those elsewhere, unless a list names it.
func TestSmallLeaderLeavesLayersToNodes(t *testing.T) {
	more := []func() (backend.Backend, error){func() (backend.Backend, error) { return backend.Open("cpu", backend.Options{Threads: 1}) }}
	for name, refused := range map[string]bool{"pair:0": false, "pair:0,pair:1": true} {
		b, p, err := ForShape("0.8b", weights.BitsForm(16), Devices{Name: name, How: backend.Options{Threads: 1}, More: more}, Want{}, Options{Context: 64, NoVision: true})
		if refused {
			if err == nil || !strings.Contains(err.Error(), "leave the device out of the list") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if strings.Contains(b.Name(), "opaque") || !strings.Contains(p.String(), "output") {
			t.Errorf("%s: %s", name, p)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// closing counts how often it is closed.
type closing struct {
	backend.Backend
	n *int
}

func (c *closing) Close() error {
	*c.n++
	return c.Backend.Close()
}
