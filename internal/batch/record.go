package batch

import (
	"encoding/json"
	"slices"
	"time"
)

// Status is the state of a batch.
type Status string

// The states of a batch.
const (
	Validating Status = "validating"
	Failed     Status = "failed"
	InProgress Status = "in_progress"
	Finalizing Status = "finalizing"
	Completed  Status = "completed"
	Expired    Status = "expired"
	Cancelling Status = "cancelling"
	Cancelled  Status = "cancelled"
)

// Over reports whether the status is final.
func (s Status) Over() bool {
	return slices.Contains([]Status{Failed, Completed, Expired, Cancelled}, s)
}

// Event is an event of a batch.
type Event int

// Events of a batch.
const (
	Valid   Event = iota // its file is one
	Invalid              // its file is not valid
	Done                 // all of its lines have results
	Late                 // its time is over
	Cancel               // its owner cancels it
	Written              // its output is written
	Lost                 // a result is gone before its output was there
)

// Seconds is a time as the protocol has it; 0: not yet.
type Seconds int64

// MarshalJSON implements json.Marshaler.
func (s Seconds) MarshalJSON() ([]byte, error) {
	if s == 0 {
		return []byte("null"), nil
	}
	return json.Marshal(int64(s))
}

// Batch is a batch as the protocol has it.
type Batch struct {
	ID           string            `json:"id"`
	Object       string            `json:"object"`
	Endpoint     string            `json:"endpoint"`
	Model        string            `json:"model,omitempty"` // that its lines name
	Errors       *Faults           `json:"errors"`
	Input        string            `json:"input_file_id"`
	Window       string            `json:"completion_window"`
	Status       Status            `json:"status"`
	Output       string            `json:"output_file_id,omitempty"`
	ErrorFile    string            `json:"error_file_id,omitempty"`
	CreatedAt    Seconds           `json:"created_at"`
	InProgressAt Seconds           `json:"in_progress_at"`
	ExpiresAt    Seconds           `json:"expires_at"`
	FinalizingAt Seconds           `json:"finalizing_at"`
	CompletedAt  Seconds           `json:"completed_at"`
	FailedAt     Seconds           `json:"failed_at"`
	ExpiredAt    Seconds           `json:"expired_at"`
	CancellingAt Seconds           `json:"cancelling_at"`
	CancelledAt  Seconds           `json:"cancelled_at"`
	Counts       Counts            `json:"request_counts"`
	Usage        *Usage            `json:"usage,omitempty"`
	Metadata     map[string]string `json:"metadata"`
}

// Faults are why a file is not a batch.
type Faults struct {
	Object string  `json:"object"`
	Data   []Fault `json:"data"`
}

// Counts are the lines of a batch.
type Counts struct {
	Total     int `json:"total"`
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
}

// Usage is the tokens of a batch.
type Usage struct {
	Input        int64 `json:"input_tokens"`
	InputDetails struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Output        int64 `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int64 `json:"total_tokens"`
}

// Record is the stored state of a batch.
type Record struct {
	Batch
	Owner       string `json:"owner"`         // "": there are no owners
	Fingerprint string `json:"fingerprint"`   // of the model, once it is validated
	KeepOutput  int64  `json:"keep_output_s"` // how long its output is kept; 0: the default
	Ending      Status `json:"ending"`        // its status after its output is written
}

// next is the state after an event, and whether the event can happen in a state.
func next(s Status, e Event) (Status, bool) {
	switch {
	case s == Validating && e == Valid:
		return InProgress, true
	case s == Validating && e == Invalid:
		return Failed, true
	case s == InProgress && (e == Done || e == Late):
		return Finalizing, true
	case (s == Validating || s == InProgress) && e == Cancel:
		return Cancelling, true
	case s == Validating && e == Late:
		return Finalizing, true
	case s == Finalizing && e == Lost:
		return InProgress, true
	case (s == Finalizing || s == Cancelling) && e == Written:
		return Completed, true // or its Ending
	}
	return s, false
}

// After is the record after an event, and whether the event applies to it. Times never
// decrease, even if the clock does.
func (r Record) After(e Event, now time.Time) (Record, bool) {
	status, ok := next(r.Status, e)
	if !ok {
		return r, false
	}
	switch e {
	case Done:
		r.Ending = Completed
	case Late:
		r.Ending = Expired
	case Cancel:
		r.Ending = Cancelled
	case Written:
		status = r.Ending
	case Lost:
		r.Ending, r.FinalizingAt = "", 0
	case Valid, Invalid:
	}
	at := max(Seconds(now.Unix()), r.latest(), 1)
	r.Status = status
	*r.time(status) = at
	return r, true
}

// time is when a state was reached.
func (r *Record) time(s Status) *Seconds {
	switch s {
	case InProgress:
		return &r.InProgressAt
	case Finalizing:
		return &r.FinalizingAt
	case Completed:
		return &r.CompletedAt
	case Failed:
		return &r.FailedAt
	case Expired:
		return &r.ExpiredAt
	case Cancelling:
		return &r.CancellingAt
	case Cancelled:
		return &r.CancelledAt
	case Validating:
	}
	return &r.CreatedAt
}

// latest is the last time that something happened.
func (r *Record) latest() Seconds {
	return max(r.CreatedAt, r.InProgressAt, r.FinalizingAt, r.CompletedAt, r.FailedAt, r.ExpiredAt, r.CancellingAt, r.CancelledAt)
}

// File is a file as the protocol has it.
type File struct {
	ID        string  `json:"id"`
	Object    string  `json:"object"`
	Bytes     int64   `json:"bytes"`
	CreatedAt Seconds `json:"created_at"`
	ExpiresAt Seconds `json:"expires_at"`
	Filename  string  `json:"filename"`
	Purpose   string  `json:"purpose"`
	Status    string  `json:"status"`
}

// fileRecord is the stored metadata of a file.
type fileRecord struct {
	File
	Owner string `json:"owner"`
}

// Keys of the store.
func batchKey(id string) string   { return "batches/" + id }
func fileKey(id string) string    { return "files/" + id }
func contentKey(id string) string { return "content/" + id }
