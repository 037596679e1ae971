package store

import (
	"context"
	"errors"
	"log/slog"
	"math"
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
}

// Shared is a store that several processes use, on any machines. It may have any number of files,
// so they are looked up by name when a text needs them. A prefix is fetched if that is expected
// to be faster than computing. Nothing is ever removed. While it fails, the cache works without
// it. It is safe for concurrent use.
type Shared struct {
	queue
	store Store
	o     SharedOptions
	speed speed
	life  context.Context
	stop  context.CancelFunc

	// The queue's mutex protects what follows.
	nodes            map[Key]*known
	damaged          map[Name]bool          // to be replaced
	coming           map[Name]chan struct{} // entries that are being fetched; closed at the end
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
	at    time.Time
	files map[Name]int64 // sizes
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
	s := &Shared{store: store, o: o, nodes: map[Key]*known{}, damaged: map[Name]bool{}, coming: map[Name]chan struct{}{}}
	s.life, s.stop = context.WithCancel(context.Background())
	s.start(s, o.Log, o.QueueBytes, math.MaxInt64, writers, fetchSlots)
	return s
}

// Close gives queued jobs a few seconds, and ends the background work.
func (s *Shared) Close() {
	s.close()
	late := time.AfterFunc(closeGrace, s.stop)
	s.done.Wait()
	late.Stop()
	s.stop()
}

// Stats is the account at this moment.
func (s *Shared) Stats() SharedStats {
	r := s.speed.now(time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.stats
	x.Down, x.Dropped = s.reading.down, s.dropped
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
	tell := h.fail(time.Now())
	s.mu.Unlock()
	switch {
	case !tell:
	case h == &s.writing:
		s.log.Warn("prefix cache: writes to the shared store fail; prefixes are not written to it until a write succeeds", "error", err)
	default:
		s.log.Warn("prefix cache: the shared store fails; prefixes are computed here until it answers again", "error", err)
	}
}

// answers records a successful request.
func (s *Shared) answers(h *health, useful bool) {
	s.mu.Lock()
	again := h.answered(useful)
	s.mu.Unlock()
	if again {
		s.log.Info("prefix cache: the shared store works again")
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
	if !s.probing && !s.closed && s.reading.due(time.Now()) {
		s.probing = true
		s.done.Go(func() {
			s.guard("asking", func() { _, _ = s.list(s.life, "probe", 1) })
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
	s.speed.small(time.Now(), time.Since(start))
	s.answers(&s.reading, false)
	s.count(func(x *SharedStats) { x.Lookups++ })
	return items, nil
}

// readable reports whether a file is there as far as is known.
func (s *Shared) readable(n Name) bool { return s.sizeOf(n) > 0 }

// sizeOf is the size of a file, 0 if it is not known to be there.
func (s *Shared) sizeOf(n Name) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size(n)
}

// size implements tier.
func (s *Shared) size(n Name) int64 {
	if k := s.nodes[n.node]; k != nil && !s.damaged[n] {
		return k.files[n]
	}
	return 0
}

// entries are the names of a node's entries, as far as it is known.
func (s *Shared) entries(node Key) (list []Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.nodes[node]; k != nil {
		for n := range k.files {
			if n.rest >= 0 && !s.damaged[n] {
				list = append(list, n)
			}
		}
	}
	return list
}

// read returns the sections of a file. A damaged one is ignored from now on.
func (s *Shared) read(ctx context.Context, q *Query, n Name) ([][]byte, error) {
	list, err := getFile(ctx, s.store, q, n)
	if err != nil {
		s.ignore(n, err)
	}
	return list, err
}

// ignore records that a file is unusable: it is gone, or it is damaged and will be replaced.
func (s *Shared) ignore(n Name, err error) {
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
		s.log.Warn("prefix cache: file of the shared store ignored", "file", n.String(), "error", err)
	}
}

// begin implements tier.
func (s *Shared) begin(j *job) bool {
	if len(j.files) == 0 {
		return false
	}
	last := j.files[len(j.files)-1].name
	s.mu.Lock()
	off, known := s.writing.down && !s.writing.due(time.Now()), s.size(last) > 0
	s.mu.Unlock()
	if !off && !known {
		_ = s.look(s.life, []Key{last.node}) // another process may have been faster
	}
	return !off
}

// put implements tier.
func (s *Shared) put(f *waiting) error {
	size := sealed(f.data)
	s.mu.Lock()
	had, replace := s.size(f.name), f.replace || s.damaged[f.name]
	s.mu.Unlock()
	if had >= size {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.life, putTime)
	defer cancel()
	if err := s.store.Put(ctx, f.name.String(), seal(f.data), replace || had > 0); err != nil {
		s.fails(&s.writing, err)
		return err
	}
	s.answers(&s.writing, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Written++
	s.stats.WrittenBytes += size
	delete(s.damaged, f.name)
	k := s.node(f.name.node)
	k.files[f.name] = max(k.files[f.name], size)
	return nil
}

// end implements tier.
func (s *Shared) end(*job) {}

// node is the lookup of a node; mu is held.
func (s *Shared) node(at Key) *known {
	k := s.nodes[at]
	if k == nil {
		if len(s.nodes) >= maxNodes {
			for old := range s.nodes { // any half of them: needed nodes are looked up again
				if delete(s.nodes, old); len(s.nodes) < maxNodes/2 {
					break
				}
			}
		}
		k = &known{files: map[Name]int64{}}
		s.nodes[at] = k
	}
	return k
}

// Wants reports whether an entry of that many tokens, files and bytes is to be written: it was used often
// enough, and fetching it is expected to be faster than computing it at token seconds each.
func (s *Shared) Wants(uses int, token float64, tokens, files int, bytes int64) bool {
	return uses >= s.o.Uses && worth(s.speed.now(time.Now()), token, tokens, files, bytes)
}
