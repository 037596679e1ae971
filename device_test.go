package foretoken

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/sample"
)

func init() { backendtest.RegisterOpaque() }

// heard is what an answer was: its tokens, the bits of the logits, and what of the prompt was
// known.
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

// session has a model on a device read prompts, draft, verify, roll back, several sequences at a
// time; then the same prompts with more behind them, of which the prefix cache knows the first
// part; then another process with the folder of the cache only.
func session(t *testing.T, device string) [][]heard {
	t.Helper()
	o := Options{
		Device: device, Threads: 1, Log: silent, Context: 512, KVMemory: 64 << 20, PrefixCache: PrefixCache{Dir: t.TempDir()},
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
	for _, lengths := range [][]int{{100, 130}, {150}} {
		m, err := Open(Tiny, o)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(m.Device(), device+" ") {
			t.Fatalf("%s computes on %s", device, m.Device())
		}
		for _, n := range lengths {
			all = append(all, hear(t, m, requests(n)))
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	return all
}

// TestNobodyLooksIntoADevice runs the embedded model on a device whose memory only it can read:
// everything that the engine, the model, the head and the prefix cache do goes through the
// operations of package backend, and gives the bits that it gives on the CPU. It replays passes
// that it has recorded, so that all that differs between passes is in backend.Pass.
func TestNobodyLooksIntoADevice(t *testing.T) {
	before := backendtest.Replays()
	want, got := session(t, "cpu"), session(t, "opaque")
	if backendtest.Replays() == before {
		t.Error("no pass was replayed")
	}
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
	if _, err := Open(Tiny, Options{Device: "abacus", Log: silent}); !errors.Is(err, ErrNoDevice) || err.Error() != "device abacus: not available in this build; use auto or cpu or opaque" {
		t.Errorf("%v", err)
	}
	if m := openTiny(t, Options{Device: "auto", Threads: 1}); !strings.HasPrefix(m.Device(), "cpu ") {
		t.Errorf("auto is %s", m.Device())
	}
}
