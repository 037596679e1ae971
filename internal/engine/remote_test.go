package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// kept are the weights of a model, which a node finds after its process has ended.
type kept map[remote.Digest]dtype.Matrix

func (k kept) Find(d remote.Digest, _ *dtype.Matrix) (dtype.Matrix, bool, error) {
	m, ok := k[d]
	return m, ok, nil
}

func (k kept) Keep(d remote.Digest, m *dtype.Matrix) { k[d] = *m }

// remoted is a model with layers on nodes, or all of it on one.
type remoted struct {
	failing
	node *backendtest.Node
	cut  *backendtest.Cut
}

// patience is how long a node may be away. Only a fault takes that long, however busy the machine is.
const patience = 5 * time.Minute

// newRemoted has more nodes behind connections with delays if a part of the model is on the first.
func newRemoted(t *testing.T, part bool, wait time.Duration, delays ...time.Duration) *remoted {
	t.Helper()
	n := backendtest.StartNode(t, backend.Options{Threads: 1})
	n.Weights = kept{}
	cut := &backendtest.Cut{Dial: n.Dial(0)}
	cut.Left.Store(1 << 60)
	far, err := remote.Open(t.Context(), remote.Options{Name: "desk", Dial: cut.Connect, Wait: wait, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	b := far
	if part {
		list := []backend.Backend{backendtest.CPU(t, backend.Options{Threads: 1}), far}
		for _, delay := range delays {
			list = append(list, backendtest.Remote(t, backend.Options{}, remote.Options{Dial: backendtest.StartNode(t, backend.Options{Threads: 1}).Dial(delay)}))
		}
		b, err = split.New(func(p backend.Part) int {
			if p.Kind == backend.LayerPart {
				return p.Layer % len(list)
			}
			return 0
		}, list...)
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = b.Close() })
	f := &remoted{node: n, cut: cut}
	f.model, f.pool = &numbered{headed: load(t, golden.Dir(t, "dense"), model.Options{Quantize: 8}, b)}, state.NewPool(b, 1<<30)
	f.want = newFailing(t).want
	return f
}

// A connection to a node ends after any byte: in a prompt, a round, a copy for the cache, within a frame. The node has
// forgotten everything then, and all answers are right, also later ones that the cache had. The long version ends it behind every
// frame of the leader, too.
func TestNodeThatGoesEndsNoRequest(t *testing.T) {
	type how struct {
		part, frames bool
		groups       int
	}
	cases := []how{{}, {part: true, groups: 2}, {frames: true}}
	if long {
		cases = append(cases, how{part: true, groups: 1}, how{part: true, frames: true, groups: 2})
	}
	for _, how := range cases {
		t.Run(fmt.Sprintf("%+v", how), func(t *testing.T) { nodeGoes(t, how.part, how.frames, how.groups) })
	}
}

func nodeGoes(t *testing.T, part, frames bool, groups int) {
	t.Helper()
	f := newRemoted(t, part, patience)
	f.cut.Frames, f.groups = frames, groups
	f.cut.Left.Store(1 << 40)
	e := f.engine(t, nil)
	for i, err := range f.all(t, e) {
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	f.close(t, e)
	used := int64(1<<40) - f.cut.Left.Load()
	step := used/4 + 1
	if long {
		step = used/300 + 1
	}
	if long && frames {
		step = 1
	}
	cuts := 0
	for at := int64(1); at < 2*used; at += step {
		e := f.engine(t, func(err error) { t.Errorf("byte %d: broken: %v", at, err) })
		f.cut.Left.Store(at)
		for range 2 {
			for i, err := range f.all(t, e) {
				if err != nil {
					t.Errorf("byte %d, request %d: %v", at, i, err)
				}
			}
		}
		if f.close(t, e); f.cut.Left.Load() <= 0 {
			cuts++
		} else if at < used && !frames { // frames of pings come with time
			t.Errorf("byte %d of %d: the connection did not end", at, used)
		}
	}
	t.Logf("%d bytes or frames, cut in %d places", used, cuts)
}

// Requests over two, three and four devices behind slow connections have the tokens of one, also when the cache has a part of
// them, and when the first node loses everything in the middle.
func TestSeveralNodesChangeNoAnswer(t *testing.T) {
	const fast, lan, slow = 100 * time.Microsecond, 800 * time.Microsecond, 5 * time.Millisecond
	cases := [][]time.Duration{{fast}, {lan, lan}}
	if long {
		cases = append(cases, []time.Duration{0}, []time.Duration{fast, fast}, []time.Duration{lan}, []time.Duration{slow}, []time.Duration{slow, slow})
	}
	for _, delays := range cases {
		f := newRemoted(t, true, patience, delays...)
		f.groups = len(delays) + 1
		for _, at := range []int64{1 << 40, 1 << 14, 3 << 15} {
			e := f.engine(t, func(err error) { t.Errorf("%v, byte %d: broken: %v", delays, at, err) })
			f.cut.Left.Store(at)
			for range 2 {
				for i, err := range f.all(t, e) {
					if err != nil {
						t.Errorf("%v, byte %d, request %d: %v", delays, at, i, err)
					}
				}
			}
			if f.close(t, e); at < 1<<40 && f.cut.Left.Load() > 0 {
				t.Errorf("%v, byte %d: the connection did not end", delays, at)
			}
		}
	}
}

// poisoned is the device of a node whose connection ends when it is to read a token, a number of times.
type poisoned struct {
	backend.Backend
	doses *atomic.Int64
	cut   *backendtest.Cut
	dead  bool
}

const poison = 60

func (p *poisoned) Pass(x backend.Pass, queue func()) {
	if !p.dead && slices.Contains(x.IDs, poison) && p.doses.Add(-1) >= 0 {
		p.dead = true
		p.cut.Left.Store(1)
	}
	p.Backend.Pass(x, queue)
}

// A request whose passes end the node is restarted twice with others, is then computed alone, and ends if the node does. Others,
// which run at the same time, have their tokens, and so has that one if the node stays. A background prefill is not tried again.
func TestRequestThatEndsTheNodeEnds(t *testing.T) {
	var doses atomic.Int64
	n := backendtest.StartNode(t, backend.Options{Threads: 1})
	open, cut := n.Open, &backendtest.Cut{Dial: n.Dial(0)}
	cut.Left.Store(1 << 60)
	n.Weights, n.Open = kept{}, func() (backend.Backend, error) {
		b, err := open()
		return &poisoned{Backend: b, doses: &doses, cut: cut}, err
	}
	o := remote.Options{Name: "desk", Dial: cut.Connect, Wait: patience, Log: slog.New(slog.DiscardHandler)}
	f := newFailingOn(t, backendtest.Remote(t, backend.Options{}, o), nil, 0)
	r := Request{Prompt: slices.Repeat([]int32{poison}, 20), MaxTokens: 6, IgnoreEnd: true}
	e := f.engine(t, func(err error) { t.Errorf("broken: %v", err) })
	defer f.close(t, e)
	want, _, err := collect(e, r)
	if err != nil {
		t.Fatal(err)
	}
	for losses := range maxLosses + 2 {
		streams, resume := f.meet(t, e)
		bad, err := e.Generate(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		doses.Store(int64(losses))
		resume()
		f.read(t, streams, func(error) bool { return false })
		ids, err := read(bad)
		if ends := losses > maxLosses; ends && (err == nil || !strings.Contains(err.Error(), "on node desk lost its memory 3 times")) || !ends && (err != nil || !slices.Equal(ids, want)) {
			t.Errorf("%d losses: %v, %v, want %v", losses, ids, err, want)
		}
		if left := doses.Load(); left > 0 {
			t.Errorf("%d of %d losses did not happen", left, losses)
		}
	}
	doses.Store(2)
	<-prefill(t, e, Prefill{Conversation: "a", Prompt: r.Prompt})
	if s := e.Stats().Background; s.Dropped != 1 || s.Completed != 0 || doses.Load() != 1 {
		t.Errorf("%+v after %d losses", s, 2-doses.Load())
	}
}

// A node that does not come back ends requests with an error that names it, and the engine.
func TestNodeThatStaysAwayEndsRequests(t *testing.T) {
	f := newRemoted(t, true, 0)
	broken := make(chan error, 1)
	e := f.engine(t, func(err error) { broken <- err })
	time.AfterFunc(time.Millisecond, f.node.Stop)
	for {
		errs := f.all(t, e)
		if !slices.Contains(errs, nil) || len(broken) > 0 {
			break
		}
	}
	if err := <-broken; !backend.Lost(err) || !strings.Contains(err.Error(), "node desk: ") {
		t.Errorf("broken by %v", err)
	}
	if _, err := e.Generate(context.Background(), failingRequest(0)); err == nil {
		t.Error("a request is accepted")
	}
	f.close(t, e)
}
