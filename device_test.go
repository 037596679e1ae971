package foretoken

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/sample"
)

func init() { backendtest.RegisterOpaque() }

// heard is an answer: its tokens, a hash of the logits' bits, and the cached tokens of its prompt.
type heard struct {
	ids               string
	hash              uint64
	cached            int
	drafted, accepted int
}

// hear has a model answer, all requests at once.
func hear(t *testing.T, m *Model, requests []Request) []heard {
	t.Helper()
	list := make([]heard, len(requests))
	var all sync.WaitGroup
	for i, r := range requests {
		all.Go(func() {
			a, err := m.Generate(t.Context(), r)
			if err == nil {
				err = a.Wait()
			}
			if err != nil {
				t.Errorf("request %d: %v", i, err)
				return
			}
			s := a.Result.Speculation
			list[i] = heard{tokenIDs(a), a.LogitsHash(), a.Result.Cached, s.Drafted, s.Accepted}
		})
	}
	all.Wait()
	return list
}

func tokenIDs(a *Answer) string {
	var ids []int32
	for _, t := range a.Tokens {
		ids = append(ids, t.ID)
	}
	return fmt.Sprint(ids)
}

// on is a device, and how many layers of a model are on it; 0: all. It may be a list, and more devices are opened by
// functions.
type on struct {
	device string
	layers int
	more   int
	verify int // the CPU computes one of verify passes again; 0: none
}

// places is how many devices have layers.
func (o on) places() int { return min(o.layers, 1) + 1 + strings.Count(o.device, ",") + o.more }

// session has a model on a device read prompts, draft, verify, roll back, several sequences at a
// time; then the same prompts with more behind them, of which the prefix cache knows the first
// part; then another process with the folder of the cache only, on the next of the devices.
func session(t *testing.T, devices ...on) [][]heard {
	t.Helper()
	o := Options{
		Threads: 1, Log: silent, Context: 512, KVMemory: 64 << 20, PrefixCache: PrefixCache{Dir: t.TempDir()},
		Speculation: Speculation{Depth: 3, NoSelfTest: true},
	}
	requests := func(length int) []Request {
		var list []Request
		for i := range 3 {
			p := &Prompt{}
			for j := range length {
				p.IDs = append(p.IDs, int32(300+(i*31+j*7)%1000))
			}
			list = append(list, Request{
				Prompt: p, MaxTokens: 12, IgnoreEnd: true, Hash: true, LogProbs: i == 2,
				Sampling: &sample.Options{Temperature: float64(i) * 0.7, Seed: uint64(i)},
			})
		}
		return list
	}
	var all [][]heard
	for i, lengths := range [][]int{{100, 130}, {150}} {
		at := devices[i%len(devices)]
		o.Device, o.Offload.Layers, o.devices, o.VerifyDevice = at.device, at.layers, nil, at.verify
		for range at.more {
			o.devices = append(o.devices, func() (backend.Backend, error) { return backend.Open("opaque", backend.Options{Threads: 1}) })
		}
		m, err := Open(t.Context(), Tiny, o)
		if err != nil {
			t.Fatal(err)
		}
		if first, _, _ := strings.Cut(at.device, ","); !strings.HasPrefix(m.Device(), first+" ") || len(m.Placement()) != at.places() {
			t.Fatalf("%v computes on %s, %v", at, m.Device(), m.Placement())
		}
		for _, n := range lengths {
			all = append(all, hear(t, m, requests(n)))
		}
		checkUsage(t, m)
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	return all
}

// checkUsage compares what devices say of themselves with what lies on them.
func checkUsage(t *testing.T, m *Model) {
	t.Helper()
	s := m.Stats()
	if len(s.Devices) != len(m.Placement()) || s.Phases.Forward <= 0 || s.Phases.Sample <= 0 || s.Phases.Draft <= 0 {
		t.Errorf("%s: %+v", m.Device(), s)
	}
	for i, p := range m.Placement() {
		d := s.Devices[i]
		if d.Device != p.Device || d.Used < p.Weights || d.Free > d.Memory || (d.Replayed > 0) == strings.HasPrefix(p.Device, "cpu") || d.Recorded < int64(d.Recordings) {
			t.Errorf("%+v says %+v", p, d)
		}
	}
}

var sessionOnCPU [][]heard

// onCPU is the session with all layers on the CPU.
func onCPU(t *testing.T) [][]heard {
	t.Helper()
	if sessionOnCPU == nil {
		sessionOnCPU = session(t, on{device: "cpu"})
	}
	return sessionOnCPU
}

// TestOnlyTheDeviceReadsItsMemory runs the embedded model on a device whose memory only it can read:
// everything that the engine, the model, the head and the prefix cache do goes through the
// operations of package backend, and gives the bits that it gives on the CPU. It replays passes
// that it has recorded, so that all that differs between passes is in backend.Pass.
func TestOnlyTheDeviceReadsItsMemory(t *testing.T) {
	before := backendtest.Replays()
	compareSessions(t, session(t, on{device: "opaque"}), onCPU(t))
	if backendtest.Replays() == before {
		t.Error("no pass was replayed")
	}
}

// TestDevicesAreVerified has the CPU compute passes of a device again, or of a device and the CPU: nothing changes.
func TestDevicesAreVerified(t *testing.T) {
	compareSessions(t, session(t, on{device: "opaque", verify: 1}, on{device: "opaque", layers: 2, verify: 3}), onCPU(t))
	loads := func(int64, int64) { t.Error("the model is loaded before it is refused") }
	if _, err := Open(t.Context(), Tiny, Options{Device: "cpu", VerifyDevice: 1, Log: silent, Progress: loads}); err == nil || err.Error() != "model tiny: the CPU computes it, so that no device can be verified: leave out --verify-device" {
		t.Errorf("%v", err)
	}
}

// compareSessions compares the answers of a device with those of the CPU, which must not be empty.
func compareSessions(t *testing.T, got, want [][]heard) {
	t.Helper()
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("part %d: %v, on the CPU %v", i, got[i], want[i])
		}
		drafted, accepted := 0, 0
		for j, h := range want[i] {
			drafted, accepted = drafted+h.drafted, accepted+h.accepted
			if h.hash == 0 || (h.cached > 0) != (i > 0) {
				t.Errorf("part %d, request %d says nothing: %+v", i, j, h)
			}
		}
		if accepted == 0 || accepted == drafted {
			t.Errorf("part %d: %d of %d drafts were accepted", i, accepted, drafted)
		}
	}
}

func TestOpenNamesTheDevicesThereAre(t *testing.T) {
	if _, err := Open(t.Context(), Tiny, Options{Device: "abacus", Log: silent}); !errors.Is(err, ErrNoDevice) || err.Error() != "device abacus: not available in this build; use auto or cuda or vulkan or cpu or opaque" {
		t.Errorf("%v", err)
	}
	i := slices.IndexFunc(backend.List(), func(d backend.Info) bool { return d.Default })
	if m := openTiny(t, Options{Device: "auto", Threads: 1}); !strings.HasPrefix(m.Device(), backend.List()[i].Name+" ") {
		t.Errorf("auto is %s", m.Device())
	}
}

// TestModelsOnSeveralDevices has some layers of a model on a device and the rest on the CPU, or on several. The bits are
// the same, also if a prefix was computed on one of them, or with another placement.
func TestModelsOnSeveralDevices(t *testing.T) {
	want := onCPU(t)
	for _, devices := range [][]on{
		{{device: "opaque", layers: 1}, {device: "cpu"}},
		{{device: "cpu"}, {device: "opaque", layers: 3}},
		{{device: "opaque,opaque,cpu", more: 1}, {device: "opaque", more: 1}},
	} {
		for i, got := range session(t, devices...) {
			if !slices.Equal(got, want[i]) {
				t.Errorf("%v, part %d: %v, on the CPU %v", devices, i, got, want[i])
			}
		}
	}
}

// TestPreemptionOnSeveralDevices has memory for fewer sequences than there are.
func TestPreemptionOnSeveralDevices(t *testing.T) {
	var want []heard
	budget := int64(0)
	for _, at := range []on{{device: "cpu"}, {device: "cpu"}, {device: "opaque", layers: 2}, {device: "opaque,opaque,cpu"}} {
		m := openTiny(t, Options{
			Device: at.device, Offload: Offload{Layers: at.layers}, Threads: 1, Context: 256, PrefixCache: PrefixCache{Off: true}, KVMemory: budget,
			Speculation: Speculation{Depth: 2, NoSelfTest: true},
		})
		if budget == 0 { // of three sequences as they begin
			need := spec.Needs(m.model.Layout(), m.draft.drafter, m.info.Width)
			budget = 3 * need.Bytes(32)
			continue
		}
		var requests []Request
		for i := range 3 {
			p := &Prompt{IDs: []int32{int32(300 + i), 301, 302, 303, 304}}
			requests = append(requests, Request{Prompt: p, MaxTokens: 120, IgnoreEnd: true, Hash: true, Sampling: &sample.Options{Seed: uint64(i)}})
		}
		got := hear(t, m, requests)
		if m.Stats().Preemptions == 0 {
			t.Errorf("%v: nothing was preempted", at)
		}
		for i := range got {
			got[i].drafted, got[i].accepted = 0, 0 // which depend on what was there beside
		}
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", at, got, want)
		}
	}
}

func TestOffloadRefusesWhatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"no other device":  {Options{Device: "cpu", Offload: Offload{Layers: 3}}, "not available: cpu "},
		"experts, alone":   {Options{Device: "cpu", Offload: Offload{CPUExperts: true}}, "no other device is available for a part of the model"},
		"a strange number": {Options{Device: "opaque", Offload: Offload{Layers: -2}}, "-2 layers on the device, want"},
		"no experts":       {Options{Device: "opaque", Offload: Offload{CPUExperts: true}}, "model tiny: offload: the model has no experts"},
		"no memory":        {Options{Device: "opaque", Offload: Offload{Layers: 2}, KVMemory: 1 << 60}, "does not fit with 2 of its"},
		"nowhere":          {Options{Device: "opaque", KVMemory: 1 << 60}, "the model does not fit into memory: it has "},
	} {
		c.o.Log = silent
		if m, err := Open(t.Context(), Tiny, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v; want %q", name, m, err, c.want)
		}
	}
	m := openTiny(t, Options{Device: "opaque", Offload: Offload{Layers: LayersOff}, Threads: 1})
	if p := m.Placement(); len(p) != 1 || !strings.HasPrefix(p[0].Device, "cpu ") || p[0].Layers != m.Info().Layers || p[0].Weights != m.Info().Bytes {
		t.Errorf("without layers on the device: %+v", p)
	}
}
