// Package foretoken runs a model of the Qwen3.5 family in this process: Open a checkpoint,
// Generate from a conversation or a text, read the answer as it comes. It joins what the
// packages below keep apart, files, device, engine and text. It knows no flags, no terminal
// and no protocol of a network.
package foretoken

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/qwen35"
	"github.com/foretoken/foretoken/internal/models/tiny"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/internal/tokenizer"
)

// Tiny is the name of the model inside the program.
const Tiny = "tiny"

// DefaultContext is the most tokens of a sequence where nothing is said and the model would
// allow more: their memory is taken in advance.
const DefaultContext = 32768

// ErrNotBuiltIn is returned for Tiny by a program that was built without it.
var ErrNotBuiltIn = errors.New("foretoken: this program was built without a model: name a checkpoint folder")

// ContextError is the error for a longer context than a model was made for.
type ContextError struct{ Want, Most int }

func (e *ContextError) Error() string {
	return fmt.Sprintf("context %d: the model was made for at most %d tokens", e.Want, e.Most)
}

// Options say how a model is loaded and run. The zero value is the default.
type Options struct {
	// Threads are the processors to use; 0: all that Go uses when the program starts. All models
	// of a process share them and take turns. They spin while there is work, and so each holds
	// a slot of Go's scheduler: with GOMAXPROCS at one more than Threads, which is for the
	// program to set, the rest of it, readers of answers among it, runs beside them. With as many
	// slots as threads the answers are as fast, but the rest runs some 20 ms late meanwhile.
	Threads  int
	ISA      string          // instruction set, one of cpu.ISAs; "": the best
	Compute  backend.Compute // arithmetic for quantized weights
	Quantize int             // bits to quantize weights to on loading; 0: as they are
	KVBits   int             // of keys and values: 8, 16 or 32; 0: 16, or 32 with float32 arithmetic
	Context  int             // most tokens of a sequence; 0: what the model allows, at most DefaultContext

	Memory    int64 // bytes for all sequences and the cache; 0: one sequence of Context tokens, -1: half of what the machine has free
	Batch     int   // most sequences at a time; 0: 16
	Queue     int   // most requests that wait; 0: any number
	Round     time.Duration
	Cache     bool   // keep what was read for texts with the same beginning
	CacheDir  string // and in this folder, for the next process; "": not
	CacheDisk int64  // most bytes there; 0: 10 GiB

	Draft Draft

	Observe  func(engine.Round)      // as engine.Options has it
	Progress func(done, total int64) // called while weights are read; nil: not
	Log      *slog.Logger            // nil: warnings go to the default one
}

// Model is an open checkpoint with all that turns text into tokens and back. Its methods
// may be called from several goroutines.
type Model struct {
	name      string
	info      model.Info
	device    string
	context   int
	vocab     int // ids that mean something
	load      time.Duration
	tok       *tokenizer.Tokenizer
	templates checkpoint.Templates
	generates checkpoint.Generation
	draft     drafting
	grammars  *grammars
	log       *slog.Logger

	engine  *engine.Engine
	network model.Model
	backend *cpu.Backend
	disk    *prefix.Disk
	secret  [sha256.Size]byte // that salts are mixed with
	cached  bool
	builtIn bool

	warming *background
	// preparing is called before the next turn of a conversation is prepared; for tests.
	preparing func()
}

// Open loads a model: the folder of a checkpoint, a GGUF file, or Tiny. The caller closes it.
func Open(path string, o Options) (*Model, error) {
	start := time.Now()
	c, err := OpenCheckpoint(path)
	if err != nil {
		return nil, err
	}
	m, err := open(c, o)
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

// OpenCheckpoint opens the files of a model that Open would load. The caller closes them.
func OpenCheckpoint(path string) (*checkpoint.Checkpoint, error) {
	switch {
	case path == Tiny:
		files := tiny.Files()
		if files == nil {
			return nil, ErrNotBuiltIn
		}
		return checkpoint.OpenFiles(Tiny, files)
	case strings.HasSuffix(path, ".gguf"):
		return qwen35.OpenGGUF(path)
	default:
		return checkpoint.Open(path)
	}
}

// open loads everything that is in a checkpoint.
func open(c *checkpoint.Checkpoint, o Options) (m *Model, err error) {
	m = &Model{name: ModelName(c.Name()), builtIn: c.Name() == Tiny, log: o.Log, cached: o.Cache, warming: newBackground()}
	if m.log == nil {
		m.log = slog.New(warnings{slog.Default().Handler()})
	}
	m.grammars = newGrammars(m.formVocab)
	if err := m.readText(c); err != nil {
		return nil, err
	}
	if o.Threads == 0 {
		o.Threads = processors
	}
	if m.backend, err = cpu.Open(cpu.Options{Threads: o.Threads, ISA: o.ISA}); err != nil {
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
		Compute: o.Compute, Quantize: o.Quantize, KVBits: o.KVBits, DraftVocab: o.Draft.Vocab, Control: m.tok.Added(), Progress: o.Progress, Log: m.log,
	}
	if !o.Draft.Off {
		w.MaxDrafts = spec.MaxDepth
	}
	sum := startSum(c, o.CacheDir)
	defer sum.stop()
	if m.network, err = model.Open(c, m.backend, w); err != nil {
		return m, err
	}
	return m, m.start(o, c, sum)
}

// warnings lets through what nobody should miss.
type warnings struct{ slog.Handler }

// Enabled implements slog.Handler.
func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

// processors is how many this process may use, as it was before the program asked for more.
var processors = runtime.GOMAXPROCS(0)

// ModelName is a model's name for people: the last part of its path, without the ending of
// a file.
func ModelName(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		path = full
	}
	return strings.TrimSuffix(filepath.Base(path), ".gguf")
}

// start resolves what depends on the network, and starts the engine.
func (m *Model) start(o Options, c *checkpoint.Checkpoint, sum *summing) (err error) {
	m.info = m.network.Info()
	m.vocab = min(m.info.Vocab, m.tok.Size())
	if m.context = o.Context; m.context == 0 {
		m.context = min(m.info.Context, DefaultContext)
	}
	if m.context > m.info.Context {
		return &ContextError{Want: m.context, Most: m.info.Context}
	}
	if m.draft, err = m.drafting(o.Draft, c.Config()); err != nil {
		return err
	}
	pool := state.NewPool(m.backend, m.memory(o.Memory))
	learned, err := m.selfTest(o.Draft, pool)
	if err != nil {
		return err
	}
	if m.secret, err = openSecret(o.CacheDir); err != nil {
		return err
	}
	if o.CacheDir != "" {
		if m.disk, err = m.openDisk(o, c, sum); err != nil {
			return err
		}
	}
	m.engine, err = engine.New(m.network, pool, engine.Options{
		Context: m.context, MaxBatch: o.Batch, MaxQueue: o.Queue, MaxRound: o.Round,
		Cache: o.Cache, Disk: m.disk, Drafter: m.draft.drafter, Controller: learned,
		Observe: o.Observe, Log: m.log,
	})
	return err
}

// memory is the budget for sequences: as wanted, but enough for one of the longest.
func (m *Model) memory(want int64) int64 {
	var draft state.Layout
	if m.draft.drafter != nil {
		draft = m.draft.drafter.Layout()
	}
	one := spec.Need(m.network.Layout(), draft)
	if want < 0 {
		want = freeMemory() / 2
	}
	return max(want, one.Bytes(m.context))
}

// Close ends all answers and gives everything back.
func (m *Model) Close() error {
	var err error
	m.warming.close()
	if m.engine != nil {
		m.engine.Close()
	}
	m.warming.Wait()
	if m.disk != nil {
		m.disk.Close()
	}
	if m.network != nil {
		err = errors.Join(err, m.network.Close())
	}
	return errors.Join(err, m.backend.Close())
}

// Name is the model's name for people.
func (m *Model) Name() string { return m.name }

// Info describes the network.
func (m *Model) Info() model.Info { return m.info }

// Device is what computes, for people.
func (m *Model) Device() string { return m.device }

// Context is the most tokens of a prompt and its answer together.
func (m *Model) Context() int { return m.context }

// Vocab is the number of ids that mean something.
func (m *Model) Vocab() int { return m.vocab }

// LoadTime is how long Open took.
func (m *Model) LoadTime() time.Duration { return m.load }

// Tokenizer turns text into ids and back.
func (m *Model) Tokenizer() *tokenizer.Tokenizer { return m.tok }

// Engine runs the model.
func (m *Model) Engine() *engine.Engine { return m.engine }

// readText reads the parts of a checkpoint that deal in text.
func (m *Model) readText(c *checkpoint.Checkpoint) error {
	data, err := c.ReadFile("tokenizer.json")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("model %s: there is no tokenizer.json in the folder: copy it from where the model was published", m.name)
	case err != nil:
		return fmt.Errorf("model %s: %w", m.name, err)
	}
	if m.tok, err = tokenizer.New(data); err != nil {
		return fmt.Errorf("model %s: tokenizer.json: %w", m.name, err)
	}
	if m.generates, err = c.Generation(); err != nil {
		return fmt.Errorf("model %s: %w", m.name, err)
	}
	if m.templates, err = c.Templates(); err != nil {
		return fmt.Errorf("model %s: %w", m.name, err)
	}
	return nil
}

// stops are the ids that end a text: the model's, and in a chat those that end a turn
// whatever the checkpoint says.
func (m *Model) stops(chat bool) []int32 {
	ids := slices.Clone(m.info.Stop)
	if chat {
		for _, token := range []string{"<|im_end|>", "<|endoftext|>"} {
			if id, ok := m.tok.ID(token); ok {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
