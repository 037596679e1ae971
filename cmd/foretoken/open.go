package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/foretoken/foretoken/backend"
	"github.com/foretoken/foretoken/backend/cpu"
	"github.com/foretoken/foretoken/checkpoint"
	"github.com/foretoken/foretoken/engine"
	"github.com/foretoken/foretoken/model"
	"github.com/foretoken/foretoken/models/tiny"
	"github.com/foretoken/foretoken/spec"
	"github.com/foretoken/foretoken/state"
	"github.com/foretoken/foretoken/tokenizer"
)

// session is an open model with all that turns text into tokens and back.
type session struct {
	name       string
	info       model.Info
	device     string
	tok        *tokenizer.Tokenizer
	templates  templates
	generation checkpoint.Generation
	context    int // most tokens of a sequence
	vocab      int // ids that mean something
	draft      drafting
	engine     *engine.Engine
	notes      *notes
	load       time.Duration

	model   model.Model
	backend *cpu.Backend
}

// openSession opens the model that the flags name. When ctx is cancelled it returns
// errInterrupted at once, and leaves what it was loading to the end of the process.
func openSession(ctx context.Context, c *console, f *modelFlags, log *notes) (*session, error) {
	bar := newProgress(c, f.model)
	type result struct {
		s   *session
		err error
	}
	done := make(chan result, 1)
	go func() {
		s, err := loadSession(f, log, bar)
		done <- result{s, err}
	}()
	select {
	case <-ctx.Done():
		if c.errTerminal {
			tell(c.err, "\n") // leave the line of the bar
		}
		return nil, errInterrupted
	case r := <-done:
		bar.end()
		log.show(c.err)
		if r.err == nil && r.s.draft.verdict != "" && (c.errTerminal || f.verbose) {
			c.remark(r.s.draft.verdict)
		}
		return r.s, r.err
	}
}

// loadSession opens a checkpoint and loads everything that is in it.
func loadSession(f *modelFlags, log *notes, bar *progress) (_ *session, err error) {
	start := time.Now()
	c, err := openCheckpoint(f.model)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }() // all of it has been read by then
	s := &session{name: modelName(f.model), notes: log}
	if err := s.readText(c); err != nil {
		return nil, err
	}
	if s.backend, err = openProcessor(&f.threads, &f.isa); err != nil {
		return nil, err
	}
	s.device = s.backend.Name()
	o := model.Options{DraftVocab: f.draft.vocab.or(vocabAuto), Progress: bar.report, Log: slog.New(log)}
	if f.compute.value == "float32" {
		o.Compute = backend.Float32
	}
	if f.quantize.given {
		o.Quantise, _ = strconv.Atoi(f.quantize.value) // one of a few that are numbers
	}
	if f.draft.possible() {
		o.MaxGuesses = spec.MaxDepth
	}
	if s.model, err = model.Open(c, s.backend, o); err != nil {
		return nil, errors.Join(err, s.backend.Close())
	}
	if err := s.start(f, c.Config()); err != nil {
		return nil, errors.Join(err, s.model.Close(), s.backend.Close())
	}
	s.load = time.Since(start)
	o.Log.Info(fmt.Sprintf("%s: %s of %.1f M parameters, %.1f MB in memory, %s on %s, context %d, loaded in %.2f s",
		s.name, s.info.Family, float64(s.info.Parameters)/1e6, float64(s.info.Bytes)/1e6, s.info.Compute, s.device, s.context, s.load.Seconds()))
	return s, nil
}

// processors is how many this process may use, as it was before openProcessor changed it.
var processors = runtime.GOMAXPROCS(0)

// openProcessor opens the backend. Its threads spin while there is work and so hold a slot
// of Go's scheduler each; everything else in the process, the terminal and timers among
// it, gets one more.
func openProcessor(threads *setting[int], isa *setting[string]) (*cpu.Backend, error) {
	n := threads.or(processors)
	runtime.GOMAXPROCS(n + 1)
	return cpu.Open(cpu.Options{Threads: n, ISA: isa.value})
}

// openCheckpoint opens a folder, or the embedded model by its name.
func openCheckpoint(name string) (*checkpoint.Checkpoint, error) {
	if name != embeddedName {
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("--model %s: no such folder; it is to hold config.json, tokenizer.json and *.safetensors files", name)
		}
		return checkpoint.Open(name)
	}
	files := tiny.Files()
	if files == nil {
		return nil, usagef("this program was built without a model: name a checkpoint folder with --model DIR")
	}
	return checkpoint.OpenFiles(embeddedName, files)
}

// modelName is a model's name for people: the last part of its folder.
func modelName(folder string) string {
	if full, err := filepath.Abs(folder); err == nil {
		return filepath.Base(full)
	}
	return folder
}

// start resolves what depends on the model, and starts the engine with memory for one
// sequence of the longest length. config is the checkpoint's config.json.
func (s *session) start(f *modelFlags, config []byte) (err error) {
	s.info = s.model.Info()
	s.vocab = min(s.info.Vocab, s.tok.Size())
	s.context = f.context.or(min(s.info.Context, defaultContext))
	if s.context > s.info.Context {
		return usagef("--context %d: the model was made for at most %d tokens", s.context, s.info.Context)
	}
	if s.draft, err = s.drafting(f.draft, config); err != nil {
		return err
	}
	pages := (s.context + backend.PageTokens - 1) / backend.PageTokens
	pool := state.NewPool(s.backend, s.budget(pages))
	learnt, err := s.selfTest(f, pool)
	if err != nil {
		return err
	}
	s.engine, err = engine.New(s.model, pool, engine.Options{Context: s.context, Drafter: s.draft.drafter, Controller: learnt})
	return err
}

// close gives everything back.
func (s *session) close() error {
	s.engine.Close()
	return errors.Join(s.model.Close(), s.backend.Close())
}

// readText reads the parts of a checkpoint that deal in text.
func (s *session) readText(c *checkpoint.Checkpoint) error {
	data, err := c.ReadFile("tokenizer.json")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("model %s: there is no tokenizer.json in the folder: copy it from where the model was published", s.name)
	case err != nil:
		return fmt.Errorf("model %s: %w", s.name, err)
	}
	if s.tok, err = tokenizer.New(data); err != nil {
		return fmt.Errorf("model %s: tokenizer.json: %w", s.name, err)
	}
	if s.generation, err = c.Generation(); err != nil {
		return fmt.Errorf("model %s: %w", s.name, err)
	}
	if s.templates, err = readTemplates(c); err != nil {
		return fmt.Errorf("model %s: %w", s.name, err)
	}
	return nil
}

// stops are the ids that end a text: the model's, and in a chat those that end a turn
// whatever the checkpoint says.
func (s *session) stops(chat bool) []int32 {
	ids := slices.Clone(s.info.Stop)
	if chat {
		for _, token := range []string{"<|im_end|>", "<|endoftext|>"} {
			if id, ok := s.tok.ID(token); ok {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
