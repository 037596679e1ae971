package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/library"
	"github.com/foretoken/foretoken/internal/rescue"
	"github.com/foretoken/foretoken/internal/server/batches"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// Batches configure batches. The server does not close it.
type Batches struct {
	Store   batch.Store
	Queue   batch.Queue
	Records string // folder for the digests of weights; "": they are hashed at every start
	// QueueAddress is the address of the queue, "" for one in memory, and Connected reports whether it can be
	// reached now.
	QueueAddress string
	Connected    func() bool
	Lines        int              // that run at a time for each model; 0: as many as its batch has
	Now          func() time.Time // nil: time.Now
	// Elsewhere: other servers take files and batches. This one answers lines, by Work.
	Elsewhere bool
}

// defaultLines is the default number of lines that run at a time: an engine's usual batch.
const defaultLines = 16

// lines runs the lines of batches.
type lines struct {
	s           *Server
	o           Batches
	coordinator *batch.Coordinator
	tenants     map[string]string // owner → tenant
	stop        context.CancelFunc
	running     sync.WaitGroup
	ctx         context.Context

	mu      sync.Mutex               // protects what follows
	workers map[string]bool          // by fingerprint
	names   map[string]*fingerprints // by name of the model
}

// fingerprints remembers the fingerprint of a model while it is loaded.
type fingerprints struct {
	model *foretoken.Model
	id    string
}

// newLines adds files and batches to a server.
func newLines(s *Server, o Batches) *lines {
	b := &lines{s: s, o: o, workers: map[string]bool{}, names: map[string]*fingerprints{}, tenants: map[string]string{}}
	b.ctx, b.stop = context.WithCancel(context.Background())
	if s.o.Keys != nil {
		for _, sum := range s.o.Keys.sums {
			tenant := hex.EncodeToString(sum[:])
			b.tenants[owner(tenant)] = tenant
		}
	}
	b.coordinator = batch.NewCoordinator(batch.Options{
		Store: o.Store, Queue: o.Queue, Fingerprint: b.fingerprint, Work: b.work, Now: o.Now, Log: s.log,
	})
	s.metrics.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "foretoken_batch_lines_waiting", Help: "Lines of batches without a result."}, func() float64 { return float64(b.coordinator.Waiting()) }))
	api := &batches.API{Coordinator: b.coordinator, Owner: owner}
	api.Register(body.On(s.mux, callerOf))
	return b
}

// lineMetrics count the results of lines of batches.
type lineMetrics struct {
	outcomes map[string]*atomic.Int64
	diverged atomic.Int64
}

func newLineMetrics(s *Server, o *Batches) *lineMetrics {
	m := &lineMetrics{outcomes: map[string]*atomic.Int64{}}
	count := func(n *atomic.Int64, o prometheus.CounterOpts) {
		s.metrics.register(prometheus.NewCounterFunc(o, func() float64 { return float64(n.Load()) }))
	}
	for _, outcome := range batch.LineOutcomes {
		m.outcomes[outcome] = &atomic.Int64{}
		count(m.outcomes[outcome], prometheus.CounterOpts{
			Name: "foretoken_batch_lines_total", Help: "Lines of batches by outcome: completed, failed, found (the result existed) or retried.",
			ConstLabels: prometheus.Labels{"outcome": outcome},
		})
	}
	count(&m.diverged, prometheus.CounterOpts{Name: "foretoken_batch_divergence_total", Help: "Lines whose result differs from an existing one: workers that should give equal answers do not."})
	s.metrics.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "foretoken_batch_queue_connected", Help: "1 if the queue of batches can be reached; otherwise requests are answered and batches wait."}, func() float64 { return truth(o.connected()) }))
	return m
}

// connected reports whether the queue can be reached.
func (o *Batches) connected() bool { return o.Connected == nil || o.Connected() }

// owner is the name under which a tenant's files and batches are stored: not the tenant's, which is a
// secret.
func owner(tenant string) string {
	if tenant == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("owner of batches " + tenant))
	return hex.EncodeToString(sum[:16])
}

// start has the coordinator work, until end.
func (b *lines) start() {
	b.running.Go(func() { b.guard(func() error { b.coordinator.Run(b.ctx); return nil }) })
}

// end stops all lines and returns when none runs. They are continued when the server is started again.
func (b *lines) end() {
	b.stop()
	b.running.Wait()
}

// RunBatches works on batches until ctx ends or a model can answer nothing more, which is an error,
// of a server that does not Serve.
func (s *Server) RunBatches(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.lines.stop)()
	defer context.AfterFunc(s.broken, s.lines.stop)()
	s.lines.start()
	s.lines.running.Wait()
	return context.Cause(s.broken)
}

// Work answers lines of batches with all models until ctx ends or a model can answer nothing more,
// which is an error, of a server whose batches are Elsewhere.
func (s *Server) Work(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer context.AfterFunc(s.broken, stop)()
	var all sync.WaitGroup
	err := s.startWorkers(ctx, &all)
	if err == nil {
		s.loaded.Store(true)
		if s.o.Ready != nil {
			s.o.Ready()
		}
		<-ctx.Done()
		err = context.Cause(s.broken)
	}
	stop()
	all.Wait()
	attrs := []any{"diverged", s.lineMetrics.diverged.Load()}
	for _, outcome := range batch.LineOutcomes {
		attrs = append(attrs, outcome, s.lineMetrics.outcomes[outcome].Load())
	}
	s.log.Info("lines", attrs...)
	return err
}

// startWorkers loads all models and has each answer lines.
func (s *Server) startWorkers(ctx context.Context, all *sync.WaitGroup) error {
	for _, m := range s.models {
		id, err := s.Fingerprint(ctx, m.Name, s.o.Batches.Records)
		if err != nil {
			return err
		}
		worker := s.worker(m.Name, id)
		s.log.Info("working", "model", m.Name, "fingerprint", id, "lines_at_a_time", worker.Concurrent)
		all.Go(func() {
			if err := rescue.Do(func() error { return worker.Work(ctx) }); err != nil && ctx.Err() == nil {
				s.log.Error("worker", "model", m.Name, "error", err)
			}
		})
	}
	return nil
}

// Coordinator is that of the batches; nil: there are none.
func (s *Server) Coordinator() *batch.Coordinator {
	if s.lines == nil {
		return nil
	}
	return s.lines.coordinator
}

// guard calls f, whose panic must not end the process.
func (b *lines) guard(f func() error) {
	if err := rescue.Do(f); err != nil && b.ctx.Err() == nil {
		b.s.log.Error("batches", "error", err)
	}
}

// fingerprint implements batch.Options.Fingerprint.
func (b *lines) fingerprint(ctx context.Context, name string) (string, error) {
	name = b.s.service.Resolve(name)
	m, done, err := b.s.library.Use(ctx, name)
	if errors.Is(err, library.ErrUnknown) {
		return "", fmt.Errorf("%w: %w", batch.ErrModel, err)
	}
	if err != nil {
		return "", err
	}
	defer done()
	b.mu.Lock()
	known := b.names[name]
	b.mu.Unlock()
	if known != nil && known.model == m {
		return known.id, nil
	}
	id, err := m.Fingerprint(ctx, b.o.Records)
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names[name] = &fingerprints{m, id}
	return id, nil
}

// work implements batch.Options.Work.
func (b *lines) work(model, fingerprint string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.workers[fingerprint] || b.ctx.Err() != nil {
		return
	}
	b.workers[fingerprint] = true
	b.running.Go(func() {
		b.guard(func() error {
			id, err := b.fingerprint(b.ctx, model)
			if err != nil && !errors.Is(err, batch.ErrModel) { // it may be loaded the next time
				b.mu.Lock()
				defer b.mu.Unlock()
				delete(b.workers, fingerprint)
				return err
			}
			if id != fingerprint {
				b.s.log.Warn("a batch waits for a model that this server does not have: the model was removed, or its files or options have changed since the batch began", "model", model)
				return nil
			}
			worker := b.s.worker(model, fingerprint)
			worker.Stored = b.coordinator.Stored
			return worker.Work(b.ctx)
		})
	})
}

// worker is one for the lines of a model of the server.
func (s *Server) worker(model, fingerprint string) *batch.Worker {
	o, n := s.o.Batches, s.o.Batches.Lines
	if e := s.entry(s.service.Resolve(model)); e != nil {
		n = cmp.Or(n, e.Options.MaxBatch)
	}
	return &batch.Worker{
		Store: o.Store, Queue: o.Queue, Model: fingerprint, Run: s.Run, Concurrent: cmp.Or(n, defaultLines), Log: s.log,
		Counted:  func(outcome string) { s.lineMetrics.outcomes[outcome].Add(1) },
		Diverged: func() { s.lineMetrics.diverged.Add(1) },
	}
}

// Fingerprint identifies a model of the server, which is loaded if need be.
func (s *Server) Fingerprint(ctx context.Context, model, records string) (string, error) {
	m, done, err := s.library.Use(ctx, s.service.Resolve(model))
	if err != nil {
		return "", err
	}
	defer done()
	return m.Fingerprint(ctx, records)
}

// Lines get a share of the time beside other requests, and are admitted after them, except for one at a
// time: it has the priority of other requests, so that a batch makes progress under any load.
const linePriority = -1

// Run implements batch.Run.
func (s *Server) Run(ctx context.Context, call batch.Call, endpoint string, request []byte) (*batch.Result, error) {
	res := &batch.Result{}
	c := generate.Caller{
		Tenant: call.Owner, Strict: s.o.StrictFields, Offline: true, Priority: linePriority, Prompted: call.Prompted,
		Deterministic: &generate.Deterministic{Key: call.Key, Created: call.Created},
		Reporter: func(run *generate.Run, err error) {
			if run != nil && err == nil {
				res.Cached += run.Usage().Cached
			}
		},
	}
	if s.lines != nil && s.lines.tenants[call.Owner] != "" {
		c.Tenant = s.lines.tenants[call.Owner]
	}
	if call.First {
		c.Priority = 0
	}
	err := rescue.Do(func() error {
		res.Status, res.Body = s.openai.Answer(ctx, c, endpoint, request)
		return nil
	})
	return res, errors.Join(err, ctx.Err())
}
