// Package node is what a machine needs to compute a part of a model for another one: the weights that it has itself,
// and what it tells of its work. Package remote serves the device.
//
// A leader names matrices by digests of their bytes and form. A node has a matrix if one of its checkpoints
// gives the same when its family's table of weights reads it, as the leader's does: in which files and under which
// names does not matter. What the leader has to send is kept in a folder.
package node

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/models"
)

// WeightOptions say where a node finds weights.
type WeightOptions struct {
	Models []string // folders and files of checkpoints
	// Folder is for the digests of checkpoints and for what leaders send; "": neither is kept.
	Folder string
	Limit  int64 // bytes of what leaders send; 0: it is not kept
	Log    *slog.Logger
}

// Weights finds matrices by their digests. It may be used by several goroutines.
type Weights struct {
	o WeightOptions

	mu       sync.Mutex
	opened   bool
	models   []*files
	cache    *cache // nil: none
	last     *files // that had the matrix that was found last
	stopped  bool   // the cache is full, or cannot be written, and that was said
	hashed   int64  // bytes
	reported time.Time
	counts   Counts
	held     map[string]*parts // by model: what was found in files since Idle
}

// Counts is where the matrices came from.
type Counts struct {
	Own, Cached, Sent                int64
	OwnBytes, CachedBytes, SentBytes int64
}

// OpenWeights opens nothing yet: checkpoints are opened when the first matrix is asked for.
func OpenWeights(o WeightOptions) (*Weights, error) {
	w := &Weights{o: o, held: map[string]*parts{}}
	if o.Folder != "" && o.Limit > 0 {
		var err error
		if w.cache, err = openCache(filepath.Join(o.Folder, "weights"), o.Limit); err != nil {
			return nil, fmt.Errorf("the cache of weights: %w", err)
		}
	}
	return w, nil
}

// Counts is where the matrices came from so far.
func (w *Weights) Counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}

// Find returns the matrix with a digest, if the node has it; form is the matrix without its bytes. It is valid until
// Close. An error says that a file is damaged.
func (w *Weights) Find(d remote.Digest, form *dtype.Matrix) (m dtype.Matrix, ok bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open()
	f, p := w.known(d)
	if f == nil && w.cache != nil {
		if m, ok, err = w.cache.find(d); err != nil {
			w.o.Log.Warn("cache of weights", "error", err)
		} else if ok {
			w.counts.Cached++
			w.counts.CachedBytes += m.Bytes()
			return m, true, nil
		}
	}
	if f == nil {
		if err := w.search(d, form); err != nil {
			return m, false, err
		}
		if f, p = w.known(d); f == nil {
			return m, false, nil
		}
	}
	w.last = f
	if m, err = f.matrix(p, d); err != nil {
		return m, false, err
	}
	w.counts.Own++
	w.counts.OwnBytes += m.Bytes()
	w.note()
	return m, true, nil
}

// parts are the parts of a model that were found in files.
type parts struct {
	layers []int
	others []string
}

// note notes the part of the model that the matrix found last belongs to.
func (w *Weights) note() {
	model := models.Name(w.last.path)
	if w.held[model] == nil {
		w.held[model] = &parts{}
	}
	p := w.held[model]
	name, _, _ := strings.Cut(strings.TrimPrefix(w.last.last.weight.Name, "layers."), ".")
	if n, err := strconv.Atoi(name); err != nil && !slices.Contains(p.others, name) {
		p.others = append(p.others, name)
	} else if err == nil && !slices.Contains(p.layers, n) {
		p.layers = append(p.layers, n)
	}
}

// Held describes the parts of models that were found in files since the leader came, for people.
func (w *Weights) Held() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for _, model := range slices.Sorted(maps.Keys(w.held)) {
		p, names := w.held[model], []string(nil)
		if len(p.layers) > 0 {
			names = append(names, "layers "+weights.Ranges(p.layers))
		}
		slices.Sort(p.others)
		list = append(list, model+": "+strings.Join(append(names, p.others...), ", "))
	}
	return strings.Join(list, "; ")
}

// open opens the checkpoints. Those that cannot be opened are not used.
func (w *Weights) open() {
	if w.opened {
		return
	}
	w.opened = true
	folder := ""
	if w.o.Folder != "" {
		folder = filepath.Join(w.o.Folder, "index")
	}
	for _, path := range w.o.Models {
		f, err := openFiles(path, folder)
		if err != nil {
			w.o.Log.Warn("a model is not used: its weights come from the leader", "model", path, "error", err)
			continue
		}
		w.models = append(w.models, f)
	}
}

// inOrder are the checkpoints, the one that had the last matrix first.
func (w *Weights) inOrder() []*files {
	list := slices.Clone(w.models)
	if i := slices.Index(list, w.last); i > 0 {
		list[0], list[i] = list[i], list[0]
	}
	return list
}

// known is the place of a matrix whose digest has been computed.
func (w *Weights) known(d remote.Digest) (*files, place) {
	for _, f := range w.inOrder() {
		if p, ok := f.known[d]; ok {
			return f, p
		}
	}
	return nil, place{}
}

// search computes digests of weights with matrices of a form until one is the wanted.
func (w *Weights) search(d remote.Digest, form *dtype.Matrix) error {
	var nearest string
	for _, f := range w.inOrder() {
		for _, x := range f.after(f.last, form) {
			if x.digests != nil {
				continue // known has looked at them
			}
			bytes, err := f.digest(x)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", f.path, x.weight.Name, err)
			}
			w.progress(f, bytes)
			if _, ok := f.known[d]; ok {
				return nil
			}
			if nearest == "" && f == w.last {
				file, tensor := x.weight.Place()
				nearest = fmt.Sprintf("%s: tensor %s", filepath.Join(f.path, file), tensor)
			}
		}
	}
	if nearest != "" {
		w.o.Log.Warn("the leader has other bytes than a file of this machine: they are not used, the leader sends its own", "file", nearest)
	}
	return nil
}

// progress says from time to time how much was read for digests.
func (w *Weights) progress(f *files, bytes int64) {
	w.hashed += bytes
	if now := time.Now(); now.Sub(w.reported) > 2*time.Second {
		if !w.reported.IsZero() {
			w.o.Log.Info("computing digests of weights, once per file", "model", f.path, "read_bytes", w.hashed)
		}
		w.reported = now
	}
}

// Keep is told a matrix that the leader has sent.
func (w *Weights) Keep(d remote.Digest, m *dtype.Matrix) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.Sent++
	w.counts.SentBytes += m.Bytes()
	if w.cache == nil {
		return
	}
	kept, err := w.cache.keep(d, m)
	if kept || w.stopped {
		return
	}
	w.stopped = true
	w.o.Log.Warn("weights that the leader sends are not kept, and are sent again at the next start; raise --cache-size, or copy the model to this machine", "limit_bytes", w.o.Limit, "error", err)
}

// Idle is called when a leader is gone: digests are written, and pages of files released.
func (w *Weights) Idle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = false
	clear(w.held)
	if w.cache != nil {
		w.cache.began = time.Now()
	}
	for _, f := range w.models {
		f.release()
		if err := f.writeIndex(); err != nil {
			w.o.Log.Warn("digests of weights are not kept", "model", f.path, "error", err)
		}
	}
}

// Close closes the checkpoints.
func (w *Weights) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var err error
	for _, f := range w.models {
		err = errors.Join(err, f.close())
	}
	w.models, w.opened = nil, true
	return err
}
