package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/picture"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/state"
)

const (
	// defaultTowerMemory is a few dozen of the largest pictures.
	defaultTowerMemory = 256 << 20
	// passPatches is how many patches share a pass of the tower, unless one picture has more: its
	// products are no faster with more rows, and its memory grows with them.
	passPatches = 4096
)

// errNoTower is what comes of inputs where there is nothing to make their rows.
var errNoTower = errors.New("engine: the prompt has inputs, but the model has no tower to compute their rows")

// TowerStats is what a tower has done so far.
type TowerStats struct {
	Pictures int64         // whose rows were made; of a video, the whole of it
	Cached   int64         // times that rows were still there from before
	Took     time.Duration // in the tower
	Bytes    int64         // of rows that are kept
}

// sight makes the rows of pictures, in steps between rounds, and keeps those of recent ones. Only
// the loop uses it.
type sight struct {
	tower  model.Tower
	device backend.Backend
	memory int64 // bytes of rows that nobody uses and all others together

	views  map[viewKey]*view // that somebody wants, or whose rows are there
	queue  []*view           // wanted ones that no pass has begun with
	pass   model.TowerPass   // that is running; nil: none
	inPass []*view
	clock  uint64
	stats  TowerStats
	spent  time.Duration // before the running round
}

// viewKey is a picture and whose it is: the time to the first token would tell one tenant what
// another has shown.
type viewKey struct {
	salt prefix.Salt
	hash [32]byte
}

// view is a picture for the tower, then its rows.
type view struct {
	sight   *sight
	key     viewKey
	picture *picture.Patches // until there are rows
	// priority is the highest of those who wait for it.
	priority int
	rows     backend.Tensor // if made
	made     bool
	users    int    // parts of sequences that wait for the rows or use them
	used     uint64 // when it was last asked for
	alone    bool   // a pass with others has failed
	err      error  // why there will be no rows
}

func newSight(tower model.Tower, device backend.Backend, memory int64) sight {
	if memory == 0 {
		memory = defaultTowerMemory
	}
	return sight{tower: tower, device: device, memory: memory, views: map[viewKey]*view{}}
}

// want is the view of a picture of a request's salt, with its priority, for a user who leaves it in
// the end.
func (s *sight) want(r *Request, p *picture.Patches) *view {
	key := viewKey{r.Salt, p.Hash}
	v := s.views[key]
	if v == nil {
		v = &view{sight: s, key: key, picture: p, priority: r.Priority}
		s.views[key] = v
		s.queue = append(s.queue, v)
	} else if v.made {
		s.stats.Cached++
	}
	s.clock++
	v.used, v.users, v.priority = s.clock, v.users+1, max(v.priority, r.Priority)
	return v
}

// leave takes a user away. A picture that nobody waits for any more is not made; a pass is given
// up if that holds for all of its pictures.
func (v *view) leave() {
	s := v.sight
	if v.users--; v.users > 0 {
		return
	}
	switch {
	case v.made:
		s.evict()
	case !slices.Contains(s.inPass, v):
		s.forget(v)
	case !slices.ContainsFunc(s.inPass, func(v *view) bool { return v.users > 0 }):
		list := s.inPass
		_ = s.endPass() // a pass that cannot even end has nothing to say to anybody
		for _, v := range list {
			s.forget(v)
		}
	}
}

// forget drops a view.
func (s *sight) forget(v *view) {
	s.queue = slices.DeleteFunc(s.queue, func(w *view) bool { return w == v })
	if s.views[v.key] == v {
		delete(s.views, v.key)
	}
	if v.made {
		v.made = false
		s.stats.Bytes -= rowBytes(v.rows)
		s.device.Free(v.rows)
	}
}

// evict drops rows that nobody uses, the longest unused first, until all are within the budget.
func (s *sight) evict() {
	for s.stats.Bytes > s.memory {
		var oldest *view
		for _, v := range s.views {
			if v.made && v.users == 0 && (oldest == nil || v.used < oldest.used) {
				oldest = v
			}
		}
		if oldest == nil {
			return
		}
		s.forget(oldest)
	}
}

func rowBytes(t backend.Tensor) int64 { return int64(t.Rows) * int64(t.Cols) * int64(t.Type.Size()) }

// busy reports whether there is something for the tower to do.
func (s *sight) busy() bool { return s.pass != nil || len(s.queue) > 0 }

// step is a step of the tower, if there is something for it to do. After an error the pass must
// fail.
func (s *sight) step() error {
	start := time.Now()
	defer func() { s.stats.Took += time.Since(start) }()
	if s.pass == nil && !s.begin() {
		return nil
	}
	done, err := false, error(nil)
	if fault := try(func() { done, err = s.pass.Step() }); fault != nil {
		err = fault
	}
	if err == nil && done {
		s.take()
	}
	return err
}

// begin starts a pass with the first of those that wait, by priority, and others that fit.
func (s *sight) begin() bool {
	if len(s.queue) == 0 {
		return false
	}
	slices.SortStableFunc(s.queue, func(v, w *view) int { return cmp.Compare(w.priority, v.priority) })
	patches := 0
	var pictures []*picture.Patches
	s.inPass = nil
	s.queue = slices.DeleteFunc(s.queue, func(v *view) bool {
		n := v.picture.Rows()
		if len(pictures) > 0 && (v.alone || s.inPass[0].alone || patches+n > passPatches) {
			return false
		}
		patches += n
		pictures, s.inPass = append(pictures, v.picture), append(s.inPass, v)
		return true
	})
	var err error
	if fault := try(func() { s.pass, err = s.tower.Begin(pictures) }); fault != nil {
		err = fault
	}
	if err != nil {
		s.fail(err)
		return false
	}
	return true
}

// fail ends the pass with an error. If it had one picture, that is to blame; otherwise each gets a
// pass of its own, so that those that are sound are seen and the one that is not is found.
func (s *sight) fail(err error) {
	list := s.inPass
	_ = s.endPass() // err came first
	if len(list) == 1 {
		list[0].err = err
		return
	}
	for _, v := range list {
		v.alone = true
	}
	s.queue = append(slices.Clone(list), s.queue...)
	for _, v := range list {
		if v.users == 0 {
			s.forget(v)
		}
	}
}

// take takes the rows of a pass that is over.
func (s *sight) take() {
	list := s.inPass
	err := try(func() {
		for i, v := range list {
			v.rows = s.pass.Take(i)
			v.made, v.picture = true, nil
			s.stats.Bytes += rowBytes(v.rows)
			s.stats.Pictures++
		}
	})
	if fault := s.endPass(); err == nil {
		err = fault
	}
	for _, v := range list {
		if v.made {
			continue
		}
		if v.err = fmt.Errorf("engine: the tower failed: %w", err); v.users == 0 {
			s.forget(v)
		}
	}
	s.evict()
}

// endPass gives back what the pass has.
func (s *sight) endPass() (err error) {
	if s.pass != nil {
		err = try(s.pass.Close)
	}
	s.pass, s.inPass = nil, nil
	return err
}

// close gives everything back. Nobody uses it any more.
func (s *sight) close() {
	_ = s.endPass()
	for _, v := range s.views {
		s.forget(v)
	}
	s.queue = nil
}

// look has the tower go on before a round, as long as the round allows: for what its time has to
// spare beside sequences that generate, of which prompts get their half; for as long as the last
// round, beside prompts; for a step, which is some milliseconds, if all that run wait for it. If
// none does, what there is to see is for the background and can wait. Offline sequences do not count
// beside others, and if nobody else waits for the tower its steps are part of their share.
func (e *Engine) look() {
	e.sight.spent = 0
	if !e.sight.busy() {
		return
	}
	offline := e.offline()
	blind, generating, feeding, late := false, false, false, false
	rows := 0
	for _, s := range e.running {
		if s.req.Offline && !offline {
			late = late || s.blind
		} else if s.target != nil {
			blind = blind || s.blind
			if !s.prefilling() {
				generating, rows = true, rows+1+len(s.draft.Tokens)
			}
			feeding = feeding || s.prefilling() && !s.blind
		}
	}
	limit := time.Duration(0)
	switch {
	case !blind && late && e.share.credit > 0:
		e.see(0)
		e.share.credit -= e.sight.spent.Seconds()
		return
	case !blind:
		return
	case generating && feeding:
		limit = e.pace.spare(rows, e.o.MaxRound) / 2
	case generating:
		limit = e.pace.spare(rows, e.o.MaxRound)
	case feeding:
		limit = e.pace.last
	}
	e.see(limit)
}

// see runs the tower for a time, and one step at least.
func (e *Engine) see(limit time.Duration) {
	start := time.Now()
	for e.sight.busy() {
		if err := e.sight.step(); err != nil && !e.suspectAll(err) {
			e.sight.fail(err)
		}
		if e.sight.spent = time.Since(start); e.sight.spent >= limit {
			break
		}
	}
}

// suspectAll restarts all sequences that run, and the pass for their pictures with them, if a step
// has met an error of the device, which may be that of what somebody else has queued. It reports false
// if the pictures are to blame: it is none, or it has happened before.
func (e *Engine) suspectAll(err error) bool {
	if !errors.Is(err, state.ErrFailed) || backend.Lost(err) || len(e.running) == 0 || slices.ContainsFunc(e.running, func(s *sequence) bool { return s.isolated }) {
		return false
	}
	e.o.Log.Warn("the device failed; all sequences are restarted, one by one", "error", err)
	e.restartAll(true)
	return true
}
