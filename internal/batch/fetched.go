package batch

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// fetchedLines are the lines that a worker has fetched: running ones, each in a slot, and waiting ones.
// Among lines with a common prefix that is not in the model's cache yet, one starts first and the rest
// wait until it has processed its prompt: at once they would all compute the prefix. Lines of
// other prefixes run meanwhile.
type fetchedLines struct {
	slots int

	mu       sync.Mutex     // protects what follows
	free     []int          // slots, the lowest first
	waiting  []*fetchedLine // in the order of the queue
	prefixes map[string]*common
	changed  chan struct{} // closed when something of this has changed
}

// fetchedLine is a fetched line.
type fetchedLine struct {
	Delivery
	prefixes []string
	slot     int // that it runs in
	waited   int // times that it was found waiting
}

// common is a prefix of fetched lines.
type common struct {
	lines int          // that have it
	ready bool         // a line has processed it
	ahead *fetchedLine // the line that processes it; nil: none
}

func newFetchedLines(slots int) *fetchedLines {
	h := &fetchedLines{slots: slots, prefixes: map[string]*common{}, changed: make(chan struct{})}
	for i := range slots {
		h.free = append(h.free, i)
	}
	return h
}

// change calls f and wakes waiting goroutines.
func (h *fetchedLines) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	h.wake()
}

// wake wakes goroutines that wait for a change; mu is held.
func (h *fetchedLines) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// room is the number of lines to fetch: one for each slot that no fetched line can use, as long
// as few lines wait. Waiting lines are withheld from other workers, and the more prefixes are begun, the
// fewer of them stay in a small cache. changed is closed when that may have changed.
func (h *fetchedLines) room() (n int, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.startable() == nil {
		n = min(len(h.free), (h.slots+1)/2-len(h.waiting))
	}
	return n, h.changed
}

// add adds fetched lines.
func (h *fetchedLines) add(list []Delivery) {
	h.change(func() {
		for _, d := range list {
			l := &fetchedLine{Delivery: d, prefixes: strings.Fields(d.Hint().Prefixes)}
			h.waiting = append(h.waiting, l)
			for _, p := range l.prefixes {
				if h.prefixes[p] == nil {
					h.prefixes[p] = &common{}
				}
				h.prefixes[p].lines++
			}
		}
	})
}

// next is a line to run now, nil if there is none. The channel is closed when that
// may have changed.
func (h *fetchedLines) next() (*fetchedLine, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.startable()
	if l == nil {
		return nil, h.changed
	}
	h.waiting = slices.DeleteFunc(h.waiting, func(x *fetchedLine) bool { return x == l })
	l.slot, h.free = h.free[0], h.free[1:]
	for _, p := range l.prefixes {
		h.prefixes[p].ahead = cmp.Or(h.prefixes[p].ahead, l)
	}
	h.wake() // there may be room now
	return l, h.changed
}

// startable is the first line that may run, nil if there is none; mu is held. The first slot runs with the
// priority of other requests. A line that has waited for long may take it, even if the line ahead of it
// has not processed the prefix: that one may be starved.
func (h *fetchedLines) startable() *fetchedLine {
	if len(h.free) == 0 {
		return nil
	}
	for _, l := range h.waiting {
		blocked := slices.ContainsFunc(l.prefixes, func(p string) bool {
			return !h.prefixes[p].ready && h.prefixes[p].ahead != nil
		})
		if !blocked || l.waited > 1 && h.free[0] == 0 {
			return l
		}
	}
	return nil
}

// prompted records that a line has processed its prompt: its prefixes are in the cache.
func (h *fetchedLines) prompted(l *fetchedLine) {
	h.change(func() {
		for _, p := range l.prefixes {
			if c := h.prefixes[p]; c != nil { // or the line has ended meanwhile
				c.ready = true
			}
		}
	})
}

// done records that a line has ended. If it was ahead and did not process its prompt,
// another line goes ahead.
func (h *fetchedLines) done(l *fetchedLine) {
	h.change(func() {
		h.forget(l)
		at, _ := slices.BinarySearch(h.free, l.slot)
		h.free = slices.Insert(h.free, at, l.slot)
	})
}

// forget drops the prefixes of a line; mu is held.
func (h *fetchedLines) forget(l *fetchedLine) {
	for _, p := range l.prefixes {
		c := h.prefixes[p]
		if c.ahead == l {
			c.ahead = nil
		}
		if c.lines--; c.lines == 0 {
			delete(h.prefixes, p)
		}
	}
}

// reviewWaiting is called periodically: lines that wait at two calls have waited for long.
// It returns all waiting lines.
func (h *fetchedLines) reviewWaiting() (list []*fetchedLine) {
	h.change(func() {
		for _, l := range h.waiting {
			l.waited++
		}
		list = slices.Clone(h.waiting)
	})
	return list
}

// empty removes and returns the waiting lines.
func (h *fetchedLines) empty() (list []*fetchedLine) {
	h.change(func() {
		list, h.waiting = h.waiting, nil
		for _, l := range list {
			h.forget(l)
		}
	})
	return list
}
