// Package model is the engine's interface to a model: tokens in, logits and hidden rows
// out, for a batch of sequences at a time. It is also the program's interface to
// families, which register themselves here: all use of a checkpoint goes through
// Family, and only a blank import names one.
package model

import (
	"context"
	"log/slog"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/state"
)

// Model is a language model with its weights. One goroutine uses it at a time.
type Model interface {
	Info() Info
	// Layout is the state that a sequence needs.
	Layout() state.Layout
	// Forward feeds every span to its sequence. Spans are of different sequences. After an
	// error the spans' states are undefined and must be closed.
	Forward(batch []Span) (Output, error)
	// Head is the multi-token-prediction head, nil if there is none or Options leave it out.
	Head() Head
	// Release frees the memory of calls, the head's too, and so the passes that devices have recorded. The next call allocates
	// it again.
	Release()
	// Close frees the weights, the head's too.
	Close() error
}

// Info describes a model to people and to the engine.
type Info struct {
	Family     string  // model_type of the checkpoint
	Vocab      int     // length of a row of logits, padding included
	Width      int     // of a hidden row
	Layers     int     // without the head's
	Context    int     // maximum positions that the model was made for
	Stop       []int32 // ids that end a text
	Parameters int64   // without the head's, embedding included
	Bytes      int64   // of weights in memory
	PassBytes  int64   // of weights that a pass over one token reads
	Compute    backend.Compute
	Head       bool // the checkpoint has a multi-token-prediction head with weights, loaded or not
}

// Output is valid until the next Forward or Release of the same model.
type Output struct {
	Device backend.Backend // on which the rows lie
	Logits backend.Tensor  // [wanted positions of all spans, vocab]
	Hidden backend.Tensor  // [tokens of all spans, width]
	// Taps has the rows that Tappable.Tap names, side by side in its order: [tokens of all spans, taps*width].
	Taps backend.Tensor
}

// Wait returns when the pass is over, with the device's error.
func (o *Output) Wait() error {
	_, err := o.Device.Host(o.Logits.RowRange(0, 0))
	return err
}

// Rows copies all rows of logits to the host, in order. To choose tokens, spec.Logits reads less.
// The rows are valid until the device's next call.
func (o *Output) Rows() ([][]float32, error) {
	all, err := o.Device.Host(o.Logits)
	if err != nil {
		return nil, err
	}
	rows := make([][]float32, o.Logits.Rows)
	for i := range rows {
		rows[i] = all[i*o.Logits.Cols : (i+1)*o.Logits.Cols]
	}
	return rows, nil
}

// Options say how to open a model. The zero value is the default.
type Options struct {
	Compute   backend.Compute
	Quantize  int             // bits to quantize matrices to on load; 0: as the file is
	MaxDrafts int             // maximum draft tokens of one span
	KVBits    int             // of the KV cache: 4, 8, 16 or 32; 0: 16, and 32 if Compute is Float32
	NoVision  bool            // leave a vision tower out
	NoHead    bool            // leave a multi-token-prediction head out
	TowerBits int             // of the vision tower of a generated model; 0: it has none
	Context   context.Context // cancels loading; may be nil
	// Progress, if not nil, is called from time to time with the bytes read so far.
	Progress func(done, total int64)
	Log      *slog.Logger // nil: silent
}

// kvTypes are the types of keys and values by their bits.
var kvTypes = map[int]dtype.Type{4: dtype.I4, 8: dtype.I8, 16: dtype.F16, 32: dtype.F32}

// KVType is the type of keys and values by the options.
func (o *Options) KVType() dtype.Type { return kvTypes[o.CacheBits()] }

// CacheBits is KVBits or its default.
func (o *Options) CacheBits() int {
	switch {
	case o.KVBits != 0:
		return o.KVBits
	case o.Compute == backend.Int8:
		return 16
	}
	return 32
}
