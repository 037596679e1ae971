package foretoken

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/foretoken/foretoken/internal/model/qwen35"
	"github.com/foretoken/foretoken/internal/rescue"
)

// ErrUnknownModel is wrapped by the error for a name that no model has.
var ErrUnknownModel = errors.New("foretoken: unknown model")

// LibraryOptions say which models there are and how many of them may be loaded.
type LibraryOptions struct {
	// Load opens a model of Names. It is called without locks held, for one name at a time
	// once, and may take its time.
	Load func(name string) (*Model, error)
	// Size is about the bytes that the weights of a model will take, as the function of that
	// name tells from its files: room is made before it is loaded. Nil, or 0: it is not known,
	// and room is made afterwards.
	Size func(name string) int64
	// Names lists the models there are, in the order they are shown. It may change.
	Names func() []string
	// Memory is the most bytes that the weights of loaded models take together, while one is
	// loaded too. Those in use stay; the least recently used of the others go. 0: any number.
	Memory int64
	// KeepAlive is how long a model stays after its last use; 0: until its memory is needed.
	KeepAlive time.Duration
	Pinned    []string // that stay once they are loaded
}

// Library is several models in one process, loaded when they are first asked for. It may be
// used from several goroutines; loading one model does not hold up another.
type Library struct {
	o LibraryOptions

	mu     sync.Mutex // protects what follows
	shelf  map[string]*volume
	closed bool
}

// volume is one model of a library.
type volume struct {
	name   string
	ready  chan struct{} // closed when loading has ended
	model  *Model
	size   int64 // bytes of weights: about, until the model is there
	err    error // of loading
	users  int
	used   time.Time   // last
	expiry *time.Timer // runs while it is not in use
}

// NewLibrary returns a library in which nothing is loaded.
func NewLibrary(o LibraryOptions) *Library { return &Library{o: o, shelf: map[string]*volume{}} }

// Use returns a model, loaded if need be. done must be called when it is no longer used.
func (l *Library) Use(ctx context.Context, name string) (m *Model, done func(), err error) {
	if names := l.o.Names(); !slices.Contains(names, name) {
		return nil, nil, fmt.Errorf("%w %q; there are %q", ErrUnknownModel, name, names)
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, nil, errors.New("foretoken: the library is closed")
	}
	v := l.shelf[name]
	if v == nil {
		v = &volume{name: name, ready: make(chan struct{})}
		l.shelf[name] = v
		go l.load(v)
	}
	v.users++
	if v.expiry != nil {
		v.expiry.Stop()
	}
	l.mu.Unlock()
	select {
	case <-v.ready:
	case <-ctx.Done():
		l.release(v)
		return nil, nil, ctx.Err()
	}
	if v.err != nil {
		l.release(v)
		return nil, nil, v.err
	}
	return v.model, sync.OnceFunc(func() { l.release(v) }), nil
}

// load opens a volume's model. If it turns out larger than was thought, others go afterwards.
func (l *Library) load(v *volume) {
	m, err := l.open(v)
	l.mu.Lock()
	if v.model, v.err = m, err; err == nil {
		v.size = m.info.Bytes
	} else if l.shelf[v.name] == v {
		delete(l.shelf, v.name) // the next request tries again
	}
	leaving := l.excess()
	l.mu.Unlock()
	close(v.ready)
	discard(leaving)
}

// open makes room for a volume's model, as far as its size is known, and loads it.
func (l *Library) open(v *volume) (m *Model, err error) {
	defer rescue.To(&err)
	if l.o.Memory > 0 && l.o.Size != nil {
		size := l.o.Size(v.name)
		l.mu.Lock()
		v.size = size
		leaving := l.excess()
		l.mu.Unlock()
		discard(leaving)
	}
	return l.o.Load(v.name)
}

// Size is about the bytes that the weights of a model take in memory, from the headers of its
// files. It is 0 if they cannot be read: Open will say why.
func Size(path string, o Options) int64 {
	c, err := OpenCheckpoint(path)
	if err != nil {
		return 0
	}
	defer c.Close() //nolint:errcheck // it was only read
	s, err := qwen35.Look(c)
	if err != nil {
		return 0
	}
	if o.Quantize == 0 {
		return s.Loaded
	}
	parameters := int64(0)
	for _, p := range s.Parts {
		parameters += p.Parameters
	}
	// Every group of 64 has a scale and an offset of two bytes, and those are widened.
	return min(s.Loaded, parameters*int64(o.Quantize+1)/8)
}

// release ends a use.
func (l *Library) release(v *volume) {
	l.mu.Lock()
	v.users--
	v.used = time.Now()
	leaving := l.excess()
	if v.users == 0 && l.o.KeepAlive > 0 && l.shelf[v.name] == v && !slices.Contains(l.o.Pinned, v.name) {
		v.expiry = time.AfterFunc(l.o.KeepAlive, func() { l.expire(v) })
	}
	l.mu.Unlock()
	discard(leaving)
}

// expire lets a volume go that nobody has used since.
func (l *Library) expire(v *volume) {
	l.mu.Lock()
	idle := v.users == 0 && l.shelf[v.name] == v && time.Since(v.used) >= l.o.KeepAlive
	if idle {
		delete(l.shelf, v.name)
	}
	l.mu.Unlock()
	if idle {
		discard([]*volume{v})
	}
}

// excess takes volumes from the shelf until the others fit, the least recently used first.
// The mutex is held; the volumes are for the caller to discard.
func (l *Library) excess() []*volume {
	var idle, leaving []*volume
	total := int64(0)
	for _, v := range l.shelf {
		total += v.size
		if v.model != nil && v.users == 0 && !slices.Contains(l.o.Pinned, v.name) {
			idle = append(idle, v)
		}
	}
	slices.SortFunc(idle, func(a, b *volume) int { return a.used.Compare(b.used) })
	for _, v := range idle {
		if l.o.Memory == 0 || total <= l.o.Memory {
			break
		}
		total -= v.size
		delete(l.shelf, v.name)
		leaving = append(leaving, v)
	}
	return leaving
}

// discard closes models that are on the shelf no more.
func discard(list []*volume) {
	for _, v := range list {
		if err := v.close(); err != nil {
			v.model.log.Warn("closing a model", "model", v.name, "error", err)
		}
	}
}

func (v *volume) close() (err error) {
	defer rescue.To(&err)
	return v.model.Close()
}

// Loaded lists the models that are in memory, sorted by name, whether or not they are used.
func (l *Library) Loaded() []*Model {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*Model
	for _, v := range l.shelf {
		if v.model != nil {
			list = append(list, v.model)
		}
	}
	slices.SortFunc(list, func(a, b *Model) int { return strings.Compare(a.name, b.name) })
	return list
}

// Volume is a model of a library as it is at a moment.
type Volume struct {
	Name  string
	Model *Model // nil while it is being loaded
	Users int    // of it at this moment
}

// Volumes lists the models that are loaded or being loaded, sorted by the library's names.
// They may be closed at any time: all that can be asked of them without Use is what they are
// and their engine's Stats.
func (l *Library) Volumes() []Volume {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Volume, 0, len(l.shelf))
	for _, v := range l.shelf {
		list = append(list, Volume{v.name, v.model, v.users})
	}
	slices.SortFunc(list, func(a, b Volume) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Names lists the models there are.
func (l *Library) Names() []string { return l.o.Names() }

// Drain lets all answers of all models end, or ends them when ctx does, and closes the
// models. Nothing is loaded after it; a model that is still being loaded when ctx ends is
// left as it is.
func (l *Library) Drain(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	list := make([]*volume, 0, len(l.shelf))
	for _, v := range l.shelf {
		list = append(list, v)
	}
	clear(l.shelf)
	l.mu.Unlock()
	var errs []error
	for _, v := range list {
		select {
		case <-v.ready:
			if v.model != nil {
				errs = append(errs, v.model.engine.Drain(ctx))
			}
		case <-ctx.Done():
			errs = append(errs, ctx.Err())
		}
	}
	for _, v := range list {
		select {
		case <-v.ready:
		default:
			continue // still being loaded: it is left to the end of the process
		}
		if v.model != nil {
			errs = append(errs, v.close())
		}
	}
	return errors.Join(errs...)
}
