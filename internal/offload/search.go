package offload

import (
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
)

// search finds the placement with the least time per token. It places the layers device by device, from the last on,
// and keeps of equal layers those stages of which no other is faster and takes less of the host.
type search struct {
	need   *Need
	want   Want
	on     Machine
	host   int
	limits []int64
	parts  [][]shares // by device and layer
	fronts map[state][]*stage
	ends   []*stage
}

// shares are a layer and its experts on a device.
type shares struct{ own, experts Share }

// state is what later stages need to know of earlier ones.
type state struct {
	left int // layers that have no place yet
	last int // the last device with layers; none: -1
}

// stage is the layers of one device, after those of earlier stages.
type stage struct {
	before      *stage // nil: none
	device      int
	from, to    int  // layers
	apart       int  // the experts of layers before it are on the host
	embed       bool // the embedding is here; otherwise it is on the host. Of the first stage, as the next
	tower       bool
	time        float64 // seconds of a token, up to here
	memory      int64   // bytes of the host, up to here
	hostWorking bool    // the host has activations
}

// newSearch is a search in which devices have a part of their memory for layers: all but a host that is only there for
// the rest.
func newSearch(n *Need, want Want, on Machine, part float64) *search {
	x := &search{need: n, want: want, on: on, host: on.host(), fronts: map[state][]*stage{}}
	for i := range on {
		limit := on[i].limit()
		if i != x.host || on[i].Named {
			limit = int64(part * float64(limit))
		}
		x.limits = append(x.limits, limit)
		list := make([]shares, n.Layers)
		for l := range list {
			list[l] = shares{
				n.Parts[backend.Part{Kind: backend.LayerPart, Layer: l}].on(&on[i]),
				n.Parts[backend.Part{Kind: backend.ExpertsPart, Layer: l}].on(&on[i]),
			}
		}
		x.parts = append(x.parts, list)
	}
	return x
}

// best is the last stage of the best placement; nil: there is none.
func (x *search) best() (best *stage) {
	x.fronts[state{x.need.Layers, -1}] = []*stage{nil}
	for i := range x.on {
		for last := -1; last < i; last++ {
			for left := x.need.Layers; left > 0; left-- {
				for _, before := range x.fronts[state{left, last}] {
					x.extend(before, i, left)
				}
			}
		}
		if x.on[i].Named { // it has layers in every placement
			for s := range x.fronts {
				if s.last != i {
					delete(x.fronts, s)
				}
			}
			x.ends = slices.DeleteFunc(x.ends, func(s *stage) bool { return s.device != i })
		}
	}
	for _, s := range x.ends {
		if best == nil || s.time < best.time {
			best = s
		}
	}
	return best
}

// extend adds the stages of a device after another.
func (x *search) extend(before *stage, device, left int) {
	fewest, most := 1, left
	if k := x.want.Layers; k != Auto && device != x.host {
		fewest = min(max(k, 0), left)
		most = fewest
	} else if k != Auto && before == nil && k > 0 {
		return // the other device has some
	}
	for k := most; k >= max(fewest, 1); k-- {
		s := x.stage(before, device, left-k, left)
		if s == nil || s.memory > x.limits[x.host] {
			continue
		}
		if s.from == 0 {
			x.end(s)
			continue
		}
		x.keep(s)
	}
}

// keep adds a stage to its front, unless another is better.
func (x *search) keep(s *stage) {
	at := state{s.from, s.device}
	worse := func(a, b *stage) bool {
		return a.time >= b.time && a.memory >= b.memory && (a.hostWorking || !b.hostWorking)
	}
	front := x.fronts[at]
	if slices.ContainsFunc(front, func(o *stage) bool { return worse(s, o) }) {
		return
	}
	x.fronts[at] = append(slices.DeleteFunc(front, func(o *stage) bool { return worse(o, s) }), s)
}

// end adds what a complete placement costs beside its stages: the way of a row from the embedding to the first layers, and
// to the head.
func (x *search) end(s *stage) {
	first := s.first()
	at := x.host
	if first.embed {
		at = first.device
	}
	s.time += x.on.hop(at, s.device)
	if _, ok := x.need.Parts[backend.Part{Kind: backend.HeadPart}]; ok {
		s.time += x.on.hop(at, first.device)
	}
	e := x.need.Parts[backend.Part{Kind: backend.EmbeddingPart}].on(&x.on[at])
	s.time += float64(e.Pass) / x.on[at].Bandwidth
	x.ends = append(x.ends, s)
}

// stage has a device compute layers [from, to). It is nil if the device has no memory for them.
func (x *search) stage(before *stage, device, from, to int) *stage {
	s := &stage{before: before, device: device, from: from, to: to, apart: from}
	side, own := &x.on[device], x.parts[device]
	bytes, pass := x.need.Work, int64(0)
	for l := from; l < to; l++ {
		bytes += own[l].own.Weights + own[l].own.State + own[l].experts.Weights + own[l].experts.State
		pass += own[l].own.Pass + own[l].experts.Pass
	}
	if before != nil {
		s.time, s.memory, s.hostWorking = before.time+x.on.hop(device, before.device), before.memory, before.hostWorking
	} else {
		more, read := x.core(side)
		bytes, pass = bytes+more, pass+read
	}
	limit := x.limits[device]
	if device == x.host {
		if s.hostWorking {
			bytes -= x.need.Work
		}
		s.hostWorking, s.memory = true, s.memory+bytes
		if before == nil {
			s.embed, s.tower = true, true
			s.memory += x.rest(device, true, true)
		}
		s.time += float64(pass) / side.Bandwidth
		return s
	}
	// As few experts as possible are apart.
	for s.apart < to && (bytes > limit || x.want.CPUExperts) {
		l := s.apart
		s.apart++
		if e, there := own[l].experts, x.parts[x.host][l].experts; e.Weights > 0 {
			bytes, pass = bytes-e.Weights-e.State, pass-e.Pass
			s.memory += there.Weights + there.State
			s.time += float64(there.Pass)/x.on[x.host].Bandwidth + 2*x.on.hop(device, x.host)
			if !s.hostWorking {
				s.hostWorking, s.memory = true, s.memory+x.need.Work
			}
		}
	}
	if bytes > limit {
		return nil
	}
	s.time += float64(pass) / side.Bandwidth
	if before == nil { // the following parts gain less than a layer, and get the memory that the layers leave
		limit = side.limit()
		s.embed = x.need.Tied || bytes+x.rest(device, true, false) <= limit
		if s.embed && !x.need.Tied {
			bytes += x.rest(device, true, false)
		}
		s.tower = bytes+x.rest(device, false, true) <= limit
		s.memory += x.rest(x.host, !s.embed, !s.tower)
	}
	return s
}

// core is the bytes and the reads of what is with the last layers.
func (x *search) core(side *Side) (bytes, pass int64) {
	out, head := x.need.Parts[backend.Part{Kind: backend.OutputPart}].on(side), x.need.Parts[backend.Part{Kind: backend.HeadPart}].on(side)
	bytes, pass = x.need.Logits+out.Weights+out.State+head.Weights+head.State, out.Pass
	if x.need.Tied && !side.Host {
		e := x.need.Parts[backend.Part{Kind: backend.EmbeddingPart}].on(side)
		bytes += e.Weights
	}
	return bytes, pass
}

// rest is the bytes of embedding and tower on a device.
func (x *search) rest(device int, embed, tower bool) (bytes int64) {
	if embed {
		bytes += x.need.Parts[backend.Part{Kind: backend.EmbeddingPart}].on(&x.on[device]).Weights
	}
	if tower {
		bytes += x.need.Parts[backend.Part{Kind: backend.TowerPart}].on(&x.on[device]).Weights
	}
	return bytes
}

// first is the first stage of a placement: that of the last layers.
func (s *stage) first() *stage {
	for s.before != nil {
		s = s.before
	}
	return s
}

// devices are those with layers.
func (s *stage) devices() (list []int) {
	for ; s != nil; s = s.before {
		list = append(list, s.device)
	}
	return list
}

// plan is the placement up to a stage.
func (s *stage) plan(n *Need, on Machine) *Plan {
	first, host := s.first(), on.host()
	p := &Plan{Layers: n.Layers, Machine: on, Token: time.Duration(s.time * float64(time.Second)), at: map[backend.Part]int{}, core: first.device, need: n}
	for ; s != nil; s = s.before {
		for l := s.from; l < s.to; l++ {
			p.at[backend.Part{Kind: backend.LayerPart, Layer: l}] = s.device
			p.at[backend.Part{Kind: backend.ExpertsPart, Layer: l}] = s.device
			if l < s.apart {
				p.at[backend.Part{Kind: backend.ExpertsPart, Layer: l}] = host
			}
		}
	}
	if !first.embed {
		p.at[backend.Part{Kind: backend.EmbeddingPart}] = host
	}
	if !first.tower {
		p.at[backend.Part{Kind: backend.TowerPart}] = host
	}
	return p
}
