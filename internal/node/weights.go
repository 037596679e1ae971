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
	// Models lists the folders and files of checkpoints; nil: there are none. It is called for each leader.
	Models func() []string
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

	telling sync.Mutex // of the following; nothing is read or hashed with it
	counts  Counts
	held    map[string]*parts // by model: what was found in files since Idle
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
	w.telling.Lock()
	defer w.telling.Unlock()
	return w.counts
}

// Find returns the matrix with a digest, if the node has it; form is the matrix without its bytes. It is valid until
// Begin or Close. An error says that a file is damaged. Files that cannot be read are not used, and the log says so.
func (w *Weights) Find(d remote.Digest, form *dtype.Matrix) (m dtype.Matrix, ok bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open()
	f, p := w.known(d)
	if f == nil && w.cache != nil {
		if m, ok, err = w.cache.find(d); err != nil {
			w.o.Log.Warn("cache of weights", "error", err)
		} else if ok {
			w.count(&w.counts.Cached, &w.counts.CachedBytes, &m)
			return m, true, nil
		}
	}
	if f == nil {
		w.search(d, form)
		f, p = w.known(d)
	}
	for ; f != nil; f, p = w.known(d) {
		m, err = f.matrix(p, d)
		switch {
		case err == nil:
			w.last = f
			w.count(&w.counts.Own, &w.counts.OwnBytes, &m)
			w.note()
			return m, true, nil
		case errors.Is(err, errDamaged):
			return m, false, err
		}
		w.leave(f, err)
	}
	return m, false, nil
}

// count counts a matrix.
func (w *Weights) count(n, bytes *int64, m *dtype.Matrix) {
	w.telling.Lock()
	defer w.telling.Unlock()
	*n++
	*bytes += m.Bytes()
}

// leave leaves out a checkpoint until the next leader comes. Its matrices stay valid.
func (w *Weights) leave(f *files, err error) {
	f.left = true
	w.o.Log.Warn(notUsed, "model", f.path, "error", err)
}

const notUsed = "the files of a model are not used"

// parts are the parts of a model that were found in files.
type parts struct {
	layers []int
	others []string
}

// note notes the part of the model that the matrix found last belongs to.
func (w *Weights) note() {
	w.telling.Lock()
	defer w.telling.Unlock()
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
	w.telling.Lock()
	defer w.telling.Unlock()
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

// open opens the checkpoints there are now. Those that cannot be opened are not used, and those that have not changed stay open.
func (w *Weights) open() {
	if w.opened {
		return
	}
	w.opened = true
	folder, before := "", w.models
	if w.o.Folder != "" {
		folder = filepath.Join(w.o.Folder, "index")
	}
	if w.models = nil; w.o.Models == nil {
		return
	}
	for _, path := range w.o.Models() {
		i := slices.IndexFunc(before, func(f *files) bool { return f.path == path && !f.left && f.at.Unchanged() == nil })
		if i >= 0 {
			w.models, before = append(w.models, before[i]), slices.Delete(before, i, i+1)
		} else if f, err := openFiles(path, folder); err != nil {
			w.o.Log.Warn(notUsed, "model", path, "error", err)
		} else {
			w.models = append(w.models, f)
		}
	}
	for _, f := range before {
		if err := f.close(); err != nil {
			w.o.Log.Warn("files of a model", "model", f.path, "error", err)
		}
	}
}

// inOrder are the checkpoints that are used, the one that had the last matrix first.
func (w *Weights) inOrder() []*files {
	list := slices.DeleteFunc(slices.Clone(w.models), func(f *files) bool { return f.left })
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
func (w *Weights) search(d remote.Digest, form *dtype.Matrix) {
	var nearest string
	for _, f := range w.inOrder() {
		for _, x := range f.after(f.last, form) {
			if x.digests != nil {
				continue // known has looked at them
			}
			bytes, err := f.digest(x)
			if err != nil {
				w.leave(f, fmt.Errorf("%s: %w", x.weight.Name, err))
				break
			}
			w.progress(f, bytes)
			if _, ok := f.known[d]; ok {
				return
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
	w.count(&w.counts.Sent, &w.counts.SentBytes, m)
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

// Begin is called when a leader comes, and nothing uses the matrices of the former: models that were added or changed since are found.
func (w *Weights) Begin() {
	w.Idle()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened = false
}

// Idle is called when a leader is gone: digests are written, and pages of files released.
func (w *Weights) Idle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = false
	w.telling.Lock()
	clear(w.held)
	w.telling.Unlock()
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
