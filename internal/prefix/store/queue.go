package store

import (
	"log/slog"
	"sync"

	"github.com/foretoken/foretoken/internal/rescue"
)

// queue is the background of a tier: it writes files and runs reads, and refuses both if too much
// waits already.
type queue struct {
	tier  tier
	log   *slog.Logger
	limit int64 // bytes of files that wait
	most  int64 // bytes of a file
	jobs  chan *job
	slots chan struct{} // of reads
	done  sync.WaitGroup

	mu      sync.Mutex // protects what follows and the files of the tier
	closed  bool
	queued  map[Name]*waiting // the last job's
	pending int64             // bytes in jobs
	dropped int64             // files that were not written
}

// tier is where a queue writes to.
type tier interface {
	size(n Name) int64 // of a readable file, 0: there is none; mu is held
	begin(j *job) bool // reports whether the job is to be done
	put(f *waiting) error
	end(j *job) // files with data were not written
}

// job is files to write, and files that were used.
type job struct {
	files []waiting
	bytes int64
	names []Name // all files of the entry, in order, as far as they are there or to be written
}

// waiting is a file to write, complete but for the checksum.
type waiting struct {
	name    Name
	data    []byte // nil: it was written
	replace bool   // a smaller one
	size    int64  // on disk, while it is queued
}

// Section is a part of a file. A missing one has no bytes.
type Section interface {
	Bytes() int64 // that AppendTo appends
	AppendTo(dst []byte) ([]byte, error)
}

// Limits of the background.
const (
	queueJobs         = 64
	defaultQueueBytes = 256 << 20
)

// start starts a queue for a tier. limit 0 is the default.
func (q *queue) start(t tier, log *slog.Logger, limit, most int64, writers, reads int) {
	if limit == 0 {
		limit = defaultQueueBytes
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	q.tier, q.log, q.limit, q.most = t, log, limit, most
	q.jobs, q.slots, q.queued = make(chan *job, queueJobs), make(chan struct{}, reads), map[Name]*waiting{}
	for range writers {
		q.done.Go(func() {
			for j := range q.jobs {
				q.guard("writing", func() { q.do(j) })
				q.finish(j)
			}
		})
	}
}

// close refuses further work.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		close(q.jobs)
	}
}

// guard runs a task of the background. A panic loses the task, not the process.
func (q *queue) guard(doing string, task func()) {
	if err := rescue.Do(func() error { task(); return nil }); err != nil {
		q.log.Error("prefix cache: a background task panicked", "doing", doing, "error", err.Error(), "stack", rescue.Stack(err))
	}
}

// later runs read in the background. It reports false if too many reads wait already.
func (q *queue) later(read func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	select {
	case q.slots <- struct{}{}:
	default:
		return false
	}
	q.done.Go(func() {
		defer func() { <-q.slots }()
		q.guard("reading", read)
	})
	return true
}

// Write queues the files of an entry, whose sections it asks for, the first pages first. It leaves out
// existing ones, unless they are smaller: those lack sections. If not all of it fits into the queue, the
// rest waits for the next entry on the same path, and Write reports false. Files of windows are written with an entry or
// not at all. If they and the entry are larger than the queue, they fit if nothing else waits. The error is that of a section.
func (q *queue) Write(names []Name, sections func(i int) []Section) (all bool, err error) {
	j := &job{}
	defer q.enqueue(j)
	for i := 0; i < len(names); {
		end := i + 1
		if names[i].rest == windowFile {
			end = len(names)
		}
		missing, size := q.missing(names[i:end], func(k int) []Section { return sections(i + k) })
		q.mu.Lock()
		fits := size <= q.most && (q.pending+j.bytes+size <= q.limit || end == len(names) && size > q.limit && q.pending == 0)
		if !fits {
			q.dropped += int64(len(missing))
		}
		q.mu.Unlock()
		if !fits && len(missing) > 0 {
			return false, nil
		}
		for k, n := range names[i:end] {
			had, ok := missing[n]
			if j.names = append(j.names, n); !ok {
				continue
			}
			parts := sections(i + k)
			data, err := pack(n, parts, fileBytes(parts))
			if err != nil {
				q.log.Warn("prefix cache: state not read", "error", err)
				return false, err
			}
			j.files, j.bytes = append(j.files, waiting{name: n, data: data, replace: had > 0}), j.bytes+int64(len(data))
		}
		i = end
	}
	return true, nil
}

// missing are the files that are not there as large as they will be, with the sizes that are there, and the bytes to write.
func (q *queue) missing(names []Name, sections func(i int) []Section) (missing map[Name]int64, size int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	missing = map[Name]int64{}
	for i, n := range names {
		had, want := q.tier.size(n), fileBytes(sections(i))
		if f := q.queued[n]; f != nil {
			had = max(had, f.size)
		}
		if had < want {
			missing[n] = had
			size += want
		}
	}
	return missing, size
}

// enqueue hands a job to the background, or drops it.
func (q *queue) enqueue(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.jobs) == cap(q.jobs) { // only this function sends, so it never waits
		q.dropped += int64(len(j.files))
		return
	}
	q.pending += j.bytes
	for i := range j.files {
		f := &j.files[i]
		f.size = sealed(f.data)
		q.queued[f.name] = f
	}
	q.jobs <- j
}

// do writes the files of a job, the entry last: a reader that finds the entry finds its pages.
func (q *queue) do(j *job) {
	if !q.tier.begin(j) {
		return
	}
	for i := range j.files {
		f := &j.files[i]
		if q.tier.put(f) != nil {
			return
		}
		f.data = nil
	}
}

// finish takes a job off the list. Files that were not written count as if they had never been queued.
func (q *queue) finish(j *job) {
	q.mu.Lock()
	for i := range j.files {
		f := &j.files[i]
		if q.queued[f.name] == f {
			delete(q.queued, f.name)
		}
		if f.data != nil {
			q.dropped++
		}
	}
	q.mu.Unlock()
	q.tier.end(j)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending -= j.bytes
}
