// Package library has several models in one process: it loads them at their first use, and closes
// those that are not used.
package library

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/rescue"
)

// ErrUnknown is wrapped by the error for a name that no model has.
var ErrUnknown = errors.New("foretoken: unknown model")

// Options say which models there are and how many of them may be loaded.
type Options struct {
	// Load opens a model of Names. It is called without locks held, and once at a time for a name.
	// ctx ends if Drain does not wait for it.
	Load func(ctx context.Context, name string) (*foretoken.Model, error)
	// Size is about the bytes that the weights of a model will take, as foretoken.Size estimates
	// them: space is freed before it is loaded. Nil, or 0: it is not
	// known, and space is freed afterwards.
	Size func(name string) int64
	// Names lists the models there are, in the order they are shown. It may change.
	Names func() []string
	// Memory is the maximum bytes of the weights of all loaded models, including the one being
	// loaded. Models in use stay; the least recently used of the rest are unloaded. 0:
	// unlimited.
	Memory int64
	// KeepAlive is how long a model stays after its last use; 0: until its memory is needed.
	KeepAlive time.Duration
	Pinned    []string     // names of models that stay once they are loaded
	Log       *slog.Logger // nil: the default one
}

// Library is several models in one process, loaded at their first use. It may be
// used from several goroutines; loading one model does not delay another.
type Library struct {
	o    Options
	ctx  context.Context // of models that are being loaded
	stop context.CancelFunc

	mu     sync.Mutex // protects what follows
	loaded map[string]*entry
	closed bool
}

// entry is one model of a library that is loaded or being loaded.
type entry struct {
	name   string
	ready  chan struct{} // closed when loading has ended
	model  *foretoken.Model
	size   int64 // bytes of weights: about, until the model is there
	err    error // of loading
	users  int
	used   time.Time   // most recently
	expiry *time.Timer // runs while it is not in use
}

// New returns a library in which nothing is loaded.
func New(o Options) *Library {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	l := &Library{o: o, loaded: map[string]*entry{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// Use returns a model, loaded if necessary. The caller calls done when it no longer uses it.
func (l *Library) Use(ctx context.Context, name string) (m *foretoken.Model, done func(), err error) {
	if names := l.o.Names(); !slices.Contains(names, name) {
		return nil, nil, fmt.Errorf("%w %.200q; available: %q", ErrUnknown, name, names)
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, nil, errors.New("foretoken: the library is closed")
	}
	e := l.loaded[name]
	if e == nil {
		e = &entry{name: name, ready: make(chan struct{})}
		l.loaded[name] = e
		go l.load(e)
	}
	e.users++
	if e.expiry != nil {
		e.expiry.Stop()
	}
	l.mu.Unlock()
	select {
	case <-e.ready:
	case <-ctx.Done():
		l.release(e)
		return nil, nil, ctx.Err()
	}
	if e.err != nil {
		l.release(e)
		return nil, nil, e.err
	}
	return e.model, sync.OnceFunc(func() { l.release(e) }), nil
}

// load opens an entry's model. If it is larger than estimated, others are unloaded afterwards.
func (l *Library) load(e *entry) {
	m, err := l.open(e)
	l.mu.Lock()
	if e.model, e.err = m, err; err == nil {
		e.size = m.Info().Bytes
	} else if l.loaded[e.name] == e {
		delete(l.loaded, e.name) // the next request tries again
	}
	leaving := l.excess()
	l.keepAlive(e)
	l.mu.Unlock()
	close(e.ready)
	l.discard(leaving)
}

// open frees space for an entry's model, as far as its size is known, and loads it.
func (l *Library) open(e *entry) (m *foretoken.Model, err error) {
	defer rescue.To(&err)
	if l.o.Memory > 0 && l.o.Size != nil {
		size := l.o.Size(e.name)
		l.mu.Lock()
		e.size = size
		leaving := l.excess()
		l.mu.Unlock()
		l.discard(leaving)
	}
	return l.o.Load(l.ctx, e.name)
}

// release ends a use.
func (l *Library) release(e *entry) {
	l.mu.Lock()
	e.users--
	e.used = time.Now()
	leaving := l.excess()
	l.keepAlive(e)
	l.mu.Unlock()
	l.discard(leaving)
}

// keepAlive has an entry expire if it is not in use. The mutex is held.
func (l *Library) keepAlive(e *entry) {
	if e.users > 0 || l.o.KeepAlive <= 0 || l.loaded[e.name] != e || slices.Contains(l.o.Pinned, e.name) {
		return
	}
	e.used = time.Now()
	e.expiry = time.AfterFunc(l.o.KeepAlive, func() { l.expire(e) })
}

// expire unloads an entry that was not used since. If it is still being loaded, for a caller that
// has given up, its idle time begins when it is loaded.
func (l *Library) expire(e *entry) {
	l.mu.Lock()
	idle := e.model != nil && e.users == 0 && l.loaded[e.name] == e && time.Since(e.used) >= l.o.KeepAlive
	if idle {
		delete(l.loaded, e.name)
	}
	l.mu.Unlock()
	if idle {
		l.discard([]*entry{e})
	}
}

// excess removes entries until the rest fit, the least recently used first. The mutex is
// held; the caller discards the entries.
func (l *Library) excess() []*entry {
	var idle, leaving []*entry
	total := int64(0)
	for _, e := range l.loaded {
		total += e.size
		if e.model != nil && e.users == 0 && !slices.Contains(l.o.Pinned, e.name) {
			idle = append(idle, e)
		}
	}
	slices.SortFunc(idle, func(a, b *entry) int { return a.used.Compare(b.used) })
	for _, e := range idle {
		if l.o.Memory == 0 || total <= l.o.Memory {
			break
		}
		total -= e.size
		delete(l.loaded, e.name)
		leaving = append(leaving, e)
	}
	return leaving
}

// discard closes models that are no longer in the library.
func (l *Library) discard(list []*entry) {
	for _, e := range list {
		if err := e.close(); err != nil {
			l.o.Log.Warn("closing a model", "model", e.name, "error", err)
		}
	}
}

func (e *entry) close() (err error) {
	defer rescue.To(&err)
	return e.model.Close()
}

// Status is a model of a library at a moment.
type Status struct {
	Name  string
	Model *foretoken.Model // nil while it is being loaded
	Users int              // callers of Use that are not done
}

// Status lists the models that are loaded or being loaded, sorted by the library's names.
// They may be closed at any time: without Use, only their description
// and Stats may be read.
func (l *Library) Status() []Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Status, 0, len(l.loaded))
	for _, e := range l.loaded {
		list = append(list, Status{e.name, e.model, e.users})
	}
	slices.SortFunc(list, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Names lists the models there are.
func (l *Library) Names() []string { return l.o.Names() }

// Drain waits for all answers of all models, or ends them when ctx ends, and closes the
// models. Nothing is loaded after it; a model that is still being loaded when ctx ends is
// abandoned.
func (l *Library) Drain(ctx context.Context) error {
	defer l.stop()
	l.mu.Lock()
	l.closed = true
	list := make([]*entry, 0, len(l.loaded))
	for _, e := range l.loaded {
		list = append(list, e)
	}
	clear(l.loaded)
	l.mu.Unlock()
	var errs []error
	for _, e := range list {
		select {
		case <-e.ready:
			if e.model != nil {
				errs = append(errs, e.model.Drain(ctx))
			}
		case <-ctx.Done():
			errs = append(errs, ctx.Err())
		}
	}
	for _, e := range list {
		select {
		case <-e.ready:
		default:
			continue // still being loaded: it is abandoned
		}
		if e.model != nil {
			errs = append(errs, e.close())
		}
	}
	return errors.Join(errs...)
}
