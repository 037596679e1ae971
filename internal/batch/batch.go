// Package batch runs files of requests. It knows the format of a file, the results
// and the state of a batch, but not HTTP, models or a particular queue.
//
// The file of requests, which never changes, and the results, each under the hash of all
// its inputs, are authoritative. A queue holds only hints that a result may be missing: hints may
// be lost, duplicated or delayed; results may not.
package batch

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

// Errors of a Store.
var (
	ErrExists   = errors.New("it exists already")
	ErrConflict = errors.New("it was changed concurrently")
	ErrFull     = errors.New("no space is left")
	// ErrUnreachable reports that the store does not answer.
	ErrUnreachable = errors.New("it cannot be reached")
)

// Store keeps files, results and the states of batches. A missing key is fs.ErrNotExist.
// It is safe for concurrent use, also by several processes with the same location.
type Store interface {
	// Create stores the contents of r under a new key, or nothing: ErrExists, ErrFull. When it
	// returns, a crash of the machine does not undo it.
	Create(ctx context.Context, key string, r io.Reader) error
	// Open reads a created value.
	Open(ctx context.Context, key string) (io.ReadCloser, error)
	// Range reads a part of a created value.
	Range(ctx context.Context, key string, offset, length int64) ([]byte, error)

	// Put changes a small record whose revision is still rev, 0 for one that is not there, and
	// returns its next revision: ErrConflict, ErrFull.
	Put(ctx context.Context, key string, data []byte, rev uint64) (uint64, error)
	// Get reads a record.
	Get(ctx context.Context, key string) (data []byte, rev uint64, err error)

	// Delete removes a key, if it exists.
	Delete(ctx context.Context, key string) error
	// List lists the keys that begin with a prefix, in order.
	List(ctx context.Context, prefix string) iter.Seq2[string, error]
}

// Sweeper is a Store that may have unreferenced data, for example of a process that was killed during
// Create.
type Sweeper interface {
	// Sweep deletes unreferenced data that was stored before a time.
	Sweep(ctx context.Context, before time.Time) error
}

// Hint is a line whose result may be missing.
type Hint struct {
	Batch  string `json:"batch"`
	Model  string `json:"model"` // its fingerprint: any worker with that model can run the line
	File   string `json:"file"`  // key of the file of requests
	Line   int    `json:"line"`  // from 1
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
	// Prefixes of its prompt that other lines have too, the shortest first, separated by spaces.
	// A worker with several such lines starts one of them first.
	Prefixes string `json:"prefixes,omitempty"`
}

// Queue spreads hints over workers. It is safe for concurrent use.
type Queue interface {
	// Publish adds hints, in order. One that was added minutes ago may be left out.
	Publish(ctx context.Context, hints []Hint) error
	// Fetch waits for hints of a model, and returns at least one and at most n.
	Fetch(ctx context.Context, model string, n int) ([]Delivery, error)
	// Outstanding is the number of unfinished hints of a batch.
	Outstanding(ctx context.Context, model, batch string) (int, error)
	// Drop forgets the hints of a batch.
	Drop(ctx context.Context, model, batch string) error
}

// Delivery is a hint leased to one worker. If the worker does not renew it for a while, the queue
// gives the hint to another worker.
type Delivery interface {
	Hint() Hint
	Attempts() int // how often it was delivered, with this time
	Working() error
	Done() error
	Later(after time.Duration) error
	// Return gives it back at once, and does not count as a delivery: the worker stops for
	// reasons unrelated to the line.
	Return() error
}

// Run answers a request of a line as the endpoint of the server would.
type Run func(ctx context.Context, c Call, endpoint string, request []byte) (*Result, error)
