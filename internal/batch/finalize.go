package batch

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"time"
)

// finalize writes the results of a batch, in the order of its lines. It may be interrupted
// and repeated: names of its output are a function of the batch's, and files are written atomically.
func (c *Coordinator) finalize(ctx context.Context, r *Record) error {
	if r.Fingerprint != "" {
		if err := c.o.Queue.Drop(ctx, r.Fingerprint, r.ID); err != nil {
			return err
		}
	}
	t := c.tally(r.ID)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := c.replan(ctx, r, t); err != nil {
		return err
	}
	there, err := t.refresh(ctx, c.o.Store, r.ID)
	if err != nil {
		return err
	}
	if lost := t.lost(there); lost > 0 && r.Ending == Completed {
		c.o.Log.Error("batch: results have disappeared from the store and are computed again", "batch", r.ID, "results", lost)
		t.reconciled = time.Time{} // at once
		_, err := c.happen(ctx, r.ID, Lost, nil)
		return err
	}
	n, u, output, failed, err := c.outputs(ctx, r, t)
	if err != nil {
		return err
	}
	_, err = c.happen(ctx, r.ID, Written, func(r *Record) {
		r.Output, r.ErrorFile, r.Counts, r.Usage = output, failed, n, &u
	})
	if err != nil {
		return err
	}
	return removeAll(ctx, c.o.Store, "results/"+r.ID+"/")
}

// removeAll deletes all that begins with a prefix.
func removeAll(ctx context.Context, s Store, prefix string) error {
	for key, err := range s.List(ctx, prefix) {
		if err == nil {
			err = s.Delete(ctx, key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// replan makes the plan of a batch if another coordinator validated it.
func (c *Coordinator) replan(ctx context.Context, r *Record, t *tally) error {
	if t.plan != nil || r.Fingerprint == "" {
		return nil
	}
	p, faults, err := c.plan(ctx, r)
	if err == nil && faults == nil {
		if err = p.locate(ctx, c.o.Store, r); err == nil {
			t.plan = p
		}
	}
	return err
}

// lost forgets results that are not there any more, as when the disk of the store lost power, and
// counts the lines without one.
func (t *tally) lost(there map[string]bool) (n int) {
	if t.plan == nil {
		return 0
	}
	for _, l := range t.plan.inOrder {
		if !there[l.Key] {
			delete(t.done, l.Key)
			n++
		}
	}
	return n
}

// outputs writes the files of a batch, and returns their counts and names.
func (c *Coordinator) outputs(ctx context.Context, r *Record, t *tally) (n Counts, u Usage, output, failed string, err error) {
	n.Total = r.Counts.Total
	if t.plan == nil { // it was never one, or its file is gone
		return n, u, "", "", nil
	}
	output, ids, u, err := c.outputFile(ctx, r, t.plan, nil)
	if err != nil {
		return n, u, "", "", err
	}
	answered := map[string]bool{}
	for _, id := range ids {
		answered[id] = true
	}
	failed, others, _, err := c.outputFile(ctx, r, t.plan, answered)
	if err != nil {
		return n, u, "", "", err
	}
	_, known := t.counts()
	n.Completed, n.Failed, u.InputDetails = len(ids), len(others), known.InputDetails
	return n, u, output, failed, nil
}

// outputFile writes one of the files of a batch, if it has lines: the answers, or,
// if answered is not nil, the lines without an answer there. It returns the custom ids of the
// file, one for each line: an earlier coordinator may have written it.
func (c *Coordinator) outputFile(ctx context.Context, r *Record, p *Plan, answered map[string]bool) (id string, ids []string, u Usage, err error) {
	purpose, suffix := "batch_output", "_output.jsonl"
	if answered != nil {
		suffix = "_error.jsonl"
	}
	id = name("file-", r.ID, suffix)
	content := &lineReader{next: p.outputs(ctx, c.o.Store, r, answered)}
	some, err := content.some()
	if err != nil {
		return "", nil, u, err
	}
	if some {
		if err = c.o.Store.Create(ctx, contentKey(id), content); err != nil && !errors.Is(err, ErrExists) {
			return "", nil, u, err
		}
	}
	written, err := c.o.Store.Open(ctx, contentKey(id))
	if errors.Is(err, fs.ErrNotExist) && !some {
		return "", nil, u, nil
	}
	if err != nil {
		return "", nil, u, err
	}
	size, ids, u, err := count(written)
	if err = errors.Join(err, written.Close()); err != nil {
		return "", nil, u, err
	}
	keep := DefaultKeep
	if r.KeepOutput > 0 {
		keep = time.Duration(r.KeepOutput) * time.Second
	}
	now := c.o.Now()
	file := fileRecord{File{
		ID: id, Object: "file", Bytes: size, CreatedAt: Seconds(now.Unix()), ExpiresAt: Seconds(now.Add(keep).Unix()),
		Filename: r.ID + suffix, Purpose: purpose, Status: "processed",
	}, r.Owner}
	data, err := json.Marshal(file)
	if err == nil {
		_, err = c.o.Store.Put(ctx, fileKey(id), data, 0)
	}
	if errors.Is(err, ErrConflict) {
		err = nil // it is there
	}
	return id, ids, u, err
}

// outputs yields the lines of a file, nil at the end: the answers, or, if answered is not nil, the failed
// lines. An answer that came after the answers were written is too late.
func (p *Plan) outputs(ctx context.Context, s Store, r *Record, answered map[string]bool) func() ([]byte, error) {
	at := 0
	return func() ([]byte, error) {
		for at < len(p.Lines) {
			l := &p.Lines[at]
			if at++; answered[l.CustomID] {
				continue
			}
			res, err := &Result{Error: l.Fault}, error(nil)
			if l.Fault == nil {
				res, err = readResult(ctx, s, l.Key)
			}
			missing := errors.Is(err, fs.ErrNotExist) || err == nil && res.OK() && answered != nil
			switch {
			case missing && r.Ending == Expired:
				res = &Result{Error: &Fault{Code: "batch_expired", Message: "the line was not reached before the batch expired"}}
			case missing:
				continue // canceled
			case err != nil:
				return nil, err
			}
			if res.OK() == (answered == nil) {
				return l.output(r.ID, res), nil
			}
		}
		return nil, nil
	}
}

// lineReader reads lines one after the other.
type lineReader struct {
	next func() ([]byte, error)
	left []byte
}

// some reports whether there is a line.
func (r *lineReader) some() (bool, error) {
	if len(r.left) == 0 {
		var err error
		if r.left, err = r.next(); err != nil {
			return false, err
		}
	}
	return len(r.left) > 0, nil
}

// Read implements io.Reader.
func (r *lineReader) Read(to []byte) (int, error) {
	some, err := r.some()
	if err != nil {
		return 0, err
	}
	if !some {
		return 0, io.EOF
	}
	n := copy(to, r.left)
	r.left = r.left[n:]
	return n, nil
}

// count reads a file of results: its bytes, the custom id of each line, "" for none, and the tokens.
func count(r io.Reader) (size int64, ids []string, u Usage, err error) {
	b := bufio.NewReader(r)
	for {
		line, err := b.ReadBytes('\n')
		size += int64(len(line))
		if len(bytes.TrimSpace(line)) > 0 {
			var o outputLine
			if json.Unmarshal(line, &o) == nil && o.Response != nil {
				x := (&Result{Body: o.Response.Body}).usage()
				u.add(&x)
			}
			id := ""
			if o.CustomID != nil {
				id = *o.CustomID
			}
			ids = append(ids, id)
		}
		if errors.Is(err, io.EOF) {
			return size, ids, u, nil
		}
		if err != nil {
			return size, ids, u, err
		}
	}
}

// usage is the tokens of a result.
func (r *Result) usage() (u Usage) {
	var body struct {
		Usage struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
			Details    struct {
				Reasoning int64 `json:"reasoning_tokens"`
			} `json:"completion_tokens_details"`
			Input         int64 `json:"input_tokens"`
			Output        int64 `json:"output_tokens"`
			OutputDetails struct {
				Reasoning int64 `json:"reasoning_tokens"`
			} `json:"output_tokens_details"`
		} `json:"usage"`
	}
	if json.Unmarshal(r.Body, &body) != nil {
		return u
	}
	b := &body.Usage
	u.Input, u.Output = b.Prompt+b.Input, b.Completion+b.Output
	u.OutputDetails.Reasoning = b.Details.Reasoning + b.OutputDetails.Reasoning
	u.InputDetails.Cached = int64(r.Cached)
	u.Total = u.Input + u.Output
	return u
}

// add adds the tokens of another.
func (u *Usage) add(v *Usage) {
	u.Input += v.Input
	u.InputDetails.Cached += v.InputDetails.Cached
	u.Output += v.Output
	u.OutputDetails.Reasoning += v.OutputDetails.Reasoning
	u.Total += v.Total
}
