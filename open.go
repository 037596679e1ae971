package foretoken

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/models"
	"github.com/foretoken/foretoken/internal/offload"
	"github.com/foretoken/foretoken/internal/prompt"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/ngram"
	"github.com/foretoken/foretoken/internal/state"
)

// Open loads a model: the folder of a checkpoint, a GGUF file, or Tiny. If ctx ends first, it returns
// the error of ctx. The caller closes the model.
func Open(ctx context.Context, path string, o Options) (*Model, error) {
	start := time.Now()
	c, err := models.Open(path, o.Vision.Projector)
	if err != nil {
		return nil, err
	}
	m, err := open(ctx, c, o)
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
	if o.talks && m.text.Template(false) == "" {
		return nil, fmt.Errorf("model %s: %w", m.name, ErrNoTemplate)
	}
	m.tok = m.text.Tokenizer()
	if m.generates, err = c.Generation(); err != nil {
		return nil, fmt.Errorf("model %s: %w", m.name, err)
	}
	if o.Threads == 0 {
		o.Threads, _ = backend.Threads()
	}
	files, err := m.findDrafter(&o.Speculation, c)
	if err != nil {
		return nil, err
	}
	if files != nil {
		defer func() { err = errors.Join(err, files.Close()) }()
	}
	m.source = newSource(c.Name(), o, c)
	if err = m.openDevice(c, o, files); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
			m = nil
		}
	}()
	m.device = m.backend.Name()
	if err := m.openVerifier(o); err != nil {
		return m, err
	}
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
	if files != nil {
		if err := m.openDrafter(ctx, files, w, sum != nil); err != nil {
			return m, err
		}
	}
	if err := m.openShadow(c, o, w); err != nil {
		return m, err
	}
	return m, m.start(ctx, o, c, sum)
}

// openVerifier opens the CPU as a second device, if passes are to be computed again there.
func (m *Model) openVerifier(o Options) (err error) {
	if o.VerifyDevice <= 0 {
		return nil
	}
	s := &m.shadow
	if s.device, err = backend.OpenHost(backend.Options{Threads: o.Threads, ISA: o.ISA, Log: m.log}); err != nil {
		return err
	}
	if s.device.Name() == m.device {
		return fmt.Errorf("model %s: the CPU computes it, so that no device can be verified: leave out --verify-device", m.name)
	}
	return nil
}

// openShadow loads the model a second time, on the device that verifies.
func (m *Model) openShadow(c *checkpoint.Checkpoint, o Options, w model.Options) (err error) {
	s := &m.shadow
	if s.device == nil {
		return nil
	}
	survey, err := model.Survey(c)
	if err != nil {
		return err
	}
	o.Vision.Off, o.Speculation.Head = true, HeadOff
	need, free := offload.NewNeed(survey, o.loading(nil)).Weights(), s.device.FreeMemory()
	if need > free {
		return fmt.Errorf("model %s: to verify its device the CPU needs %.1f GB for the weights, and %.1f GB are free: leave out --verify-device", m.name, float64(need)/1e9, float64(free)/1e9)
	}
	w.NoVision, w.NoHead, w.Progress = true, true, nil
	s.model, err = model.Open(c, s.device, w)
	return err
}

// warnings passes warnings and errors on.
type warnings struct{ slog.Handler }

// Enabled implements slog.Handler.
func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

// start resolves options that depend on the model, and starts the engine.
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
	learned, err := m.selfTests(o.Speculation, pool)
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
	if m.shadow.model != nil {
		e.Shadow = engine.Shadow{Model: m.shadow.model, Pool: state.NewPool(m.shadow.device, math.MaxInt64), Every: o.VerifyDevice}
	}
	m.engine, err = engine.New(m.model, pool, e)
	return err
}

// need is the memory that a sequence needs.
func (m *Model) need() *state.Need {
	n := spec.Needs(m.model.Layout(), m.draft.drafter, m.info.Width)
	return &n
}

// memory is the budget for sequences by Options.KVMemory: want bytes for batch sequences.
//
// The default is bounded because the prefix cache would otherwise fill all of it: a flood of
// different prompts had the embedded model take 9.5 GB. Sequences seldom have the maximum context,
// and the prefix cache uses the rest.
func (m *Model) memory(want int64, batch int) int64 {
	need := m.need()
	one := need.Bytes(m.context)
	switch {
	case want == 0:
		want = need.Budget(1, m.context)
	case want < 0:
		want = min(need.FreeMemory(m.backend, m.context)/2, need.Budget(batch, m.context))
	case want > 0 && want < one:
		m.log.Warn("the KV memory is raised to the need of one sequence of the maximum context; a smaller context needs less", "kv_memory_bytes", want, "raised_to_bytes", one, "context", m.context)
	}
	return max(want, one)
}

// openDevice opens a device, and the CPU beside it if the model is
// too large for one.
func (m *Model) openDevice(c *checkpoint.Checkpoint, o Options, drafter *checkpoint.Checkpoint) error {
	on := offload.Devices{Name: o.Device, How: backend.Options{Threads: o.Threads, ISA: o.ISA, Log: m.log}, More: o.devices}
	b, plan, err := offload.For(c, on,
		offload.Want{Layers: o.Offload.Layers, CPUExperts: o.Offload.CPUExperts}, o.loading(drafter))
	switch {
	case errors.Is(err, offload.ErrAlone):
		return fmt.Errorf("%w: %w", ErrNoDevice, err)
	case errors.Is(err, ErrNoDevice):
		return err
	case err != nil:
		return fmt.Errorf("model %s: %w", m.name, err)
	}
	m.backend = b
	if plan == nil {
		return nil
	}
	if _, whole := plan.Whole(); whole {
		return nil
	}
	for _, u := range plan.Uses() {
		m.placement = append(m.placement, Placement{Device: u.Name, Layers: u.Layers, Parts: u.Parts, Weights: u.Weights})
	}
	m.log.Info(fmt.Sprintf("%s: %s", m.name, plan))
	return nil
}

// drafting is the drafting by the options. config is the checkpoint's config.json.
func (m *Model) drafting(o Speculation, config []byte) (drafting, error) {
	var d drafting
	var err error
	if d.rule, err = o.Rule.or(spec.Exact); err != nil {
		return d, err
	}
	if d.depth, err = o.Depth.or(spec.DepthAuto); err != nil {
		return d, err
	}
	if o.Head == HeadRequired && !m.info.Head {
		return d, fmt.Errorf("model %s: %w", m.name, m.noHead(config))
	}
	if d.depth == spec.DepthOff {
		return d, nil
	}
	d.computed = m.computed(o.Vocab)
	parts := d.computed
	if !o.NoLookup {
		lookup, err := ngram.New(ngram.Options{})
		if err != nil {
			return d, err
		}
		parts = append(slices.Clip(parts), lookup)
	}
	switch len(parts) {
	case 0:
	case 1:
		d.drafter = parts[0]
	default:
		d.drafter = spec.Auto(parts...)
	}
	return d, nil
}

// noHead is the error for a checkpoint without a head.
func (m *Model) noHead(config []byte) error {
	if m.family.NoHead == nil {
		return headError("the checkpoint has no multi-token-prediction head: choose a checkpoint with a head")
	}
	return headError(m.family.NoHead(config))
}

// selfTestTime is the approximate limit of a self-test. A slow model takes at least the time of some
// twenty tokens.
const selfTestTime = 2 * time.Second

// selfTestText is the text of a self-test: plain prose, and something a program would say.
const selfTestText = `Once upon a time there was a little girl named Lily. She lived in a small house near a big
forest with her mother and her dog. One day she went outside to play and saw a bird under a tree.
The bird was sad because its wing was hurt. Lily took the bird home and gave it some water. Her
mother was very proud of her.

for i in range(10):
    print(i, i + 1)
`

// selfTests tests the head and the drafter on a short text and returns the controller with the measurements, for the
// engine: nil without a test. The head of the embedded model is known to be good, and is not tested.
func (m *Model) selfTests(o Speculation, pool *state.Pool) (learned *spec.Controller, err error) {
	text := m.tok.Encode(selfTestText)
	text = text[:min(len(text), m.context)]
	if o.NoSelfTest || len(text) < measure.TestTokens/2 {
		return nil, nil
	}
	for i, d := range m.draft.computed {
		if drafts := m.drafter != nil && i == len(m.draft.computed)-1; drafts || !m.builtIn {
			if learned, err = m.selfTest(pool, d, spec.Source(i), text, learned, drafts); err != nil {
				return nil, err
			}
		}
	}
	return learned, nil
}

// selfTest tests the head, or the drafter of a file, with the source of its drafts, and adds the measurements to
// those learned before.
func (m *Model) selfTest(pool *state.Pool, d spec.Drafter, s spec.Source, text []int32, learned *spec.Controller, file bool) (*spec.Controller, error) {
	r, err := measure.SelfTest(m.model, pool, d, text, measure.SelfTestOptions{Vocab: m.text.Vocab(), Limit: selfTestTime, Controller: learned, Source: s})
	if err != nil {
		return nil, fmt.Errorf("model %s: self-test of the drafter %s: %w", m.name, d.Name(), err)
	}
	kind := d.Name()
	if file {
		kind = m.drafter.Kind.String()
	}
	m.draft.tested = &SelfTest{
		Drafter: kind, Drafted: r.Drafted[:], Accepted: r.Accepted[:], StepTime: r.StepTime, DraftTime: r.DraftTime, Depth: r.Depth, Speedup: r.Speedup, Vocab: r.DraftVocab,
	}
	if r.Broken() {
		if file {
			m.log.Warn(fmt.Sprintf("%s: only %d of %d drafts of the drafter were accepted, but an intact drafter has more than half: "+
				"its taps are off by one or after the norm, its norms were shifted by one, its kind or its windows are wrong in config.json, "+
				"or it was made for another model; foretoken doctor --drafter finds the cause", kind, r.Accepted[0], r.Drafted[0]))
			return r.Controller, nil
		}
		m.log.Warn(fmt.Sprintf("mtp: only %d of %d drafts of the head were accepted, but an intact head has more than half: "+
			"its norms were shifted by one twice or not at all, its fc is permuted, it is untrained, or it belongs to another model; "+
			"foretoken doctor finds the cause", r.Accepted[0], r.Drafted[0]))
	}
	return r.Controller, nil
}

// grammarVocab is the model's vocabulary for grammars.
func (m *Model) grammarVocab() (*grammar.Vocab, error) {
	tokens := make([]string, m.text.Vocab())
	for id := range tokens {
		if !m.tok.Special(int32(id)) {
			tokens[id], _ = m.tok.Token(int32(id)) // empty for an id that is only padding
		}
	}
	v, err := grammar.NewVocab(tokens, m.text.Stops())
	if err == nil {
		v.SetEncoder(m.spell)
	}
	return v, err
}

// spell is how the tokenizer writes text that a grammar demands; more is true if other text
// follows.
func (m *Model) spell(text string, more bool) []int32 {
	if more {
		return m.tok.EncodeOpen(text)
	}
	return m.tok.Encode(text)
}

// loading is the options for a memory plan.
func (o *Options) loading(drafter *checkpoint.Checkpoint) offload.Options {
	w := model.Options{Compute: backend.Compute(o.Compute), KVBits: o.KVBits}
	return offload.Options{
		Quantize: o.Quantize, KVBits: w.CacheBits(), Context: o.Context, KVMemory: o.KVMemory,
		NoVision: o.Vision.Off, NoHead: !o.Speculation.usesHead(), Drafter: drafter,
	}
}

// Size is about the memory of the weights of a model in bytes, from the headers of its
// files. It is 0 if they cannot be read: Open reports the error.
func Size(path string, o Options) int64 {
	c, err := models.Open(path, o.Vision.Projector)
	if err != nil {
		return 0
	}
	defer c.Close() //nolint:errcheck // it was only read
	s, err := model.Survey(c)
	if err != nil {
		return 0
	}
	m := &Model{name: models.Name(path), log: slog.New(slog.DiscardHandler)}
	drafter, err := m.findDrafter(&o.Speculation, c)
	if err != nil {
		return 0
	}
	if drafter != nil {
		defer drafter.Close() //nolint:errcheck // it was only read
	}
	return offload.NewNeed(s, o.loading(drafter)).Weights()
}

// Close ends all answers and frees everything. An error says that the files of the checkpoint or the device
// could not be closed: no answer depends on it, and the model is closed in any case.
func (m *Model) Close() error {
	var err error
	m.warming.close()
	if m.engine != nil {
		m.engine.Close()
	}
	m.warming.Wait()
	m.closeTiers()
	if m.drafter != nil {
		err = m.drafter.Close()
	}
	if m.model != nil {
		err = errors.Join(err, m.model.Close())
	}
	if s := &m.shadow; s.model != nil {
		err = errors.Join(err, s.model.Close())
	}
	if s := &m.shadow; s.device != nil {
		err = errors.Join(err, s.device.Close())
	}
	return errors.Join(err, m.backend.Close())
}
