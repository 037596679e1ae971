package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/foretoken/foretoken/internal/bridge"
	"github.com/foretoken/foretoken/internal/server/turn"
)

// Patterns that are looked at rather than asked.
const (
	patternMetrics = "GET /metrics"
	patternStatus  = "GET /v1/status"
	patternRest    = "/"
)

// routes says what is where.
func (s *Server) routes() {
	s.open("GET /healthz", s.healthz)
	s.open("GET /readyz", s.readyz)
	s.open("GET /openapi.json", s.openapi)
	s.open(patternRest, s.rest)
	s.mux.Handle(patternMetrics, promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}))
	s.mux.HandleFunc(patternStatus, s.status)
	s.protocols()
}

// open adds an endpoint that needs no key.
func (s *Server) open(pattern string, h http.HandlerFunc) {
	s.public[pattern] = true
	s.mux.HandleFunc(pattern, h)
}

// quiet tells the endpoints that are asked all the time, or by people who look.
func (s *Server) quiet(pattern string) bool {
	return s.public[pattern] || pattern == patternMetrics || pattern == patternStatus
}

// rest is for paths that are nobody else's.
func (s *Server) rest(w http.ResponseWriter, r *http.Request) {
	e := &turn.Error{Status: http.StatusNotFound, Kind: turn.NotFound, Message: fmt.Sprintf("there is no %s %s here; /openapi.json lists what there is", r.Method, r.URL.Path)}
	if others := s.methods(r); len(others) > 0 {
		w.Header().Set("Allow", strings.Join(others, ", "))
		e.Status, e.Kind, e.Message = http.StatusMethodNotAllowed, turn.BadRequest, fmt.Sprintf("%s is not for %s, but for %s", r.URL.Path, r.Method, strings.Join(others, ", "))
	}
	turn.Report(r.Context(), nil, e)
	writeError(w, r, e)
}

// methods are those with which the path of a request would be somebody's.
func (s *Server) methods(r *http.Request) []string {
	var list []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		other := *r
		other.Method = m
		if _, pattern := s.mux.Handler(&other); pattern != patternRest {
			list = append(list, m)
		}
	}
	return list
}

// healthz says that the process lives.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readiness is the answer of /readyz.
type readiness struct {
	Ready  bool       `json:"ready"`
	State  string     `json:"state"` // loading, ready or draining
	Models []progress `json:"models"`
}

// progress is of the loading of a model.
type progress struct {
	ID    string `json:"id"`
	State string `json:"state"` // idle, loading or loaded
	Done  int64  `json:"done_bytes,omitempty"`
	Total int64  `json:"total_bytes,omitempty"`
}

// readyz says whether requests would be served at once.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	a := readiness{State: "ready", Ready: s.loaded.Load() && !s.draining.Load()}
	switch {
	case s.draining.Load():
		a.State = "draining"
	case !a.Ready:
		a.State = "loading"
	}
	states := s.states()
	for _, m := range s.models {
		p := progress{ID: m.Name, State: states[m.Name]}
		if p.State == stateLoading {
			p.Done, p.Total = m.done.Load(), m.total.Load()
		}
		a.Models = append(a.Models, p)
	}
	status := http.StatusOK
	if !a.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, a)
}

// The states of a model.
const (
	stateIdle    = "idle"
	stateLoading = "loading"
	stateLoaded  = "loaded"
)

// states are those of all models.
func (s *Server) states() map[string]string {
	states := map[string]string{}
	for _, m := range s.models {
		states[m.Name] = stateIdle
	}
	for _, v := range s.library.Status() {
		states[v.Name] = stateLoading
		if v.Model != nil {
			states[v.Name] = stateLoaded
		}
	}
	return states
}

// overview is the answer of /v1/status.
type overview struct {
	Models []modelStatus `json:"models"`
	Uptime float64       `json:"uptime_s"`
}

// modelStatus is what a model is doing. Bytes of the cache are among those that are used.
type modelStatus struct {
	ID              string  `json:"id"`
	State           string  `json:"state"`
	Running         int     `json:"running"`
	Waiting         int     `json:"waiting"`
	Background      int     `json:"background_prefills"` // that wait; no requests
	KVUsed          int64   `json:"kv_used_bytes"`
	KVBudget        int64   `json:"kv_budget_bytes"`
	CacheEntries    int     `json:"cache_entries"`
	CacheBytes      int64   `json:"cache_bytes"`
	TokensPerSecond float64 `json:"tokens_per_second"`
}

// status says what the models are doing, for people who look.
func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	now := time.Now()
	a := overview{Uptime: now.Sub(s.started).Seconds()}
	at := map[string]int{}
	states := s.states()
	for i, m := range s.models {
		at[m.Name] = i
		a.Models = append(a.Models, modelStatus{ID: m.Name, State: states[m.Name], TokensPerSecond: m.rate.perSecond(now)})
	}
	for _, v := range s.library.Status() {
		if v.Model == nil {
			continue
		}
		x, m := bridge.Engine(v.Model).Stats(), &a.Models[at[v.Name]]
		m.Running, m.Waiting, m.Background = x.Running, x.Waiting, x.Background.Waiting
		m.KVUsed, m.KVBudget = x.Memory.Used, x.Memory.Budget
		m.CacheEntries, m.CacheBytes = x.Cache.Entries, x.Cache.Bytes
	}
	writeJSON(w, http.StatusOK, a)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}
