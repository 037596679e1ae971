package batch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Times of a coordinator.
const (
	DefaultWindow = 24 * time.Hour
	DefaultKeep   = 30 * 24 * time.Hour // of files, and of ended batches

	pollEvery      = 2 * time.Second // for results of workers elsewhere
	reconcileEvery = time.Minute     // for hints that were lost

	// listShare: a batch waits listShare times the duration of its last listing of results before the next, so
	// that listing takes a twentieth of the time.
	listShare = 20
	// maxPublish is how many hints of a batch are published before other batches are looked at.
	maxPublish = 512
)

// ErrModel is wrapped by the error for a model that there is not.
var ErrModel = errors.New("the model does not exist")

// Options configure a coordinator.
type Options struct {
	Store Store
	Queue Queue
	// Fingerprint identifies the model that lines name, and loads it if need be: ErrModel.
	Fingerprint func(ctx context.Context, model string) (string, error)
	// Work is called repeatedly with models that have lines; nil: workers are elsewhere.
	Work func(model, fingerprint string)
	Now  func() time.Time // nil: time.Now
	Log  *slog.Logger     // nil: the default
}

// Coordinator takes files and batches, queues their lines and collects the results. Its whole
// state is in the store: after a crash it continues when it is started again, and several
// coordinators may share a store.
type Coordinator struct {
	o    Options
	wake chan struct{}
	id   func() string // makes identifiers differ

	mu    sync.Mutex        // protects what follows
	work  map[string]*tally // of batches that are not over
	over  map[string]bool   // ended batches
	swept time.Time

	sweptAll time.Time // of unreferenced data
}

// tally is the progress of a running batch.
type tally struct {
	mu         sync.Mutex // held to change the rest
	plan       *Plan
	done       map[string]outcome // by key of the result
	reconciled time.Time
	publishing []Hint        // that are not published yet
	listed     time.Time     // when results were last looked for, on this machine's clock
	took       time.Duration // that it took

	now     atomic.Pointer[standing] // nil: not known
	awaited atomic.Int64             // results that are missing
}

// standing is how far a batch is.
type standing struct {
	lines  Counts
	tokens Usage
}

// outcome is the counted part of a result.
type outcome struct {
	ok    bool
	usage Usage
}

// NewCoordinator returns a coordinator. Run has it work.
func NewCoordinator(o Options) *Coordinator {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Coordinator{o: o, id: randomID, wake: make(chan struct{}, 1), work: map[string]*tally{}, over: map[string]bool{}}
}

// Wake makes Run check the batches now.
func (c *Coordinator) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Stored reports that a worker has stored a result of a batch. If it seems to be the last one, the
// batch is checked at once; otherwise at the regular interval.
func (c *Coordinator) Stored(batch string) {
	c.mu.Lock()
	t := c.work[batch]
	c.mu.Unlock()
	if t == nil || t.awaited.Add(-1) <= 0 {
		c.Wake()
	}
}

// Run works on batches until ctx ends.
func (c *Coordinator) Run(ctx context.Context) {
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for {
		if err := c.step(ctx, false); err != nil && ctx.Err() == nil {
			c.o.Log.Error("batches", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-t.C:
		}
	}
}

// Step advances all batches once. Failures are retried by the next step.
func (c *Coordinator) Step(ctx context.Context) error { return c.step(ctx, true) }

// step is Step. Unless all of it is wanted now, results that take long to list are looked for less
// often.
func (c *Coordinator) step(ctx context.Context, all bool) error {
	var list []string
	over := map[string]bool{} // still existing
	for key, err := range c.o.Store.List(ctx, "batches/") {
		if err != nil {
			return err
		}
		id := strings.TrimPrefix(key, "batches/")
		c.mu.Lock()
		over[id] = c.over[id]
		c.mu.Unlock()
		if !over[id] {
			list = append(list, id)
		}
	}
	c.mu.Lock()
	c.over = over
	c.mu.Unlock()
	var failed error
	for _, id := range list {
		for again := true; again && ctx.Err() == nil; {
			var err error
			if again, err = c.advance(ctx, id, all); err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", id, err))
				break
			}
		}
	}
	return errors.Join(failed, c.sweep(ctx))
}

// tally is the progress of a batch.
func (c *Coordinator) tally(id string) *tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.work[id]
	if t == nil {
		t = &tally{done: map[string]outcome{}}
		c.work[id] = t
	}
	return t
}

// record reads a batch.
func (c *Coordinator) record(ctx context.Context, id string) (r Record, rev uint64, err error) {
	data, rev, err := c.o.Store.Get(ctx, batchKey(id))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, rev, err
}

// change changes a batch by f, which reports whether it did; concurrent changes are retried.
func (c *Coordinator) change(ctx context.Context, id string, f func(*Record) bool) (Record, error) {
	for {
		r, rev, err := c.record(ctx, id)
		if err != nil || !f(&r) {
			return r, err
		}
		data, err := json.Marshal(r)
		if err != nil {
			return r, err
		}
		if _, err = c.o.Store.Put(ctx, batchKey(id), data, rev); !errors.Is(err, ErrConflict) {
			return r, err
		}
		if err := ctx.Err(); err != nil {
			return r, err
		}
	}
}

// happen applies an event to a batch, with further changes by f.
func (c *Coordinator) happen(ctx context.Context, id string, e Event, f func(*Record)) (Record, error) {
	return c.change(ctx, id, func(r *Record) bool {
		after, ok := r.After(e, c.o.Now())
		if ok {
			if *r = after; f != nil {
				f(r)
			}
		}
		return ok
	})
}

// advance takes a batch one state further, and reports whether to check again.
func (c *Coordinator) advance(ctx context.Context, id string, all bool) (again bool, err error) {
	r, _, err := c.record(ctx, id)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // it was swept
	}
	if err != nil {
		return false, err
	}
	late := r.ExpiresAt != 0 && c.o.Now().Unix() >= int64(r.ExpiresAt)
	switch r.Status {
	case Validating, InProgress:
		if late {
			_, err = c.happen(ctx, id, Late, nil)
			return true, err
		}
		if r.Status == Validating {
			return true, c.validate(ctx, &r)
		}
		return c.progress(ctx, &r, all)
	case Finalizing, Cancelling:
		return true, c.finalize(ctx, &r)
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.over[id] = true
		delete(c.work, id)
		return false, nil
	}
}

// plan reads the file of a batch again; it has not changed.
func (c *Coordinator) plan(ctx context.Context, r *Record) (*Plan, []Fault, error) {
	content, err := c.o.Store.Open(ctx, contentKey(r.Input))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, []Fault{{Code: "file_not_found", Param: "input_file_id", Message: "the file no longer exists"}}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	p, faults, err := validate(content, r.Endpoint)
	return p, faults, errors.Join(err, content.Close())
}

// locate sets the result key of every line.
func (p *Plan) locate(ctx context.Context, s Store, r *Record) error {
	content, err := s.Open(ctx, contentKey(r.Input))
	if err != nil {
		return err
	}
	at := 0
	err = scan(content, func(_ int, _, _ int64, raw []byte) {
		if at == len(p.Lines) {
			return // a file never changes; lines of one that did are not in the plan
		}
		l := &p.Lines[at]
		if at++; l.Fault == nil {
			q, _ := parse(raw) // as it was when the plan was made
			l.Key = resultKey(r.ID, r.Fingerprint, q.Endpoint, q.seeded(r.ID))
		}
	})
	return errors.Join(err, content.Close())
}

// validate validates the file of a batch.
func (c *Coordinator) validate(ctx context.Context, r *Record) error {
	p, faults, err := c.plan(ctx, r)
	if err != nil {
		return err
	}
	var fingerprint string
	if faults == nil {
		fingerprint, err = c.o.Fingerprint(ctx, p.Model)
		if errors.Is(err, ErrModel) {
			faults = []Fault{{Code: "model_not_found", Param: "body.model", Message: err.Error(), Line: p.Lines[0].Number}}
		} else if err != nil {
			return err
		}
	}
	if faults != nil {
		_, err = c.happen(ctx, r.ID, Invalid, func(r *Record) { r.Errors = &Faults{Object: "list", Data: faults} })
		return err
	}
	after, err := c.happen(ctx, r.ID, Valid, func(r *Record) {
		r.Model, r.Fingerprint, r.Counts.Total = p.Model, fingerprint, len(p.Lines)
	})
	if err != nil || after.Status != InProgress {
		return err
	}
	if err := p.locate(ctx, c.o.Store, &after); err != nil {
		return err
	}
	t := c.tally(r.ID)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.plan = p // it need not be read again
	return nil
}

// progress lists the results and queues missing ones. It reports whether all exist.
func (c *Coordinator) progress(ctx context.Context, r *Record, all bool) (again bool, err error) {
	t := c.tally(r.ID)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.plan == nil {
		p, faults, err := c.plan(ctx, r)
		if err != nil {
			return false, err
		}
		if faults != nil { // the file is gone: deliver the existing results
			_, err = c.happen(ctx, r.ID, Late, nil)
			return true, err
		}
		if err := p.locate(ctx, c.o.Store, r); err != nil {
			return false, err
		}
		t.plan = p
	}
	if c.o.Work != nil {
		c.o.Work(r.Model, r.Fingerprint)
	}
	if len(t.publishing) > 0 {
		return false, c.publish(ctx, t)
	}
	now := c.o.Now()
	due := t.reconciled.IsZero() || now.Sub(t.reconciled) >= reconcileEvery
	if !all && !due && t.awaited.Load() > 0 && time.Since(t.listed) < listShare*t.took {
		return false, nil
	}
	outstanding := 0
	if due { // before the results are listed: a worker finishes a hint after storing its result
		if outstanding, err = c.o.Queue.Outstanding(ctx, r.Fingerprint, r.ID); err != nil {
			return false, err
		}
	}
	began := time.Now()
	if _, err := t.refresh(ctx, c.o.Store, r.ID); err != nil {
		return false, err
	}
	t.listed, t.took = time.Now(), time.Since(began)
	n, u := t.counts()
	t.now.Store(&standing{n, u})
	missing := t.missing(r)
	t.awaited.Store(int64(len(missing)))
	if len(missing) == 0 {
		_, err = c.happen(ctx, r.ID, Done, nil)
		return true, err
	}
	if due {
		t.reconciled = now
	}
	if due && outstanding == 0 {
		t.publishing = missing
		return false, c.publish(ctx, t)
	}
	return false, nil
}

// publish publishes some hints of a batch. The rest follow after a check of other batches:
// tens of thousands take seconds, and a batch may be canceled meanwhile. After an error it continues
// there the next time.
func (c *Coordinator) publish(ctx context.Context, t *tally) error {
	n := min(len(t.publishing), maxPublish)
	if err := c.o.Queue.Publish(ctx, t.publishing[:n]); err != nil {
		return err
	}
	if t.publishing = t.publishing[n:]; len(t.publishing) > 0 {
		c.Wake()
	}
	return nil
}

// missing are the hints of lines without a result, in the order that they should run in.
func (t *tally) missing(r *Record) []Hint {
	var list []Hint
	asked := map[string]bool{} // two lines may be the same request
	for _, l := range t.plan.inOrder {
		if _, ok := t.done[l.Key]; !ok && !asked[l.Key] {
			asked[l.Key] = true
			list = append(list, l.hint(r))
		}
	}
	return list
}

// refresh reads the results that came since the last time, and returns the keys of all.
func (t *tally) refresh(ctx context.Context, s Store, id string) (there map[string]bool, err error) {
	there = map[string]bool{}
	for key, err := range s.List(ctx, "results/"+id+"/") {
		if err != nil {
			return nil, err
		}
		there[key] = true
		if _, ok := t.done[key]; ok {
			continue
		}
		res, err := readResult(ctx, s, key)
		if err != nil {
			return nil, err
		}
		t.done[key] = outcome{res.OK(), res.usage()}
	}
	return there, nil
}

// counts are the lines so far, and their tokens.
func (t *tally) counts() (n Counts, u Usage) {
	n.Total = len(t.plan.Lines)
	for i := range t.plan.Lines {
		l := &t.plan.Lines[i]
		x, ok := t.done[l.Key]
		switch {
		case l.Fault != nil, ok && !x.ok:
			n.Failed++
		case ok:
			n.Completed++
			u.add(&x.usage)
		}
	}
	return n, u
}

// readResult reads a result. One that is damaged is removed: it will be made again.
func readResult(ctx context.Context, s Store, key string) (*Result, error) {
	f, err := s.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	var r Result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: it is damaged: %w", key, err), s.Delete(ctx, key))
	}
	return &r, nil
}

// newID is an identifier; later ones sort after earlier ones.
func (c *Coordinator) newID(prefix string) string {
	return fmt.Sprintf("%s%011x%s", prefix, c.o.Now().UnixMilli(), c.id())
}

func randomID() string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails, by its contract
	return hex.EncodeToString(b[:])
}
