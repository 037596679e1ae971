package batch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	maxAttempts  = 5
	workingEvery = 10 * time.Second
	// retryAfter is how long a line waits that could not be answered now, times its attempts.
	retryAfter = 2 * time.Second
	// maxWait is how long a result waits at most before it is seen whether there is space again.
	maxWait = 30 * time.Second
)

// errBusy reports that the model takes no request now. It says nothing about the line.
var errBusy = errors.New("the model is busy")

// Results of lines, for metrics.
const (
	LineCompleted = "completed"
	LineFailed    = "failed"  // it has an error
	LineFound     = "found"   // its result was there
	LineRetried   = "retried" // it will be tried again
)

// LineOutcomes are all of them.
var LineOutcomes = []string{LineCompleted, LineFailed, LineFound, LineRetried}

// Call describes the line that a Run answers.
type Call struct {
	Owner   string    // of the batch
	Key     string    // of the result: identifiers in the response are a function of it
	Created time.Time // creation time of the response
	// First is true for one running line at a time. It may run with the priority of other
	// requests, so that a batch makes progress under any load.
	First bool
	// Prompted is to be called when the prompt has been processed: lines with the same prefix find it
	// then. It may be called again, or not at all, and may be nil.
	Prompted func()
}

// Worker makes the results of lines of one model.
type Worker struct {
	Store      Store
	Queue      Queue
	Model      string // its fingerprint
	Run        Run
	Concurrent int                  // lines at a time
	Log        *slog.Logger         // nil: the default
	Counted    func(outcome string) // called for every line; may be nil
	Diverged   func()               // called if a result differs from the stored one; may be nil
	Stored     func(batch string)   // called after a result was stored; may be nil
}

// Work answers lines until ctx ends. It waits for running lines.
func (w *Worker) Work(ctx context.Context) error {
	if w.Log == nil {
		w.Log = slog.Default()
	}
	h := newFetchedLines(max(w.Concurrent, 1))
	var running, fetching sync.WaitGroup
	fetching.Go(func() { w.fetch(ctx, h) })
	defer func() {
		fetching.Wait()
		for _, l := range h.empty() {
			w.tell(l, l.Return())
		}
		running.Wait()
	}()
	t := time.NewTicker(workingEvery)
	defer t.Stop()
	for ctx.Err() == nil {
		l, changed := h.next()
		if l != nil {
			running.Go(func() {
				defer h.done(l)
				w.handle(ctx, l, Call{First: l.slot == 0, Prompted: func() { h.prompted(l) }})
			})
			continue
		}
		select {
		case <-changed:
		case <-t.C:
			for _, l := range h.reviewWaiting() {
				w.tell(l, l.Working())
			}
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// fetch fetches lines for all slots, until ctx ends.
func (w *Worker) fetch(ctx context.Context, h *fetchedLines) {
	for ctx.Err() == nil {
		n, changed := h.room()
		if n == 0 {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		list, err := w.Queue.Fetch(ctx, w.Model, n)
		if err != nil && ctx.Err() == nil {
			w.Log.Warn("batch: fetching lines from the queue failed", "error", err)
			pause(ctx, retryAfter)
		}
		h.add(list)
	}
}

// tell logs that the queue could not be updated.
func (w *Worker) tell(d Delivery, err error) {
	if err != nil {
		w.Log.Warn("batch: reporting a line to the queue failed", "batch", d.Hint().Batch, "line", d.Hint().Line, "error", err) // it will say it again
	}
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// handle computes the result of a line, and reports it to the queue.
func (w *Worker) handle(ctx context.Context, d Delivery, c Call) {
	outcome, err := w.line(ctx, d, c)
	h := d.Hint()
	switch {
	case err == nil:
		err = d.Done()
	case ctx.Err() != nil:
		err = d.Return() // another worker may take it at once
	default:
		w.Log.Warn("batch: a line failed and will be retried", "batch", h.Batch, "line", h.Line, "attempt", d.Attempts(), "error", err)
		outcome = LineRetried
		err = d.Later(retryAfter * time.Duration(d.Attempts()))
	}
	w.tell(d, err)
	if w.Counted != nil && outcome != "" {
		w.Counted(outcome)
	}
	if w.Stored != nil && outcome != "" && outcome != LineRetried {
		w.Stored(h.Batch)
	}
}

// line computes the result of a line, if it does not exist. An error means a retry.
func (w *Worker) line(ctx context.Context, d Delivery, c Call) (outcome string, err error) {
	h := d.Hint()
	data, _, err := w.Store.Get(ctx, batchKey(h.Batch))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // it is over and gone
	}
	if err != nil {
		return "", err
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return "", fmt.Errorf("%s is damaged: %w", h.Batch, err)
	}
	if r.Status != InProgress || r.Fingerprint != w.Model || h.File != contentKey(r.Input) {
		return "", nil // the batch has ended, or the hint is wrong
	}
	raw, err := w.Store.Range(ctx, h.File, h.Offset, h.Length)
	if err != nil {
		return "", err
	}
	q, fault := parse(raw)
	if fault != nil || q.Endpoint != r.Endpoint || !slices.Contains(Endpoints, q.Endpoint) {
		w.Log.Error("batch: a queue message does not refer to a request", "batch", h.Batch, "line", h.Line)
		return "", nil // the coordinator queues missing lines again
	}
	request := q.seeded(h.Batch)
	key := resultKey(h.Batch, w.Model, q.Endpoint, request)
	switch f, err := w.Store.Open(ctx, key); {
	case err == nil:
		return LineFound, f.Close()
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer w.keep(ctx, cancel, d)()
	res := &Result{Error: &Fault{Code: "too_many_attempts", Message: fmt.Sprintf("the line was tried %d times and did not end", maxAttempts)}}
	if d.Attempts() <= maxAttempts {
		// If the model is busy the line waits in its slot: that does not count as an attempt.
		for wait := retryAfter; ; wait = min(2*wait, maxWait) {
			res, err = w.answer(ctx, d, &r, q.Endpoint, request, key, c)
			if !errors.Is(err, errBusy) || ctx.Err() != nil {
				break
			}
			w.Log.Warn("batch: a line waits for the model", "batch", h.Batch, "line", h.Line, "error", err)
			pause(ctx, wait)
		}
		switch {
		case errors.Is(context.Cause(ctx), errUnwanted):
			return "", nil
		case res == nil:
			return "", err
		}
	}
	// If the store is full, the result waits for space, and keeps its slot: computing it again would
	// take longer, and after some attempts it would be lost.
	for wait := retryAfter; ; wait = min(2*wait, maxWait) {
		outcome, err = w.store(ctx, &h, key, res)
		if !errors.Is(err, ErrFull) || ctx.Err() != nil {
			break
		}
		w.Log.Warn("batch: a result waits for space in the store", "batch", h.Batch, "line", h.Line, "error", err)
		pause(ctx, wait)
	}
	if errors.Is(context.Cause(ctx), errUnwanted) {
		return "", nil
	}
	return outcome, err
}

// answer asks the model. No result means that the batch has ended, or with an error that the line is
// to be retried.
func (w *Worker) answer(ctx context.Context, d Delivery, r *Record, endpoint string, request []byte, key string, c Call) (*Result, error) {
	c.Owner, c.Key, c.Created = r.Owner, key, time.Unix(int64(r.CreatedAt), 0)
	res, err := w.Run(ctx, c, endpoint, request)
	if err == nil && c.Prompted != nil {
		c.Prompted()
	}
	switch {
	case errors.Is(context.Cause(ctx), errUnwanted):
		return nil, nil
	case err == nil && (res.Status == http.StatusTooManyRequests || res.Status == http.StatusServiceUnavailable):
		return nil, fmt.Errorf("%w: status %d: %.200s", errBusy, res.Status, res.Body)
	case err == nil && res.Status >= http.StatusInternalServerError:
		err = fmt.Errorf("status %d: %.200s", res.Status, res.Body)
	case err == nil:
		return res, nil
	}
	if ctx.Err() == nil && d.Attempts() >= maxAttempts {
		return &Result{Error: &Fault{Code: "too_many_attempts", Message: fmt.Sprintf("the line was tried %d times; the last error: %v", maxAttempts, err)}}, nil
	}
	return nil, err
}

// errUnwanted ends a line whose batch has ended.
var errUnwanted = errors.New("the batch has ended")

// keep renews the lease of a line, and cancels the line if its batch has ended.
// stop ends that. After stop has returned, keep does not call the queue for this line again.
func (w *Worker) keep(ctx context.Context, cancel context.CancelCauseFunc, d Delivery) (stop func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.watch(ctx, cancel, d)
	}()
	return func() {
		cancel(nil)
		<-ended
	}
}

// watch is keep until ctx ends.
func (w *Worker) watch(ctx context.Context, cancel context.CancelCauseFunc, d Delivery) {
	t := time.NewTicker(workingEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		w.tell(d, d.Working())
		var r Record
		if data, _, err := w.Store.Get(ctx, batchKey(d.Hint().Batch)); err == nil && json.Unmarshal(data, &r) == nil && r.Status != InProgress {
			cancel(errUnwanted)
		}
	}
}

// store keeps a result. One that is there already must be the same.
func (w *Worker) store(ctx context.Context, h *Hint, key string, res *Result) (string, error) {
	data, err := encode(res)
	if err != nil {
		return "", err
	}
	err = w.Store.Create(ctx, key, bytes.NewReader(data))
	if errors.Is(err, ErrExists) {
		there, err := readResult(ctx, w.Store, key)
		if err != nil {
			return "", err
		}
		if there.Error == nil && res.Error == nil && !there.same(res) {
			w.Log.Error("batch: two workers gave different answers to the same request: their models, builds or processors differ, or one is damaged", "batch", h.Batch, "line", h.Line, "result", key)
			if w.Diverged != nil {
				w.Diverged()
			}
		}
		return LineFound, nil
	}
	if err != nil {
		return "", err
	}
	if res.OK() {
		return LineCompleted, nil
	}
	return LineFailed, nil
}
