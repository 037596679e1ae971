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
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/models"
	"github.com/foretoken/foretoken/internal/offload"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/private"
	"github.com/foretoken/foretoken/internal/prompt"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/internal/tokenizer"
	"github.com/foretoken/foretoken/sample"
)

// Tiny is the name of the model inside the program.
const Tiny = models.Tiny

// DefaultContext is the maximum context where Options name none and the model allows more.
const DefaultContext = offload.DefaultContext

// DefaultBatch is the maximum number of sequences at a time where Options name none.
const DefaultBatch = offload.DefaultBatch

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
	// Device is what to compute on: "cpu", or another that this build has; "" or "auto": the
	// best that this machine has.
	Device string
	// Threads is how many processors to use; 0: as many as Go used when the program started.
	// All models of a process share them. They spin while there is work, so each occupies a
	// slot of Go's scheduler: with GOMAXPROCS at one more than Threads, which is for the
	// program to set, the rest of the program, readers of answers among it, runs beside them.
	// With as many slots as threads the answers are as fast, but the rest runs some 20 ms late.
	Threads  int
	Offload  Offload // what of a model lies on Device, where that is not the host's processor
	ISA      string  // instruction set of the device, such as avx2; "": the best there is
	Compute  Compute // arithmetic for quantized weights
	Quantize int     // bits to quantize weights to on loading; 0: as they are
	KVBits   int     // of keys and values: 8, 16 or 32; 0: 16, or 32 with Float32
	Context  int     // maximum tokens of a sequence; 0: what the model allows, at most DefaultContext

	// KVMemory is the bytes for the KV cache of all sequences and the prefix cache. 0: enough for one
	// sequence of the maximum context; less than that is raised to it, with a warning. -1: half of what
	// the device has free, but at most enough for MaxBatch such sequences.
	KVMemory    int64
	MaxBatch    int           // maximum sequences at a time; 0: DefaultBatch
	MaxQueue    int           // maximum requests that wait; beyond it a Request.Flow with less than its share is still accepted; 0: unlimited
	MaxRound    time.Duration // time that a round should not exceed while text is generated; 0: half as long again as one without prompts
	PrefixCache PrefixCache

	Speculation Speculation
	Vision      Vision

	OnRound  func(Round)             // called after every round, which waits for it; nil: not
	OnBroken func(error)             // called once, if the model can serve nothing more: see ErrBroken; nil: not
	Progress func(done, total int64) // called while weights are read, in bytes; nil: not
	Log      *slog.Logger            // nil: warnings go to the default one

	shared   private.Shared  // of the prefix cache
	observer prefix.Observer // of the prefix cache; nil: none
}

// PrefixCache says what is kept of the KV cache of a prompt for the next one with the same
// prefix. The zero value keeps it in memory, as long as nothing else needs that.
type PrefixCache struct {
	Off     bool   // keep nothing
	Dir     string // folder to keep it in for the next process, too; "": none
	MaxDisk int64  // maximum bytes in Dir; 0: 10 GiB
}

// Compute is the arithmetic of a model with quantized weights.
type Compute uint8

const (
	// Int8 quantizes activations to 8 bits per group and multiplies integers. It is the
	// default.
	Int8 = Compute(backend.Int8)
	// Float32 computes with the float32 values of weights and activations.
	Float32 = Compute(backend.Float32)
)

// String is "int8" or "float32".
func (c Compute) String() string { return backend.Compute(c).String() }

// Info describes a model.
type Info struct {
	Family     string // model_type of the checkpoint
	Vocab      int    // length of a row of logits, padding included
	Width      int    // of a hidden row
	Layers     int    // without those of the head
	Context    int    // maximum positions that the model was made for
	Parameters int64  // without those of the head
	Bytes      int64  // of weights in memory
	Compute    Compute
	Head       bool        // the checkpoint has a multi-token-prediction head, loaded or not
	Vision     *VisionInfo // nil: it takes no pictures
}

// Model is an open checkpoint with its tokenizer and chat template. Its methods may be called
// from several goroutines.
type Model struct {
	name      string
	info      model.Info
	device    string
	placement []Placement
	context   int
	load      time.Duration
	text      *prompt.Builder
	tok       *tokenizer.Tokenizer
	generates checkpoint.Generation
	draft     drafting
	grammars  *grammars
	log       *slog.Logger

	engine  *engine.Engine
	model   model.Model
	family  *model.Family
	backend backend.Backend
	disk    *prefix.Disk
	shared  *prefix.Shared
	store   private.Store     // of shared
	secret  [sha256.Size]byte // that salts are mixed with
	cached  bool
	pages   int // of the longest sequence that the memory could hold
	builtIn bool
	source  source

	warming *background
	// preparing is called before the next turn of a conversation is prepared; for tests.
	preparing func()
}

// Open loads a model: the folder of a checkpoint, a GGUF file, or Tiny. If ctx ends first, it returns
// the error of ctx. The caller closes the model.
func Open(ctx context.Context, path string, o Options) (*Model, error) {
	start := time.Now()
	c, err := models.Open(path, o.Vision.Projector)
	if err != nil {
		return nil, err
	}
	m, err := open(ctx, c, o)
	if err == nil {
		m.source = newSource(path, o, c)
	}
	if err = errors.Join(err, c.Close()); err != nil { // all of it has been read by then
		if m != nil {
			err = errors.Join(err, m.Close())
		}
		return nil, err
	}
	m.load = time.Since(start)
	m.log.Info(fmt.Sprintf("%s: %s of %.1f M parameters, %.1f MB in memory, %s on %s, context %d, loaded in %.2f s",
		m.name, m.info.Family, float64(m.info.Parameters)/1e6, float64(m.info.Bytes)/1e6, m.info.Compute, m.device, m.context, m.load.Seconds()))
	return m, nil
}

// open loads everything that is in a checkpoint.
func open(ctx context.Context, c *checkpoint.Checkpoint, o Options) (m *Model, err error) {
	m = &Model{name: models.Name(c.Name()), builtIn: c.Name() == Tiny, log: o.Log, cached: !o.PrefixCache.Off, warming: newBackground()}
	if m.log == nil {
		m.log = slog.New(warnings{slog.Default().Handler()})
	}
	m.grammars = newGrammars(m.grammarVocab)
	if m.family, err = model.Of(c.Config()); err != nil {
		return nil, err
	}
	m.text, err = prompt.New(c, prompt.Options{
		Name: m.name, Dialogue: m.family.Dialogue, Log: m.log, MediaError: func(i int, err error) error { return &MediaError{i, err} },
	})
	if err != nil {
		return nil, err
	}
	m.tok = m.text.Tokenizer()
	if m.generates, err = c.Generation(); err != nil {
		return nil, fmt.Errorf("model %s: %w", m.name, err)
	}
	if o.Threads == 0 {
		o.Threads = processors
	}
	if err = m.openDevice(c, o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
			m = nil
		}
	}()
	m.device = m.backend.Name()
	w := model.Options{
		Compute: backend.Compute(o.Compute), Quantize: o.Quantize, KVBits: o.KVBits, NoVision: o.Vision.Off, NoHead: !o.Speculation.usesHead(), Context: ctx, Progress: o.Progress, Log: m.log,
	}
	if o.Speculation.Depth != DepthOff {
		w.MaxDrafts = spec.MaxDepth
	}
	sum := startSum(ctx, c, &o)
	defer sum.stop()
	if m.model, err = model.Open(c, m.backend, w); err != nil {
		return m, err
	}
	return m, m.start(ctx, o, c, sum)
}

// warnings lets through what nobody should miss.
type warnings struct{ slog.Handler }

// Enabled implements slog.Handler.
func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

// processors is how many this process may use, as it was before the program asked for more.
var processors = runtime.GOMAXPROCS(0)

// start resolves what depends on the model, and starts the engine.
func (m *Model) start(ctx context.Context, o Options, c *checkpoint.Checkpoint, sum *summing) (err error) {
	m.info = m.model.Info()
	if m.context = o.Context; m.context == 0 {
		m.context = min(m.info.Context, DefaultContext)
	}
	if m.context > m.info.Context {
		return &ContextError{Want: m.context, Max: m.info.Context}
	}
	m.text.Fit(&m.info, m.context)
	v := &o.Vision
	m.text.OpenVision(prompt.Vision{Off: v.Off, MaxPixels: v.MaxPixels, MaxMedia: v.MaxMedia, AsStored: v.AsStored, OnWhite: v.OnWhite}, c, m.model)
	if m.draft, err = m.drafting(o.Speculation, c.Config()); err != nil {
		return err
	}
	o.MaxBatch = cmp.Or(o.MaxBatch, DefaultBatch)
	pool := state.NewPool(m.backend, m.memory(o.KVMemory, o.MaxBatch))
	m.pages = m.need().Tokens(pool.Budget(), math.MaxInt32) / PageTokens
	learned, err := m.selfTest(o.Speculation, pool)
	if err != nil {
		return err
	}
	if err := m.openTiers(ctx, o, c, sum); err != nil {
		return err
	}
	e := engine.Options{
		Context: m.context, MaxBatch: o.MaxBatch, MaxQueue: o.MaxQueue, MaxRound: o.MaxRound, Rehearse: true,
		Cache: m.cached, Disk: m.disk, Shared: m.shared, Observer: o.observer, Drafter: m.draft.drafter, Controller: learned, Broken: o.OnBroken, Log: m.log,
	}
	if tower, _ := m.text.Tower(); tower != nil {
		e.Tower, e.TowerMemory = tower, o.Vision.Memory
	}
	if o.OnRound != nil {
		e.Observe = func(r engine.Round) { o.OnRound(Round(r)) }
	}
	m.engine, err = engine.New(m.model, pool, e)
	return err
}

// need is the memory that a sequence needs.
func (m *Model) need() *state.Need {
	var draft state.Layout
	if m.draft.drafter != nil {
		draft = m.draft.drafter.Layout()
	}
	n := spec.Need(m.model.Layout(), draft, m.info.Width)
	return &n
}

// memory is the budget for sequences, as Options.KVMemory says: want bytes for batch sequences.
//
// The default is bounded because the prefix cache would otherwise grow into all of it: a flood of
// different prompts had the embedded model take 9.5 GB. Sequences seldom have the maximum context,
// and the prefix cache has what they leave.
func (m *Model) memory(want int64, batch int) int64 {
	need := m.need()
	one := need.Bytes(m.context)
	switch {
	case want == 0:
		want = need.Budget(1, m.context)
	case want < 0:
		want = min(state.FreeMemory(m.backend, need.Target, need.Draft)/2, need.Budget(batch, m.context))
	case want > 0 && want < one:
		m.log.Warn("the KV memory is raised to the need of one sequence of the maximum context; a smaller context needs less", "kv_memory_bytes", want, "raised_to_bytes", one, "context", m.context)
	}
	return max(want, one)
}

// Drain lets all answers end, or ends them when ctx does. Further requests get ErrClosed. The model must
// still be closed.
func (m *Model) Drain(ctx context.Context) error { return m.engine.Drain(ctx) }

// Close ends all answers and frees everything.
func (m *Model) Close() error {
	var err error
	m.warming.close()
	if m.engine != nil {
		m.engine.Close()
	}
	m.warming.Wait()
	m.closeTiers()
	if m.model != nil {
		err = errors.Join(err, m.model.Close())
	}
	return errors.Join(err, m.backend.Close())
}

// Name is the model's name for people.
func (m *Model) Name() string { return m.name }

// Info describes the model.
func (m *Model) Info() Info {
	i := &m.info
	return Info{
		Family: i.Family, Vocab: i.Vocab, Width: i.Width, Layers: i.Layers, Context: i.Context,
		Parameters: i.Parameters, Bytes: i.Bytes, Compute: Compute(i.Compute), Head: i.Head,
		Vision: m.vision(),
	}
}

// Device is what computes, for people.
func (m *Model) Device() string { return m.device }

// Context is the maximum number of tokens of a prompt and its answer together.
func (m *Model) Context() int { return m.context }

// Vocab is the number of ids that stand for tokens. Info.Vocab may be more, by padding.
func (m *Model) Vocab() int { return m.text.Vocab() }

// LoadTime is how long Open took.
func (m *Model) LoadTime() time.Duration { return m.load }

// Encode returns the tokens of a text, in which the spellings of control tokens stand for them.
func (m *Model) Encode(text string) []int32 { return m.tok.Encode(text) }

// Decode returns the text of tokens, control tokens included.
func (m *Model) Decode(ids []int32) string { return m.tok.Decode(ids, false) }

// Token returns the bytes of one token, "" for an id that is only padding, and whether it is a
// control token.
func (m *Model) Token(id int32) (text string, control bool) {
	text, _ = m.tok.Token(id)
	return text, m.tok.Special(id)
}

// Sampling is how the checkpoint recommends to choose tokens, with a new seed. Whether its
// numbers make sense is for Generate to say.
func (m *Model) Sampling() sample.Options { return models.Recommended(m.generates) }
