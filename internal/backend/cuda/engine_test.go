//go:build !cuda

package cuda

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/cuda/drivertest"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/mtp"
	"github.com/foretoken/foretoken/internal/spec/ngram"
	"github.com/foretoken/foretoken/internal/state"
)

// injector makes one call of a driver fail.
type injector struct {
	call string
	code driver.Code
	left atomic.Int64 // calls until then; 0: none fails
}

func (i *injector) fail(call string) driver.Code {
	if call == i.call && i.left.Load() > 0 && i.left.Add(-1) == 0 {
		return i.code
	}
	return 0
}

// served is a small model in an engine.
type served struct {
	b    backend.Backend
	m    model.Model
	pool *state.Pool
	e    *engine.Engine
}

func serve(t *testing.T, b backend.Backend) *served {
	t.Helper()
	s := load(t, b)
	s.start(t, s.head(), 16)
	return s
}

// load is a model that no engine has yet.
func load(t *testing.T, b backend.Backend) *served {
	t.Helper()
	c, s := golden.Open(t, golden.Dir(t, "dense")), &served{b: b}
	var err error
	if s.m, err = model.Open(c, b, model.Options{Quantize: 4, MaxDrafts: 3, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	return s
}

// head is the model's head as a drafter.
func (s *served) head() spec.Drafter {
	return mtp.New(s.m.Head(), mtp.Options{Vocab: s.m.Info().Vocab})
}

// start has an engine of its own for the model.
func (s *served) start(t *testing.T, d spec.Drafter, round int) {
	t.Helper()
	s.startBatch(t, d, round, 2)
}

// startBatch is start of an engine for some sequences at a time.
func (s *served) startBatch(t *testing.T, d spec.Drafter, round, batch int) {
	t.Helper()
	var err error
	s.pool = state.NewPool(s.b, 1<<26)
	s.e, err = engine.New(s.m, s.pool, engine.Options{
		Rehearse: true, Drafter: d, Cache: true, Log: slog.New(slog.DiscardHandler), MaxBatch: batch, RoundTokens: round,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// answers has two requests at once.
func (s *served) answers() (ids [2][]int32, errs [2]error) {
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			prompt := []int32{int32(3 + i), 7, 11, int32(20 + i)}
			stream, err := s.e.Generate(context.Background(), engine.Request{Prompt: prompt, MaxTokens: 4, IgnoreEnd: true, Depth: 1})
			if err != nil {
				errs[i] = err
				return
			}
			for token, err := range stream.Tokens() {
				if errs[i] = err; err == nil {
					ids[i] = append(ids[i], token.ID)
				}
			}
		})
	}
	all.Wait()
	return ids, errs
}

// answersOfCPU are the processor's.
func answersOfCPU(t *testing.T) [2][]int32 {
	t.Helper()
	s := serve(t, backendtest.CPU(t, backend.Options{Threads: 1}))
	defer s.e.Close()
	ids, errs := s.answers()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return ids
}

// close ends everything. The driver reports what was not given back.
func (s *served) close(t *testing.T) {
	t.Helper()
	s.e.Close()
	if x := s.pool.Stats(); x.Used != 0 || x.States != 0 {
		t.Errorf("left behind %+v", x)
	}
	if err := errors.Join(s.m.Close(), s.b.Close()); err != nil {
		t.Error(err)
	}
}

// TestFailuresOfTheDriverEndWhatTheyMust has calls of the driver fail while an engine answers. After
// one that a GPU survives all answers are those of the processor; one that it does not survive ends
// all requests, also those that come later, and closing leaves nothing.
func TestFailuresOfTheDriverEndWhatTheyMust(t *testing.T) {
	want := answersOfCPU(t)
	for _, c := range []struct {
		call string
		at   int64
		code driver.Code
	}{
		{"cuLaunchKernelEx", 60, driver.OutOfResources},
		{"cuMemAlloc", 3, driver.OutOfMemory},
		{"cuGraphLaunch", 2, driver.OutOfResources},
		{"cuStreamSynchronize", 4, driver.IllegalAddress},
		{"cuGraphLaunch", 1, driver.ECC},
	} {
		t.Run(fmt.Sprintf("%s, %v", c.call, c.code), func(t *testing.T) {
			x := &injector{call: c.call, code: c.code}
			dev, info := openDriver(t, drivertest.Options{Fail: x.fail})
			b, err := New(dev, info, Options{Kernels: os.DirFS("kernels"), Slab: 1, Staging: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			b.attention.splitBytes = 1 << 20
			s := load(t, b)
			s.start(t, s.head(), 8) // few sizes to rehearse
			x.left.Store(c.at)
			ids, errs := s.answers()
			if x.left.Load() != 0 {
				t.Fatalf("%d calls were left", x.left.Load())
			}
			for i := range ids {
				if !slices.Equal(ids[i], want[i][:min(len(ids[i]), len(want[i]))]) {
					t.Errorf("answer %d is %v, want %v", i, ids[i], want[i])
				}
			}
			failed := errors.Join(errs[:]...)
			if c.code.Sticky() {
				for _, err := range errs { // one may have ended before the other began
					if err != nil && !backend.Lost(err) {
						t.Errorf("errors %v", errs)
					}
				}
				if _, after := s.answers(); failed == nil || !backend.Lost(after[0]) || !backend.Lost(after[1]) {
					t.Errorf("errors %v, and then %v", errs, after)
				}
			} else if failed != nil && c.code != driver.OutOfMemory {
				t.Errorf("errors %v", errs)
			}
			s.close(t)
		})
	}
}

// TestRoundsAreRehearsed has requests with drafts come and go: every pass that is not of a prompt was prepared for before
// the first of them, and the answers are those of the processor.
func TestRoundsAreRehearsed(t *testing.T) {
	want := answersOfCPU(t)
	b := open(t, Options{})
	s := serve(t, b)
	before := maps.Clone(b.passes.Known)
	for key, r := range before {
		if r.graph == nil {
			t.Errorf("there is no graph of %+v", key)
		}
	}
	got, errs := s.answers()
	after := maps.Clone(b.passes.Known) // of an engine that sleeps
	s.e.Close()
	if errors.Join(errs[:]...) != nil || !slices.Equal(got[0], want[0]) || !slices.Equal(got[1], want[1]) {
		t.Errorf("answers %v, want %v: %v", got, want, errs)
	}
	prompts := 0
	for key, r := range after {
		switch {
		case before[key] == r:
		case key.Wants < key.Rows: // the end of a prompt
			prompts++
		default:
			t.Errorf("a pass of %d rows, %d of them wanted, tokens %t, was not prepared for, or given up", key.Rows, key.Wants, key.IDs)
		}
	}
	if lost := len(before) + prompts - len(after); lost > 0 || prompts == 0 {
		t.Errorf("%d of %d recordings were given up, %d prompts", lost, len(before), prompts)
	}
	if err := s.m.Close(); err != nil {
		t.Error(err)
	}
}

// TestLongCopiesAreRehearsed checks that an engine that may draft copies has a graph of every pass over one sequence, up to
// that with the longest copy.
func TestLongCopiesAreRehearsed(t *testing.T) {
	b := open(t, Options{})
	s := load(t, b)
	lookup, err := ngram.New(ngram.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.startBatch(t, spec.Auto(s.head(), lookup), 64, 1) // so the longest copy has the most rows with logits
	defer s.close(t)
	for rows := 1; rows <= 1+spec.MaxCopy; rows++ {
		known := false
		for key, r := range b.passes.Known {
			known = known || key.IDs && key.Rows == rows && key.Wants == rows && key.Long == (rows > deltaLong) && r.graph != nil
		}
		if !known {
			t.Errorf("there is no graph of a pass over %d rows of one sequence", rows)
		}
	}
}

// TestClosedEnginesLeaveNothingOnTheDevice has one engine after another on a model: when one is closed, what was recorded of its
// passes is gone, and the answers of the next are the processor's again.
func TestClosedEnginesLeaveNothingOnTheDevice(t *testing.T) {
	want := answersOfCPU(t)
	b := open(t, Options{})
	s := serve(t, b)
	for i := range 2 {
		if i > 0 {
			s.start(t, s.head(), 16)
		}
		got, errs := s.answers()
		if errors.Join(errs[:]...) != nil || !slices.Equal(got[0], want[0]) || !slices.Equal(got[1], want[1]) {
			t.Errorf("engine %d: answers %v, want %v: %v", i, got, want, errs)
		}
		s.e.Close()
		if p := &b.passes; len(p.Known) != 0 || p.Operations != 0 || p.Last != nil {
			t.Errorf("engine %d leaves %d recordings of %d operations", i, len(p.Known), p.Operations)
		}
	}
	if err := s.m.Close(); err != nil {
		t.Error(err)
	}
}

// TestModelThatDoesNotFitIsRefused has a GPU with less memory than a model takes: the error names the
// weight and the memory, in one line, and all that was taken goes back.
func TestModelThatDoesNotFitIsRefused(t *testing.T) {
	small := driver.Info{Name: "small", Compute: [2]int{9, 0}, Memory: 96 << 10, Multiprocessors: 1, Shared: 227 << 10, Driver: 13000}
	dev, info := openDriver(t, drivertest.Options{Devices: []driver.Info{small}})
	b, err := New(dev, info, Options{Kernels: os.DirFS("kernels"), Slab: 1, Staging: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	c := golden.Open(t, golden.Dir(t, "dense"))
	_, err = model.Open(c, b, model.Options{Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, driver.OutOfMemory) || !strings.HasPrefix(err.Error(), "weights: ") || !strings.Contains(err.Error(), " of the GPU's 0.1 MB are free") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	if u := b.Usage()[0]; u.Used != 0 {
		t.Errorf("%d bytes are still taken", u.Used)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestPassesWithoutGraphs has a driver that makes no graphs: passes are queued operation by operation, whenever they come, with the
// bits of the processor, and there is one warning.
func TestPassesWithoutGraphs(t *testing.T) {
	dev, info := openDriver(t, drivertest.Options{Fail: func(call string) driver.Code {
		if call == "cuGraphInstantiate" {
			return driver.OutOfMemory
		}
		return 0
	}})
	var said strings.Builder
	b, err := New(dev, info, Options{Kernels: os.DirFS("kernels"), Slab: 1, Staging: 1 << 20, Log: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close() //nolint:errcheck // of no interest here
	gpu, cpu := newTower(t, b), newTower(t, backendtest.CPU(t, backend.Options{Threads: 1}))
	gpu.space(3)
	cpu.space(3)
	for i := range int32(6) {
		ids := []int32{i, 2 * i, 3 * i}[:1+i%2]
		if got, want := gpu.run(ids, []int32{0}, nil), cpu.run(ids, []int32{0}, nil); !slices.Equal(got, want) {
			t.Fatalf("pass %d: other bits", i)
		}
	}
	if b.passes.Replayed != 4 || strings.Count(said.String(), "\n") != 1 || !strings.Contains(said.String(), "level=WARN") || !strings.Contains(said.String(), "OUT_OF_MEMORY") {
		t.Errorf("%d passes were replayed; the log is\n%s", b.passes.Replayed, said.String())
	}
}
