package offload

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	_ "github.com/foretoken/foretoken/internal/model/drafter"
	_ "github.com/foretoken/foretoken/internal/model/glm"
	_ "github.com/foretoken/foretoken/internal/model/qwen35"
	"github.com/foretoken/foretoken/internal/model/weights"
)

func init() { backendtest.RegisterOpaque() }

const gb = 1_000_000_000

// dense is a model of ten layers of one gigabyte each, an embedding and an output matrix of one, and
// a head; sequences take a tenth as much.
func dense() *Need {
	n := &Need{Layers: 10, Context: 4096, Work: gb / 10, Logits: gb / 100, Parts: map[backend.Part]Share{
		{Kind: backend.EmbeddingPart}: {Weights: gb, Pass: 4096},
		{Kind: backend.OutputPart}:    {Weights: gb, Pass: gb},
		{Kind: backend.HeadPart}:      {Weights: gb / 2, Pass: gb / 2, State: gb / 10},
		{Kind: backend.TowerPart}:     {Weights: gb / 2, Pass: gb / 2},
	}}
	for i := range n.Layers {
		n.Parts[backend.Part{Kind: backend.LayerPart, Layer: i}] = Share{Weights: gb, Pass: gb, State: gb / 10}
	}
	return n
}

// mixture is a model of ten layers, a tenth of a gigabyte each, with two gigabytes of experts, of
// which a token reads a twentieth.
func mixture() *Need {
	n := dense()
	for i := range n.Layers {
		n.Parts[backend.Part{Kind: backend.LayerPart, Layer: i}] = Share{Weights: gb / 10, Pass: gb / 10, State: gb / 10}
		n.Parts[backend.Part{Kind: backend.ExpertsPart, Layer: i}] = Share{Weights: 2 * gb, Pass: gb / 10}
	}
	return n
}

// machine has device and host gigabytes of free memory.
func machine(device, host float64) Machine {
	return Machine{
		{Name: "gpu", Free: int64(device * gb), Bandwidth: 1000e9, RoundTrip: 40 * time.Microsecond},
		{Name: "cpu", Free: int64(host * gb), Bandwidth: 50e9, Host: true},
	}
}

// TestPlan has models and machines, and where the models go.
func TestPlan(t *testing.T) {
	slow := machine(9, 64)
	slow[0].Bandwidth = 20e9
	unknown := machine(9, 64) // the way to a device is not used where no rate is known
	unknown[0].Bandwidth, unknown[1].Bandwidth, unknown[0].RoundTrip = 0, 0, 2*time.Second
	tied := dense()
	tied.Tied = true
	tied.Parts[backend.Part{Kind: backend.EmbeddingPart}] = Share{Weights: gb, Pass: gb}
	tied.Parts[backend.Part{Kind: backend.OutputPart}] = Share{}
	far := machine(9, 64)
	far[0].RoundTrip = 2 * time.Second
	for _, c := range []struct {
		name string
		need *Need
		want Want
		on   Machine
		plan string // without the sizes; an error begins with "!"
	}{
		{"all of it fits", dense(), Want{}, machine(24, 64), "layers 0-9, embedding, output, head, vision tower on gpu"},
		{"some layers", dense(), Want{}, machine(9, 64), "layers 4-9, output, head on gpu; layers 0-3, embedding, vision tower on cpu"},
		{"a few bytes less", dense(), Want{}, machine(8.7, 64), "layers 5-9, embedding, output, head on gpu; layers 0-4, vision tower on cpu"},
		{"embedding and tower fill what is left", dense(), Want{}, machine(10.5, 64), "layers 3-9, output, head, vision tower on gpu; layers 0-2, embedding on cpu"},
		{"one layer", dense(), Want{}, machine(3.1, 64), "layers 9, output, head on gpu; layers 0-8, embedding, vision tower on cpu"},
		{"not one", dense(), Want{}, machine(2, 64), "layers 0-9, embedding, output, head, vision tower on cpu"},
		{"a device that is slower than the host", dense(), Want{}, slow, "layers 0-9, embedding, output, head, vision tower on cpu"},
		{"nothing was measured", dense(), Want{}, unknown, "layers 4-9, output, head on gpu; layers 0-3, embedding, vision tower on cpu"},
		{"the embedding is the output", tied, Want{}, machine(9, 64), "layers 4-9, embedding, output, head on gpu; layers 0-3, vision tower on cpu"},
		{"two layers", dense(), Want{Layers: 2}, machine(9, 64), "layers 8-9, embedding, output, head, vision tower on gpu; layers 0-7 on cpu"},
		{"more than there are", dense(), Want{Layers: 99}, machine(24, 64), "layers 0-9, embedding, output, head, vision tower on gpu"},
		{"too many", dense(), Want{Layers: 8}, machine(9, 64), "!the model does not fit with 8 of its 10 layers on the device: it has 13.0 GB of weights, 1.1 GB for sequences of up to 4096 tokens and 110.0 MB of activations; gpu has 9.0 GB free and cpu 64.0 GB: --gpu-layers auto puts 6 layers on the device; or load fewer bits (--quantize 4), a shorter --context or --kv-bits 8"},
		{"nowhere", dense(), Want{}, machine(6, 6), "!the model does not fit into memory: it has 13.0 GB of weights, 1.1 GB for sequences of up to 4096 tokens and 110.0 MB of activations; gpu has 6.0 GB free and cpu 6.0 GB; 5 % of the memory must stay free: load fewer bits (--quantize 4), a shorter --context or --kv-bits 8"},
		{"no experts", dense(), Want{CPUExperts: true}, machine(24, 64), "!the model has no experts to keep on the host"},
		{"experts, all fit", mixture(), Want{}, machine(32, 64), "layers 0-9, embedding, output, head, vision tower on gpu"},
		{"experts apart", mixture(), Want{CPUExperts: true}, machine(32, 64), "layers 0-9, embedding, output, head, vision tower on gpu; experts of layers 0-9 on cpu"},
		{"some experts apart", mixture(), Want{}, machine(12, 64), "layers 0-9, embedding, output, head, vision tower on gpu; experts of layers 0-6 on cpu"},
		{"crossings that cost more than they bring", mixture(), Want{}, far, "layers 0-9, embedding, output, head, vision tower on cpu"},
		{"some layers without their experts", mixture(), Want{Layers: 4, CPUExperts: true}, machine(12, 64), "layers 6-9, embedding, output, head, vision tower on gpu; layers 0-5, experts of layers 6-9 on cpu"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := New(c.need, c.want, c.on)
			if err != nil {
				if got := "!" + strings.TrimPrefix(err.Error(), "offload: "); got != c.plan {
					t.Errorf("error %q, want %q", got, c.plan)
				}
				return
			}
			var sides []string
			weights, layers := int64(0), 0
			for _, u := range p.Uses() {
				sides = append(sides, fmt.Sprintf("%s on %s", strings.Join(u.Parts, ", "), u.Name))
				weights, layers = weights+u.Weights, layers+u.Layers
			}
			if got := strings.Join(sides, "; "); got != c.plan {
				t.Errorf("plan %q, want %q", got, c.plan)
			}
			if weights != c.need.total().Weights || layers != c.need.Layers {
				t.Errorf("%d bytes and %d layers lie somewhere, want %d and %d", weights, layers, c.need.total().Weights, c.need.Layers)
			}
			for i := range c.on {
				if !p.fits(i) {
					t.Errorf("does not fit: %s", p)
				}
			}
			if (p.Token > 0) != (c.on[1].Bandwidth > 0) {
				t.Errorf("%v a token", p.Token)
			}
		})
	}
}

// TestPlanInOneLine checks the text for people.
func TestPlanInOneLine(t *testing.T) {
	p, err := New(dense(), Want{}, machine(9, 64))
	if err != nil {
		t.Fatal(err)
	}
	const want = "layers 4-9, output, head on gpu, 7.5 GB; layers 0-3, embedding, vision tower on cpu, 5.5 GB; about 87.0 ms a token"
	if got := p.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestMoreMemoryIsNeverSlower has a device grow.
func TestMoreMemoryIsNeverSlower(t *testing.T) {
	for name, need := range map[string]*Need{"dense": dense(), "mixture": mixture()} {
		last := time.Duration(1 << 62)
		for free := 0.0; free < 32; free += 0.25 {
			p, err := New(need, Want{}, machine(free, 64))
			if err != nil {
				t.Fatal(err)
			}
			if p.Token > last {
				t.Errorf("%s: %v a token with %v GB, %v with less", name, p.Token, free, last)
			}
			last = p.Token
		}
		if best := need.total().Pass / 1000; int64(last) > 2*best {
			t.Errorf("%s: %v a token on the device alone", name, last)
		}
	}
}

// TestNeedAddsUp surveys a model: the parts add up to the survey, and fewer bits need less.
func TestNeedAddsUp(t *testing.T) {
	for _, name := range []string{"moe", "deepseek_v3"} {
		t.Run(name, func(t *testing.T) { needAddsUp(t, name) })
	}
}

// A drafter adds its weights and its state, beside the head or in its place.
func TestNeedOfDrafters(t *testing.T) {
	s, err := model.Survey(golden.Open(t, golden.Dir(t, "dense")))
	if err != nil {
		t.Fatal(err)
	}
	for _, noHead := range []bool{false, true} {
		o := Options{Context: 1000, NoHead: noHead}
		without := NewNeed(s, o).total()
		for _, f := range golden.Drafters(t, "") {
			o.Drafter = golden.Open(t, f.Dir)
			d, err := model.Fit(o.Drafter, model.TargetOf(s))
			if err != nil {
				t.Fatal(err)
			}
			with := NewNeed(s, o)
			few := NewNeed(s, Options{Context: 1000, NoHead: noHead, Drafter: o.Drafter, Quantize: 4})
			own := few.Weights() - NewNeed(s, Options{Context: 1000, NoHead: noHead, Quantize: 4}).Weights()
			if own != d.Sizes[backend.Part{Kind: backend.HeadPart}].Parameters*5/8 {
				t.Errorf("%s: %d bytes for %d parameters of 4 bits", f.Name, own, d.Parameters)
			}
			if all := with.total(); all.Weights != without.Weights+d.Loaded || all.State != without.State+d.Layout.Bytes(1000) || d.Layout.Bytes(1000) == 0 {
				t.Errorf("%s: %+v, without it %+v, of its own %d", f.Name, all, without, d.Loaded)
			}
		}
	}
}

func needAddsUp(t *testing.T, name string) {
	c := golden.Open(t, golden.Dir(t, name))
	s, err := model.Survey(c)
	if err != nil {
		t.Fatal(err)
	}
	n := NewNeed(s, Options{Context: 1000})
	all := n.total()
	if all.Weights != s.Loaded || n.Layers != len(s.Layout.Layers) || !n.experts() {
		t.Errorf("%d bytes in %d layers, want %d in %d", all.Weights, n.Layers, s.Loaded, len(s.Layout.Layers))
	}
	if want := s.Layout.Bytes(1000) + s.HeadLayout.Bytes(1000); all.State != want {
		t.Errorf("%d bytes of state, want %d", all.State, want)
	}
	if all.Pass >= all.Weights || all.Pass == 0 {
		t.Errorf("a token reads %d of %d bytes", all.Pass, all.Weights)
	}
	for what, o := range map[string]Options{
		"4 bits": {Context: 1000, Quantize: 4}, "keys of 4 bits": {Context: 1000, KVBits: 4}, "shorter": {Context: 100}, "no tower": {Context: 1000, NoVision: true},
		"no head": {Context: 1000, NoHead: true},
	} {
		if less := NewNeed(s, o).total(); less.Weights+less.State >= all.Weights+all.State && (what != "no tower" || s.Tower.Loaded > 0) {
			t.Errorf("%s: %+v, want less than %+v", what, less, all)
		}
	}
	if less, head := NewNeed(s, Options{Context: 1000, NoHead: true}), n.Parts[backend.Part{Kind: backend.HeadPart}]; head.Weights == 0 ||
		less.Weights() != all.Weights-head.Weights || less.total().State != s.Layout.Bytes(1000) {
		t.Errorf("without a head of %+v: %+v, of %+v", head, less.total(), all)
	}
	if more := NewNeed(s, Options{Context: 1000, KVMemory: 1 << 30}).total(); more.State < 1<<30-1<<10 || more.State > 1<<30 {
		t.Errorf("%d bytes of state, want a gibibyte", more.State)
	}
	twice := &Side{Size: func(m *dtype.Matrix) int64 { return 2 * int64(m.Rows) * int64(m.LoadedRowBytes()) }}
	matrices, weights := int64(0), int64(0)
	for p, size := range s.Sizes {
		for _, m := range size.Matrices {
			matrices += m.Bytes
		}
		weights += n.Parts[p].on(twice).Weights
	}
	if more := weights - all.Weights; matrices < all.Weights/2 || more != matrices {
		t.Errorf("a device that doubles %d bytes of matrices has %d of %d more", matrices, more, all.Weights)
	}
	devices := []backend.Info{{Name: "gpu", Free: 8 << 30}, {Name: "small", Free: all.Weights / 2}, {Name: "cpu", Free: 1 << 20}, {Name: "absent", Missing: "it is"}}
	list := PreviewOn(devices, s, Want{}, Options{})
	if len(list) != 3 || !list[0].Fits || list[1].Fits || list[2].Device != "gpu,small" || !strings.Contains(list[2].Where, " on small") && !strings.Contains(list[2].Where, "small has ") || !strings.HasPrefix(list[0].Where, "layers 0-") || !strings.HasPrefix(list[1].Where, "the model does not fit into memory: ") {
		t.Errorf("preview: %+v", list)
	}
	devices[2].Free = 8 << 30
	last := n.Layers - 1
	for want, where := range map[Want]string{
		{Layers: 1}:        fmt.Sprintf("layers %d, embedding, output, head on gpu", last),
		{Layers: None}:     fmt.Sprintf("layers 0-%d, embedding, output, head on cpu", last),
		{CPUExperts: true}: fmt.Sprintf("layers 0-%d, embedding, output, head on gpu, ", last),
	} {
		if list := PreviewOn(devices, s, want, Options{}); len(list) < 2 || !list[0].Fits || !strings.HasPrefix(list[0].Where, where) {
			t.Errorf("%+v: preview %+v, want %s", want, list, where)
		}
	}
}

// limited is a device with so much memory free.
type limited struct {
	backend.Backend
	free int64
}

func (m *limited) FreeMemory() int64 { return m.free }

// TestOpenChoosesDevices places a model on a device with enough memory, with some, and
// with none.
func TestOpenChoosesDevices(t *testing.T) {
	n := dense()
	for p, s := range n.Parts { // a megabyte in place of a gigabyte
		n.Parts[p] = Share{Weights: s.Weights / 1000, Pass: s.Pass / 1000, State: s.State / 1000}
	}
	n.Work, n.Logits = n.Work/1000, n.Logits/1000
	for _, c := range []struct {
		free int64
		want Want
		name string
	}{
		{24e6, Want{}, "opaque"},
		{9e6, Want{}, "opaque and cpu"},
		{24e6, Want{Layers: 3}, "opaque and cpu"},
		{1e6, Want{}, "cpu"},
	} {
		b := &limited{backendtest.NewOpaque(backendtest.Open(t, backend.Options{Threads: 1})), c.free}
		list := &choice{on: Devices{Name: "opaque", How: backend.Options{Threads: 1}}, list: []opened{{b, "opaque", false}}}
		d, p, err := list.beside(n, c.want)
		if err != nil {
			t.Fatal(err)
		}
		var sides []string
		for _, name := range strings.Split(d.Name(), " and ") {
			sides = append(sides, strings.Fields(name)[0])
		}
		if got := strings.Join(sides, " and "); got != c.name {
			t.Errorf("%+v: %s computes: %s", c, got, p)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Generated models are planned like those in files: the survey of a shape equals the need of the model.
func TestPlansOfShapes(t *testing.T) {
	for _, shape := range model.Shapes() {
		for _, bits := range []int{4, 16} {
			s := model.SurveyShape(shape, weights.BitsForm(bits))
			all := int64(0)
			for _, x := range s.Sizes {
				all += x.Parameters
			}
			if least, most := float64(all)*float64(bits)/8, float64(all)*(float64(bits)+1)/8; float64(s.Loaded) < least || float64(s.Loaded) > most {
				t.Errorf("%s of %d bits: %d bytes for %d parameters", shape, bits, s.Loaded, all)
			}
		}
	}
	b, p, err := ForShape("2b", weights.BitsForm(4), Devices{Name: "opaque", How: backend.Options{Threads: 1}}, Want{Layers: 10}, Options{Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close() //nolint:errcheck // of no interest
	if text := p.String(); !strings.Contains(text, "layers 14-23, embedding, output, head on opaque") || !strings.Contains(text, "layers 0-13") {
		t.Errorf("the plan is %s", text)
	}
	if s := model.SurveyShape("3b", weights.BitsForm(4)); s != nil {
		t.Error("there is a shape of 3b")
	}
}
