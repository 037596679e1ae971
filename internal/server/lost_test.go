package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/batch"
)

// fragile is the devices that were opened as "fragile", which tests can break.
var fragile struct {
	mu   sync.Mutex
	list []*backendtest.Opaque
}

func init() {
	backend.Register(backend.Device{
		Name: "fragile", Rank: math.MinInt,
		ISAs:  func() []string { return nil },
		Probe: func() []backend.Info { return []backend.Info{{Missing: "it is for tests"}} },
		Open: func(o backend.Options) (backend.Backend, error) {
			b, err := backend.Open("cpu", o)
			if err != nil {
				return nil, err
			}
			fragile.mu.Lock()
			defer fragile.mu.Unlock()
			fragile.list = append(fragile.list, backendtest.NewOpaque(b))
			return fragile.list[len(fragile.list)-1], nil
		},
	})
}

// TestLostDeviceEndsTheServer loses the device of one of two models while it answers: its
// client gets an error, the server is no longer ready, the other model completes its answer,
// and Serve returns an error that names the lost device, for the supervisor that restarts it.
func TestLostDeviceEndsTheServer(t *testing.T) {
	r := start(t, func(o *Options) {
		other := tiny()
		other.Name, other.Options.Device, other.Preload = "other", "fragile", true
		o.Models = append(o.Models, other)
	})
	fragile.mu.Lock()
	device := fragile.list[len(fragile.list)-1]
	fragile.mu.Unlock()
	going, events := r.stream(t.Context(), 400)
	device.BreakAt(300, backendtest.LostError{})
	a := r.do("POST", "/v1/completions", `{"model": "other", "prompt": "Once", "max_tokens": 200, "ignore_eos": true}`)
	if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "the device is lost") {
		t.Errorf("the answer: %d %s", a.status, a.body)
	}
	err := <-r.done
	if !errors.Is(err, foretoken.ErrBroken) || !backend.Lost(err) || !strings.HasPrefix(err.Error(), "server: model other: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("the server ends with %v", err)
	}
	if r.ready() {
		t.Error("the server is ready")
	}
	rest, err := io.ReadAll(events)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("the other model's answer ends with %v: %.200s", err, rest)
	}
	if err := going.Body.Close(); err != nil {
		t.Error(err)
	}
	if err := r.Shutdown(context.Background()); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

// TestLostDeviceEndsAWorker has the device of a worker be lost while it answers lines: it ends with
// an error, and no line fails of it.
func TestLostDeviceEndsAWorker(t *testing.T) {
	folder, err := batch.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = folder.Close() }()
	queue := batch.NewMemory()
	m := tiny()
	m.Options.Device = "fragile"
	s, err := New(Options{Models: []Model{m}, Log: slog.New(slog.DiscardHandler), Batches: &Batches{Store: folder, Queue: queue, Elsewhere: true}})
	if err != nil {
		t.Fatal(err)
	}
	c := batch.NewCoordinator(batch.Options{
		Store: folder, Queue: queue, Log: slog.New(slog.DiscardHandler),
		Fingerprint: func(ctx context.Context, model string) (string, error) { return s.Fingerprint(ctx, model, "") },
	})
	f, err := c.CreateFile(t.Context(), "", "in.jsonl", "batch", 0, strings.NewReader(line("a", `{"messages":[{"role":"user","content":"Hi."}],"max_tokens":200,"ignore_eos":true}`)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Submit(t.Context(), batch.Submission{Input: f.ID, Endpoint: batch.Endpoints[0]})
	if err == nil {
		err = c.Step(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	fragile.mu.Lock()
	device := fragile.list[len(fragile.list)-1]
	fragile.mu.Unlock()
	device.BreakAt(300, backendtest.LostError{})
	if err := s.Work(t.Context()); !backend.Lost(err) {
		t.Errorf("the worker ends with %v", err)
	}
	if err := c.Step(t.Context()); err != nil {
		t.Error(err)
	}
	if b, err = c.Batch(t.Context(), "", b.ID); err != nil || b.Status != batch.InProgress || b.Counts != (batch.Counts{Total: 1}) {
		t.Errorf("%s, %+v, %v", b.Status, b.Counts, err)
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}
