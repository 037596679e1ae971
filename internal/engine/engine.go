// Package engine turns prompts into tokens by continuous batching and speculative decoding: one
// goroutine owns the model and its memory, and feeds every running sequence once per round.
// It deals in token ids; text, files and devices are elsewhere.
package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/cost"
	"github.com/foretoken/foretoken/internal/engine/schedule"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

var (
	// ErrClosed is returned for requests to an engine that no longer runs.
	ErrClosed = errors.New("engine: closed")
	// ErrBusy is returned for a request when Options.MaxQueue requests wait and its flow has its share of them.
	ErrBusy = errors.New("engine: too many requests are waiting")
	// ErrTooLarge is wrapped by the error for a request that the engine could never serve.
	ErrTooLarge = errors.New("engine: request is too large")
)

// RoundTokens is how many tokens a round feeds at most by default.
const RoundTokens = state.RoundTokens

// Options configure an Engine. The zero value is the default.
type Options struct {
	RoundTokens int           // maximum number of tokens fed in one round over all sequences; 0: the constant of that name
	MaxBatch    int           // maximum number of running sequences; 0: 16
	MaxQueue    int           // maximum number of waiting requests, above which each flow still has its share; 0: unlimited
	MaxRound    time.Duration // maximum time that a round should take while text is generated; 0: half as long again as without prompts
	Context     int           // maximum number of tokens of a sequence; 0: the model's limit

	Cache bool        // have a prefix cache
	Disk  *store.Disk // and keep it on disk, for the next process; nil: not. The caller closes it after the engine
	// Shared is the store that the cache shares with other processes; may be nil. The caller closes it
	// after the engine.
	Shared *store.Shared
	// Observer is told which prefixes the cache can resume; may be nil.
	Observer prefix.Observer

	// Tower computes the rows of images; nil: there are none. The engine is its only user.
	Tower       model.Tower
	TowerMemory int64 // maximum bytes of rows that are kept for the next request; 0: 256 MiB

	Drafter spec.Drafter // nil: no speculative decoding
	// Controller has known costs and acceptance, for example of a self-test; nil: none.
	// It belongs to the engine from New on.
	Controller *spec.Controller

	// Shadow computes passes again on another device; the zero value does not. The caller closes its model after the engine.
	Shadow Shadow

	// Rehearse has a device prepare for rounds of all sizes before the first request: half a second of a GPU, which
	// rounds would otherwise wait for one after another.
	Rehearse bool

	Observe func(Round)  // called after every round, on the engine's goroutine; may be nil
	Broken  func(error)  // called once, on the engine's goroutine, when nothing is served any more: see ErrBroken; may be nil
	Log     *slog.Logger // of faults; nil: the default

	groups int // for tests: maximum number of rounds in flight on a device of several stages; 0: as the costs suggest
}

// Engine runs requests on one model.
type Engine struct {
	model model.Model
	pool  *state.Pool
	cache *prefix.Cache // nil: none; the loop's, which locks the mutex to change it
	o     Options

	wake chan struct{} // a request has come, one was canceled, or the engine is to end
	done chan struct{} // closed when the loop has ended

	running   []*sequence // in order of priority
	order     []*sequence // the same, as a round found them
	*group                // that is launched or landed
	pipeline  pipeline
	choosing  []*sequence // of the batch, those that get tokens from the pass
	logits    spec.Logits // of the pass, a group for each of them
	tally     tally       // of the batch
	phases    Phases      // of the running round
	drafting  drafting
	sched     schedule.Scheduler[*sequence]
	towerTook time.Duration // before the running round
	vision    visionQueue
	shadow    shadow

	candidate      *sequence   // that is being admitted
	admissions     uint64      // sequences that were admitted for the first time
	asked          []*sequence // scratch space of leaving
	observerFailed bool        // an observer's fault was logged

	mu            sync.Mutex // protects what follows
	waiting       schedule.Queue[*sequence]
	background    background
	conversations map[string]int // requests that have not ended, by conversation
	broken        error          // why nothing is served any more
	draining      bool           // no requests are taken
	closed        bool           // and those that run are ended
	stats         Stats
}

// openParts begins to use the drafter: the model hands out the rows that it reads, and the controller knows its blocks.
func (e *Engine) openParts() error {
	e.drafting.parts = newParts(e.o.Drafter)
	tapped := false
	for k := range e.drafting.parts {
		p := &e.drafting.parts[k]
		if b, ok := p.Drafter.(spec.Blocker); ok {
			e.drafting.controller.Blocks[k] = b.Drafts()
		}
		if !p.tapped {
			continue
		}
		m, ok := e.model.(model.Tappable)
		if !ok || tapped {
			return fmt.Errorf("engine: the drafter %s reads rows between the layers, which the model does not hand out", p.Name())
		}
		tapped = true
		if err := m.Tap(spec.TapsOf(p.Drafter)...); err != nil {
			return err
		}
	}
	return nil
}

// locked calls f with the mutex held, which a panic unlocks.
func (e *Engine) locked(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// prepared is the number of passes so far that took longer than later passes of their shape.
func (e *Engine) prepared() int64 { return backend.PreparedBy(e.pool.Device()) }

// background is the prompts that are prefilled in advance. They are not requests: none of them
// counts against the queue or the batch, and none is fed in a round with requests. The one
// that was started keeps its memory until a request needs it.
type background struct {
	waiting []*sequence // oldest first; the engine's mutex protects it
	current *sequence   // the started one; likewise, and only the loop changes it
	active  bool        // it is being fed
}

// cost is the cost model.
func (e *Engine) cost() *cost.Model { return &e.drafting.controller.Model }

// signal wakes the loop.
func (e *Engine) signal() {
	select {
	case e.wake <- struct{}{}:
	default: // it will run anyway
	}
}

// refusal is why nothing is accepted anymore, or nil. The mutex is held.
func (e *Engine) refusal() error {
	if e.draining {
		return ErrClosed
	}
	return e.broken
}
