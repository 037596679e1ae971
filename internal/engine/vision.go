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
)

const (
	// defaultTowerMemory is a few dozen of the largest images.
	defaultTowerMemory = 256 << 20
	// passPatches is the number of patches of a pass of the tower, unless one image has more: its
	// products are no faster with more rows, and its memory grows with them.
	passPatches = 4096
)

// errNoTower reports a prompt with images for a model without a vision tower.
var errNoTower = errors.New("engine: the prompt has inputs, but the model has no tower to compute their rows")

// TowerStats are the counters of a tower.
type TowerStats struct {
	Pictures int64         // whose rows were made; of a video, the whole of it
	Cached   int64         // times that rows were still there from before
	Took     time.Duration // in the tower
	Bytes    int64         // of rows that are kept
}

// visionQueue computes the rows of images with the vision tower, in steps between rounds, and keeps those of recent
// ones. Only the loop uses it.
type visionQueue struct {
	tower  model.Tower
	device backend.Backend
	memory int64 // maximum bytes of rows, unless more are in use

	jobs    map[visionKey]*visionJob // that have users, or whose rows are there
	waiting []*visionJob             // that no pass has begun with
	pass    model.TowerPass          // that is running; nil: none
	inPass  []*visionJob
	clock   uint64
	stats   TowerStats
}

// visionKey is an image and its tenant: otherwise the time to the first token would tell one tenant about
// another's images.
type visionKey struct {
	salt prefix.Salt
	hash [32]byte
}

// visionJob is an image for the tower, then its rows.
type visionJob struct {
	queue    *visionQueue
	key      visionKey
	image    *picture.Patches // until there are rows
	priority int              // the highest of its users
	rows     backend.Tensor   // if done
	done     bool
	users    int    // parts of sequences that wait for the rows or use them
	used     uint64 // when it was last requested
	isolated bool   // a pass with others has failed
	err      error  // why there will be no rows
}

func newVisionQueue(tower model.Tower, device backend.Backend, memory int64) visionQueue {
	return visionQueue{tower: tower, device: device, memory: cmp.Or(memory, defaultTowerMemory), jobs: map[visionKey]*visionJob{}}
}

// add is the job of an image of a request with that salt and priority, for one more user. Each user calls release in the
// end.
func (q *visionQueue) add(salt prefix.Salt, priority int, p *picture.Patches) *visionJob {
	key := visionKey{salt, p.Hash}
	v := q.jobs[key]
	if v == nil {
		v = &visionJob{queue: q, key: key, image: p, priority: priority}
		q.jobs[key] = v
		q.waiting = append(q.waiting, v)
	} else if v.done {
		q.stats.Cached++
	}
	q.clock++
	v.used, v.users, v.priority = q.clock, v.users+1, max(v.priority, priority)
	return v
}

// release removes a user. An image without users is not computed. A pass is canceled if none of its images has
// users.
func (v *visionJob) release() {
	q := v.queue
	if v.users--; v.users > 0 {
		return
	}
	switch {
	case v.done:
		q.evict()
	case !slices.Contains(q.inPass, v):
		q.drop(v)
	case !slices.ContainsFunc(q.inPass, func(v *visionJob) bool { return v.users > 0 }):
		list := q.inPass
		_ = q.endPass() // the images of the pass have no users to tell
		for _, v := range list {
			q.drop(v)
		}
	}
}

// drop removes a job.
func (q *visionQueue) drop(v *visionJob) {
	q.waiting = slices.DeleteFunc(q.waiting, func(w *visionJob) bool { return w == v })
	if q.jobs[v.key] == v {
		delete(q.jobs, v.key)
	}
	if v.done {
		v.done = false
		q.stats.Bytes -= rowBytes(v.rows)
		q.device.Free(v.rows)
	}
}

// evict drops rows without users, the longest unused first, until all are within the budget.
func (q *visionQueue) evict() {
	for q.stats.Bytes > q.memory {
		var oldest *visionJob
		for _, v := range q.jobs {
			if v.done && v.users == 0 && (oldest == nil || v.used < oldest.used) {
				oldest = v
			}
		}
		if oldest == nil {
			return
		}
		q.drop(oldest)
	}
}

func rowBytes(t backend.Tensor) int64 { return int64(t.Rows) * int64(t.Cols) * int64(t.Type.Size()) }

// busy reports whether there is something for the tower to do.
func (q *visionQueue) busy() bool { return q.pass != nil || len(q.waiting) > 0 }

// step is a step of the tower, if there is something for it to do. After an error the pass must
// fail.
func (q *visionQueue) step() error {
	start := time.Now()
	defer func() { q.stats.Took += time.Since(start) }()
	if q.pass == nil && !q.begin() {
		return nil
	}
	done, err := false, error(nil)
	if fault := try(func() { done, err = q.pass.Step() }); fault != nil {
		err = fault
	}
	if err == nil && done {
		q.take()
	}
	return err
}

// begin starts a pass with the first waiting image, by priority, and others that fit.
func (q *visionQueue) begin() bool {
	if len(q.waiting) == 0 {
		return false
	}
	slices.SortStableFunc(q.waiting, func(v, w *visionJob) int { return cmp.Compare(w.priority, v.priority) })
	patches := 0
	var images []*picture.Patches
	q.inPass = nil
	q.waiting = slices.DeleteFunc(q.waiting, func(v *visionJob) bool {
		n := v.image.Rows()
		if len(images) > 0 && (v.isolated || q.inPass[0].isolated || patches+n > passPatches) {
			return false
		}
		patches += n
		images, q.inPass = append(images, v.image), append(q.inPass, v)
		return true
	})
	var err error
	if fault := try(func() { q.pass, err = q.tower.Begin(images) }); fault != nil {
		err = fault
	}
	if err != nil {
		q.fail(err)
		return false
	}
	return true
}

// fail ends the pass with an error. If it had one image, that is at fault; otherwise each gets a
// pass alone, so that sound ones are computed and the faulty one is found.
func (q *visionQueue) fail(err error) {
	list := q.inPass
	_ = q.endPass() // err came first
	if len(list) == 1 {
		list[0].err = err
		return
	}
	for _, v := range list {
		v.isolated = true
	}
	q.waiting = append(slices.Clone(list), q.waiting...)
	for _, v := range list {
		if v.users == 0 {
			q.drop(v)
		}
	}
}

// take takes the rows of a finished pass.
func (q *visionQueue) take() {
	list := q.inPass
	err := try(func() {
		for i, v := range list {
			v.rows = q.pass.Take(i)
			v.done, v.image = true, nil
			q.stats.Bytes += rowBytes(v.rows)
			q.stats.Pictures++
		}
	})
	if fault := q.endPass(); err == nil {
		err = fault
	}
	for _, v := range list {
		if v.done {
			continue
		}
		if v.err = fmt.Errorf("engine: the tower failed: %w", err); v.users == 0 {
			q.drop(v)
		}
	}
	q.evict()
}

// endPass frees the memory of the pass.
func (q *visionQueue) endPass() (err error) {
	if q.pass != nil {
		err = try(q.pass.Close)
	}
	q.pass, q.inPass = nil, nil
	return err
}

// close frees everything. The queue is empty afterwards.
func (q *visionQueue) close() {
	_ = q.endPass()
	for _, v := range q.jobs {
		q.drop(v)
	}
	q.waiting = nil
}
