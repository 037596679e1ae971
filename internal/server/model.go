package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/private"
)

// entry is a model of the server, with the progress of loading and its speed.
type entry struct {
	Model
	done, total atomic.Int64 // bytes of weights, while they are read
	rate        rate
}

// entry is the model of that name, or nil.
func (s *Server) entry(name string) *entry {
	for _, m := range s.models {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// size estimates the memory that a model's weights will take.
func (s *Server) size(name string) int64 {
	m := s.entry(name)
	return foretoken.Size(m.Path, m.Options)
}

// load opens a model of the library.
func (s *Server) load(ctx context.Context, name string) (*foretoken.Model, error) {
	m := s.entry(name) // never nil: the library knows only these names
	o := m.Options
	o.Log = s.log.With("model", name)
	o.Progress = func(done, total int64) {
		m.total.Store(total) // first: a reader of done also sees the total
		m.done.Store(done)
	}
	if s.o.Events != nil {
		private.SetObserver(&o, announcer{s.o.Events.Model(name)})
	}
	rounds := s.metrics.rounds(name)
	o.OnRound = func(r foretoken.Round) {
		rounds.observe(r)
		m.rate.add(time.Now(), r.Tokens)
	}
	o.OnBroken = func(err error) { s.breakDown(fmt.Errorf("server: model %s: %w", name, err)) }
	opened, err := foretoken.Open(ctx, m.Path, o)
	if err != nil {
		return nil, err
	}
	o.Log.Info("loaded", "kv_budget_bytes", opened.Stats().KVBudget, "context", opened.Context())
	return opened, nil
}

// A rate is over the last two seconds.
const (
	rateSlots = 20
	rateSlot  = 100 * time.Millisecond
)

// rate counts tokens in slots of time.
type rate struct {
	mu    sync.Mutex // protects what follows
	slot  [rateSlots]int64
	count [rateSlots]int
}

// add counts n tokens at a time.
func (r *rate) add(now time.Time, n int) {
	at := now.UnixNano() / int64(rateSlot)
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := at % rateSlots; r.slot[i] == at {
		r.count[i] += n
	} else {
		r.slot[i], r.count[i] = at, n
	}
}

// perSecond is the tokens per second before a time.
func (r *rate) perSecond(now time.Time) float64 {
	at := now.UnixNano() / int64(rateSlot)
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := 0
	for i, n := range r.count {
		if at-r.slot[i] < rateSlots {
			sum += n
		}
	}
	return float64(sum) / (rateSlots * rateSlot).Seconds()
}
