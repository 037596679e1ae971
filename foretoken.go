// Package foretoken runs language models of the Qwen3.5, GLM-4.5 and DeepSeek-V3 families in this
// process, with continuous batching, a prefix cache, structured output and exact speculative
// decoding by the model's own multi-token-prediction head.
//
// Open loads a checkpoint. Model.ChatPrompt makes a prompt of a conversation, Model.TextPrompt of a
// text. Model.Complete returns the text of an answer; Model.Generate starts an Answer, which yields its
// pieces as they are generated. Images and videos are parts of messages (chat.Parts), for models with
// a vision tower. Requests may run at the same time and share the rounds. Zero values are defaults.
//
// A model, a request and a seed determine the tokens. Drafts, batches, caches and threads do not
// change them. (Drafts do under the ratio rule, which is opt-in.)
package foretoken

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/models"
	"github.com/foretoken/foretoken/internal/offload"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/private"
	"github.com/foretoken/foretoken/internal/spec"
)

// Tiny is the name of the model inside the program.
const Tiny = "tiny"

// DefaultContext is the maximum context if Options set none and the model allows more.
const DefaultContext = 32768

// DefaultBatch is the maximum number of sequences at a time if Options set none.
const DefaultBatch = 16

// The constants of this package are those of the internal packages: otherwise the key false is there twice,
// and the package does not compile.
var _ = map[bool]bool{
	false: false,
	Tiny == models.Tiny && DefaultContext == offload.DefaultContext && DefaultBatch == offload.DefaultBatch && MaxDepth == spec.MaxDepth &&
		PageTokens == backend.PageTokens && LayersAuto == offload.Auto && LayersOff == offload.None &&
		Int8 == Compute(backend.Int8) && Float32 == Compute(backend.Float32): true,
}

var (
	// ErrNotBuiltIn is returned for Tiny by a program that was built without it.
	ErrNotBuiltIn = models.ErrNotBuiltIn
	// ErrBusy is returned for a request when Options.MaxQueue requests wait and its Flow has its share of them.
	ErrBusy = engine.ErrBusy
	// ErrClosed is returned for a request to a model that was closed.
	ErrClosed = engine.ErrClosed
	// ErrBroken is wrapped by the error for a request to a model that serves nothing more: its device
	// is lost, or a fault has left its memory in a state that cannot be trusted. It must be opened
	// again, on a lost device by another process.
	ErrBroken = engine.ErrBroken
	// ErrNoDevice is wrapped by the error for an Options.Device that this build or this machine
	// does not have.
	ErrNoDevice = backend.ErrUnavailable
	// ErrTooLarge is wrapped by the error for a request that needs more than Options.KVMemory.
	ErrTooLarge = engine.ErrTooLarge
)

// ContextError is the error for a longer context than a model was made for.
type ContextError struct{ Want, Max int }

func (e *ContextError) Error() string {
	return fmt.Sprintf("context %d: the model supports at most %d tokens", e.Want, e.Max)
}

// Options say how a model is loaded and run. The zero value is the default.
type Options struct {
	// Device is the device: "cpu", or another of this build; "" or "auto": the
	// best of this machine. A list with commas, such as "cuda:0,cuda:1", shares the layers.
	Device string
	// Threads is how many processors to use; 0: one for each performance core, as far as
	// affinity masks, quotas and GOMAXPROCS allowed when the program started.
	// All models of a process share them. They spin while there is work, so each occupies a
	// slot of Go's scheduler: with GOMAXPROCS at one more than Threads, which is for the
	// program to set, the rest of the program, readers of answers among it, runs beside them.
	// With as many slots as threads the answers are as fast, but the rest runs some 20 ms late.
	Threads  int
	Offload  Offload // the part of a model on Device, unless that is the CPU
	ISA      string  // instruction set of the device, such as avx2; "": the best
	Compute  Compute // arithmetic for quantized weights
	Quantize int     // bits to quantize weights to on loading; 0: unchanged
	KVBits   int     // of keys and values: 4, 8, 16 or 32; 0: 16, or 32 with Float32
	Context  int     // maximum tokens of a sequence; 0: the model's limit, at most DefaultContext

	// KVMemory is the bytes for the KV cache of all sequences and the prefix cache. 0: enough for one
	// sequence of the maximum context; less than that is raised to it, with a warning. -1: half of the
	// device's free memory, but at most enough for MaxBatch such sequences.
	KVMemory    int64
	MaxBatch    int           // maximum sequences at a time; 0: DefaultBatch
	MaxQueue    int           // maximum requests that wait; beyond it a Request.Flow with less than its share is still accepted; 0: unlimited
	MaxRound    time.Duration // time that a round should not exceed while text is generated; 0: half as long again as one without prompts
	PrefixCache PrefixCache
	// VerifyDevice has the CPU compute one of VerifyDevice passes of another device again, from the same state; 0: none. If a logit
	// differs the model serves nothing more: see ErrBroken. The CPU needs memory for the weights and for the states of a batch.
	VerifyDevice int

	Speculation Speculation
	Vision      Vision

	OnRound  func(Round)             // called after every round, which waits for it; nil: not
	OnBroken func(error)             // called once, if the model can serve nothing more: see ErrBroken; nil: not
	Progress func(done, total int64) // called while weights are read, in bytes; nil: not
	Log      *slog.Logger            // nil: warnings go to the default one

	shared   private.Shared                    // of the prefix cache
	observer prefix.Observer                   // of the prefix cache; nil: none
	devices  []func() (backend.Backend, error) // opened beside Device
	talks    bool                              // a checkpoint without a chat template is refused
}

// PrefixCache configures the cache of prefixes of prompts. The zero value keeps them in memory, as long
// as nothing else needs it.
type PrefixCache struct {
	Off     bool   // keep nothing
	Dir     string // folder to keep it in across processes; "": none
	MaxDisk int64  // maximum bytes in Dir; 0: 10 GiB
}

// Compute is the arithmetic of a model with quantized weights.
type Compute uint8

const (
	// Int8 quantizes activations to 8 bits per group and multiplies integers. It is the
	// default.
	Int8 Compute = 0
	// Float32 computes with the float32 values of weights and activations.
	Float32 Compute = 1
)

// String is "int8" or "float32".
func (c Compute) String() string { return backend.Compute(c).String() }

// Info describes a model.
type Info struct {
	Family     string // model_type of the checkpoint
	Vocab      int    // length of a row of logits, padding included
	Width      int    // of a hidden row
	Layers     int    // without those of the head
	Context    int    // maximum positions of the model
	Parameters int64  // without those of the head
	Bytes      int64  // of weights in memory, those of a drafter included
	Compute    Compute
	Head       bool        // the checkpoint has a multi-token-prediction head, loaded or not
	Vision     *VisionInfo // nil: it takes no images
	// Drafter is the drafter in files of its own that the model is used with; nil: none.
	Drafter *DrafterInfo
}

// DrafterInfo describes a drafter.
type DrafterInfo struct {
	Kind  string // DFlash, DFlash2, DSpark, EAGLE-3 or assistant
	Bytes int64  // of weights in memory
}
