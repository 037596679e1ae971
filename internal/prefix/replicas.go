package prefix

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// SharedOptions configure a Shared.
type SharedOptions struct {
	// Fingerprint identifies a model, as that of a Disk.
	Fingerprint string
	// Uses is how often a boundary is used, which storing it counts as, before it is written. 0: 2.
	Uses int
	// QueueBytes is the maximum memory of files that wait to be written. 0: 256 MiB.
	QueueBytes int64
	Log        *slog.Logger // nil: silent

	now      func() time.Time // for tests
	patience time.Duration    // likewise: how long a fetch may take
}

// Shared is a store that several processes use, on any machines. It may have any number of files,
// so they are looked up by name when a text needs them. A prefix is fetched if that is expected
// to be faster than computing. Nothing is ever removed. While it fails, the cache works without
// it. It is safe for concurrent use.
type Shared struct {
	store Store
	o     SharedOptions
	speed speed
	jobs  chan job
	slots chan struct{} // of fetches
	done  sync.WaitGroup
	life  context.Context
	end   context.CancelFunc

	mu               sync.Mutex // protects what follows
	closed           bool
	nodes            map[key]*known
	queued           map[name]bool    // written soon
	damaged          map[name]bool    // to be replaced
	coming           map[name]*coming // entries that are being fetched
	pending          int64
	reading, writing health
	probing          bool
	stats            SharedStats
}

// SharedStats are the state and the counters of a Shared.
type SharedStats struct {
	Down           bool          // it fails, and is not used
	Latency        time.Duration // of a small request; 0: not known
	BytesPerSecond float64       // 0: not known
	Lookups        int64         // listings
	Fetched        int64         // prefixes
	FetchedBytes   int64
	Refused        int64 // prefixes that were expected to be computed faster than fetched
	Late           int64 // prefixes that were abandoned because the store was slower than expected
	Written        int64 // files
	WrittenBytes   int64
	Dropped        int64 // files not written: the queue was full, or the store failed
	Ignored        int64 // damaged or foreign files
	Failures       int64 // of requests
}

// known is the result of the lookup of a node.
type known struct {
	at   time.Time
	page int64          // size; 0: there is none
	ends map[name]int64 // sizes
}

const (
	fetchSlots   = 16
	writers      = 4
	freshFor     = 30 * time.Second // other processes write meanwhile
	maxNodes     = 1 << 16          // known at a time
	maxEnds      = 1000             // of a node, in a listing
	lookupTime   = 2 * time.Second
	putTime      = time.Minute
	leastFetch   = 2 * time.Second  // in any case
	unknownFetch = 30 * time.Second // if the time of computing is not known
	closeGrace   = 5 * time.Second
)

// NewShared uses a store that other processes use too. It must be closed after the caches that use it.
func NewShared(store Store, o SharedOptions) *Shared {
	if o.Uses == 0 {
		o.Uses = 2
	}
	if o.QueueBytes == 0 {
		o.QueueBytes = defaultQueueBytes
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.now == nil {
		o.now = time.Now
	}
	s := &Shared{
		store: store, o: o, jobs: make(chan job, queueJobs), slots: make(chan struct{}, fetchSlots),
		nodes: map[key]*known{}, queued: map[name]bool{}, damaged: map[name]bool{}, coming: map[name]*coming{},
	}
	s.life, s.end = context.WithCancel(context.Background())
	for range writers {
		s.done.Go(func() {
			for j := range s.jobs {
				guard(o.Log, "writing", func() { s.write(&j) })
				s.abandon(&j)
			}
		})
	}
	return s
}

// Close gives queued jobs a few seconds, and ends the background work.
func (s *Shared) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.jobs)
	}
	s.mu.Unlock()
	late := time.AfterFunc(closeGrace, s.end)
	s.done.Wait()
	late.Stop()
	s.end()
}

// Stats is the account at this moment.
func (s *Shared) Stats() SharedStats {
	r := s.speed.now(s.o.now())
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.stats
	x.Down = s.reading.down
	x.Latency, x.BytesPerSecond = time.Duration(r.latency*float64(time.Second)), r.bytes
	return x
}

func (s *Shared) count(change func(*SharedStats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats)
}

// fails records a failed request. A missing or foreign file and a canceled request are not
// failures.
func (s *Shared) fails(h *health, err error) {
	if err == nil || isGone(err) || errors.Is(err, errForeign) || s.life.Err() != nil || errors.Is(err, context.Canceled) {
		return
	}
	s.mu.Lock()
	s.stats.Failures++
	tell := h.fail(s.o.now())
	s.mu.Unlock()
	switch {
	case !tell:
	case h == &s.writing:
		s.o.Log.Warn("prefix cache: writes to the shared store fail; prefixes are not written to it until a write succeeds", "error", err)
	default:
		s.o.Log.Warn("prefix cache: the shared store fails; prefixes are computed here until it answers again", "error", err)
	}
}

// answers records a successful request.
func (s *Shared) answers(h *health, useful bool) {
	s.mu.Lock()
	again := h.answered(useful)
	s.mu.Unlock()
	if again {
		s.o.Log.Info("prefix cache: the shared store works again")
	}
}

// usable reports whether the store can be read. A failed one is retried in the background,
// so that no request waits for it.
func (s *Shared) usable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.reading.down {
		return true
	}
	if !s.probing && !s.closed && s.reading.due(s.o.now()) {
		s.probing = true
		s.done.Go(func() {
			guard(s.o.Log, "asking", func() { _, _ = s.list(s.life, "probe", 1) })
			s.mu.Lock()
			defer s.mu.Unlock()
			s.probing = false
		})
	}
	return false
}

// list is the store's, timed.
func (s *Shared) list(ctx context.Context, prefix string, limit int) ([]Item, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	start := time.Now()
	items, err := s.store.List(ctx, prefix, limit)
	if err != nil {
		s.fails(&s.reading, err)
		return nil, err
	}
	s.speed.small(s.o.now(), time.Since(start))
	s.answers(&s.reading, false)
	s.count(func(x *SharedStats) { x.Lookups++ })
	return items, nil
}

// later runs fetch in the background. It reports false if too many run already.
func (s *Shared) later(fetch func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	select {
	case s.slots <- struct{}{}:
	default:
		return false
	}
	s.done.Go(func() {
		defer func() { <-s.slots }()
		guard(s.o.Log, "reading", fetch)
	})
	return true
}

// has reports whether a file is there as far as is known; readable: not just queued.
func (s *Shared) has(n name, readable bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sizeOf(n) > 0 || !readable && s.queued[n]
}

// size is that of a file, 0 if it is not known to be there.
func (s *Shared) size(n name) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sizeOf(n)
}

func (s *Shared) sizeOf(n name) int64 {
	k := s.nodes[n.node]
	switch {
	case k == nil || s.damaged[n]:
		return 0
	case n.rest < 0:
		return k.page
	}
	return k.ends[n]
}

// entries are the names of a node's entries, as far as it is known.
func (s *Shared) entries(node key) (list []name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.nodes[node]; k != nil {
		for n := range maps.Keys(k.ends) {
			if !s.damaged[n] {
				list = append(list, n)
			}
		}
	}
	return list
}

// read returns the sections of a file and its size. One that is damaged is ignored from now on.
func (s *Shared) read(ctx context.Context, n name, sections int, limit int64) ([][]byte, int64, error) {
	data, err := s.store.Get(ctx, n.String(), limit)
	if err != nil {
		s.ignore(n, err)
		return nil, 0, err
	}
	list, err := openFile(data, n.key(), sections)
	if err != nil {
		s.ignore(n, err)
		return nil, 0, err
	}
	return list, int64(len(data)), nil
}

// ignore records that a file is unusable: it is gone, or it is damaged and will be replaced.
func (s *Shared) ignore(n name, err error) {
	if isGone(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.nodes, n.node) // with all other data of the node
		return
	}
	if !errors.Is(err, errForeign) {
		return
	}
	s.mu.Lock()
	again := s.damaged[n]
	if len(s.damaged) < maxNodes {
		s.damaged[n] = true
	}
	s.stats.Ignored++
	s.mu.Unlock()
	if !again {
		s.o.Log.Warn("prefix cache: file of the shared store ignored", "file", n.String(), "error", err)
	}
}

// fits reports whether a number of bytes may be queued besides those of a job.
func (s *Shared) fits(j *job, bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending+j.bytes()+bytes <= s.o.QueueBytes {
		return true
	}
	s.stats.Dropped++
	return false
}

// queue hands a job to the background, or drops it.
func (s *Shared) queue(j job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.jobs) == cap(s.jobs) { // only this function sends, so it never waits
		s.stats.Dropped += int64(len(j.names))
		return
	}
	s.pending += j.bytes()
	for _, n := range j.names {
		s.queued[n] = true
	}
	s.jobs <- j
}

// abandon takes the rest of a job off the list.
func (s *Shared) abandon(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, n := range j.names {
		if j.data[i] != nil {
			s.pending -= int64(len(j.data[i]))
			s.stats.Dropped++
			delete(s.queued, n)
		}
	}
}

// write does a job, the entry last: a reader that finds the entry finds its pages.
func (s *Shared) write(j *job) {
	s.mu.Lock()
	off := s.writing.down && !s.writing.due(s.o.now())
	s.mu.Unlock()
	if off || len(j.names) == 0 {
		return
	}
	last := j.names[len(j.names)-1]
	if !s.has(last, true) {
		_ = s.look(s.life, []key{last.node}) // another process may have been faster
	}
	for i, n := range j.names {
		size := int64(len(j.data[i]))
		if !s.has(n, true) {
			if err := s.put(n, j.data[i]); err != nil {
				s.fails(&s.writing, err)
				return
			}
			s.answers(&s.writing, true)
		}
		j.data[i] = nil
		s.written(n, size)
	}
}

func (s *Shared) put(n name, data []byte) error {
	ctx, cancel := context.WithTimeout(s.life, putTime)
	defer cancel()
	s.mu.Lock()
	replace := s.damaged[n]
	s.mu.Unlock()
	data = sealFile(data)
	if err := s.store.Put(ctx, n.String(), data, replace); err != nil {
		return err
	}
	s.count(func(x *SharedStats) { x.Written++; x.WrittenBytes += int64(len(data)) })
	return nil
}

// written records that a file of a job is in the store.
func (s *Shared) written(n name, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending -= size
	delete(s.queued, n)
	delete(s.damaged, n)
	k := s.node(n.node)
	if size += sha256.Size; n.rest < 0 {
		k.page = size
	} else {
		k.ends[n] = size
	}
}

// node is the lookup of a node; mu is held.
func (s *Shared) node(at key) *known {
	k := s.nodes[at]
	if k == nil {
		if len(s.nodes) >= maxNodes {
			for old := range s.nodes { // any half of them: needed nodes are looked up again
				if delete(s.nodes, old); len(s.nodes) < maxNodes/2 {
					break
				}
			}
		}
		k = &known{ends: map[name]int64{}}
		s.nodes[at] = k
	}
	return k
}

func (s *Shared) log() *slog.Logger { return s.o.Log }
