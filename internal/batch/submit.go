package batch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"time"
)

// Submission is a batch that is wanted.
type Submission struct {
	ID                     string // of the batch; "": a new one
	Owner, Input, Endpoint string
	Metadata               map[string]string
	KeepOutput             time.Duration // 0: as long as by default
	Window                 time.Duration // 0: DefaultWindow
}

// Submit begins a batch with a file of its owner: fs.ErrNotExist.
func (c *Coordinator) Submit(ctx context.Context, s Submission) (Batch, error) {
	if _, err := c.File(ctx, s.Owner, s.Input); err != nil {
		return Batch{}, err
	}
	now := c.o.Now()
	r := Record{Owner: s.Owner, KeepOutput: int64(s.KeepOutput / time.Second), Batch: Batch{
		ID: cmp.Or(s.ID, c.newID("batch_")), Object: "batch", Endpoint: s.Endpoint, Input: s.Input, Window: "24h", Status: Validating,
		CreatedAt: Seconds(now.Unix()), ExpiresAt: Seconds(now.Add(cmp.Or(s.Window, DefaultWindow)).Unix()), Metadata: s.Metadata,
	}}
	data, err := json.Marshal(r)
	if err == nil {
		_, err = c.o.Store.Put(ctx, batchKey(r.ID), data, 0)
	}
	if err != nil {
		return Batch{}, err
	}
	c.Wake()
	return r.Batch, nil
}

// Batch is the current state of a batch of an owner: fs.ErrNotExist.
func (c *Coordinator) Batch(ctx context.Context, owner, id string) (Batch, error) {
	if !validKey.MatchString(batchKey(id)) {
		return Batch{}, fs.ErrNotExist
	}
	r, _, err := c.record(ctx, id)
	if err == nil && r.Owner != owner {
		err = fs.ErrNotExist
	}
	if err == nil {
		c.fill(&r)
	}
	return r.Batch, err
}

// fill adds the counts so far to a batch that is not over.
func (c *Coordinator) fill(r *Record) {
	if r.Status.Over() {
		return
	}
	c.mu.Lock()
	t := c.work[r.ID]
	c.mu.Unlock()
	if t == nil {
		return
	}
	if now := t.now.Load(); now != nil {
		r.Counts, r.Usage = now.lines, &now.tokens
	}
}

// Batches lists the batches of an owner, and reports whether there are more.
func (c *Coordinator) Batches(ctx context.Context, owner string, p Page) ([]Batch, bool, error) {
	list, err := all[Record](ctx, c.o.Store, "batches/")
	if err != nil {
		return nil, false, err
	}
	var batches []Batch
	for _, r := range list {
		if r.Owner == owner {
			c.fill(&r)
			batches = append(batches, r.Batch)
		}
	}
	batches, more := page(batches, p, func(b Batch) (string, Seconds) { return b.ID, b.CreatedAt })
	return batches, more, nil
}

// Cancel ends a batch of an owner; finished results are delivered: fs.ErrNotExist, ErrOver.
func (c *Coordinator) Cancel(ctx context.Context, owner, id string) (Batch, error) {
	b, err := c.Batch(ctx, owner, id)
	if err != nil {
		return b, err
	}
	if b.Status != Cancelling {
		r, err := c.happen(ctx, id, Cancel, nil)
		if err != nil {
			return b, err
		}
		c.fill(&r)
		b = r.Batch
	}
	if b.Status != Cancelling {
		return b, fmt.Errorf("%w: it is %s", ErrOver, b.Status)
	}
	c.Wake()
	return b, nil
}

// Waiting is how many lines of batches have no result yet.
func (c *Coordinator) Waiting() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.work {
		if now := t.now.Load(); now != nil {
			n += now.lines.Total - now.lines.Completed - now.lines.Failed
		}
	}
	return n
}
