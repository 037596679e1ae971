package store

import (
	"sync"
	"time"
)

// parallel is how many requests to a shared store are under way for one prefix.
const parallel = 8

// rates is the speed of a store. The zero value is unknown.
type rates struct {
	latency float64 // seconds of a small request
	bytes   float64 // per second, beside the latency; 0: not known
}

// takes is the expected time, in seconds, of a number of requests for bytes bytes in total.
func (r rates) takes(requests int, bytes int64) float64 {
	t := float64((requests+parallel-1)/parallel) * r.latency
	if r.bytes > 0 {
		t += float64(bytes) / r.bytes
	}
	return t
}

// worth reports whether fetching is expected to be faster than computing tokens, at token seconds
// each. If either time is unknown, fetching is tried.
func worth(r rates, token float64, tokens, requests int, bytes int64) bool {
	return token <= 0 || r == rates{} || r.takes(requests, bytes) < token*float64(tokens)
}

// speed is the moving estimate of a store's rates. It is safe for concurrent use.
type speed struct {
	mu sync.Mutex
	r  rates
	at time.Time // of the last measurement
}

const (
	speedWeight = 0.3
	// speedForgotten is how long an estimate is used. A slow store is tried again
	// after that, because no fetch measures it meanwhile.
	speedForgotten = 5 * time.Minute
)

func average(mean, x float64) float64 {
	if mean == 0 {
		return x
	}
	return mean + speedWeight*(x-mean)
}

// small records the time of a small request.
func (s *speed) small(now time.Time, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	s.r.latency = average(s.r.latency, took.Seconds())
	s.at = now
}

// fetched records the time of requests for bytes bytes in total.
func (s *speed) fetched(now time.Time, requests int, bytes int64, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	seconds := max(took.Seconds(), 1e-6)
	if waiting := (rates{latency: s.r.latency}).takes(requests, 0); waiting < 0.9*seconds {
		seconds -= waiting
	} else {
		seconds /= 10 // it cannot all have been latency
	}
	s.r.bytes = average(s.r.bytes, float64(max(bytes, 1))/seconds)
	s.at = now
}

// now is the estimate.
func (s *speed) now(now time.Time) rates {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	return s.r
}

func (s *speed) forget(now time.Time) {
	if now.Sub(s.at) > speedForgotten {
		s.r = rates{}
	}
}

// health is whether a store can be used at the moment. Its owner's mutex protects it.
type health struct {
	down   bool
	retry  time.Time     // when to try again
	wait   time.Duration // until then, the last time
	warned time.Time
}

const (
	firstWait = time.Second
	longWait  = time.Minute
)

// fail records a failure, and reports whether to log it.
func (h *health) fail(now time.Time) bool {
	first := !h.down && (h.warned.IsZero() || now.Sub(h.warned) >= longWait)
	if first {
		h.warned = now
	}
	h.down = true
	h.wait = min(max(2*h.wait, firstWait), longWait)
	h.retry = now.Add(h.wait)
	return first
}

// answered records an answer of the store, and reports whether it was down before. The next failure
// waits as long as the last one, unless the store has been useful meanwhile.
func (h *health) answered(useful bool) bool {
	was := h.down
	if h.down = false; useful {
		h.wait = 0
	}
	return was
}

// due reports whether a store that is down is to be tried again.
func (h *health) due(now time.Time) bool { return h.down && !now.Before(h.retry) }
