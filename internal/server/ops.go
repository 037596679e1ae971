package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// Patterns of endpoints for operators.
const (
	patternMetrics = "GET /metrics"
	patternStatus  = "GET /v1/status"
	patternRest    = "/"
)

// routes registers all endpoints.
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

// quiet reports whether an endpoint is one of probes, scrapes or the page, which are not logged at
// level info.
func (s *Server) quiet(pattern string) bool {
	return s.public[pattern] || pattern == patternMetrics || pattern == patternStatus
}

// rest answers requests to unknown paths and methods.
func (s *Server) rest(w http.ResponseWriter, r *http.Request) {
	e := &generate.Error{Status: http.StatusNotFound, Kind: generate.NotFound, Message: fmt.Sprintf("there is no endpoint %s %s; /openapi.json lists the endpoints", r.Method, r.URL.Path)}
	if path := r.URL.Path; s.lines == nil && (strings.HasPrefix(path, "/v1/files") || strings.HasPrefix(path, "/v1/batches")) {
		e.Message = "this server does not support batches: it was started with --no-batches, or without a folder for batches (--state-dir)"
	}
	if others := s.methods(r); len(others) > 0 {
		w.Header().Set("Allow", strings.Join(others, ", "))
		e.Status, e.Kind, e.Message = http.StatusMethodNotAllowed, generate.BadRequest, fmt.Sprintf("%s does not support %s, use %s", r.URL.Path, r.Method, strings.Join(others, ", "))
	}
	c := callerOf(w)
	c.Report(nil, e)
	writeError(w, r, e)
}

// methods are the allowed methods of the path of a request.
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

// healthz reports that the process is alive.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readiness is the response of /readyz.
type readiness struct {
	Ready  bool       `json:"ready"`
	State  string     `json:"state"` // loading, ready, draining or broken
	Models []progress `json:"models"`
}

// progress is the progress of loading a model.
type progress struct {
	ID    string `json:"id"`
	State string `json:"state"` // idle, loading or loaded
	Done  int64  `json:"done_bytes,omitempty"`
	Total int64  `json:"total_bytes,omitempty"`
}

// ready reports whether requests are answered: models are loaded, none is broken, and the
// server is not shutting down.
func (s *Server) ready() bool {
	return s.loaded.Load() && !s.draining.Load() && s.broken.Err() == nil
}

// readyz reports whether the server is ready.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	a := readiness{State: "ready", Ready: s.ready()}
	switch {
	case s.broken.Err() != nil:
		a.State = "broken"
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

// overview is the response of /v1/status.
type overview struct {
	Models []modelStatus `json:"models"`
	Uptime float64       `json:"uptime_s"`
	// Batches is nil without batches.
	Batches *batchStatus `json:"batches,omitempty"`
}

// batchStatus is the work that batches wait for.
type batchStatus struct {
	Queue     string `json:"queue"` // where it is: embedded, memory, or its servers
	Connected bool   `json:"queue_connected"`
	Waiting   int    `json:"lines_waiting"`
}

// modelStatus is the load of a model. KVUsed includes CacheBytes.
type modelStatus struct {
	ID              string  `json:"id"`
	State           string  `json:"state"`
	Running         int     `json:"running"`
	Waiting         int     `json:"waiting"`
	Background      int     `json:"background_prefills"` // in the queue; not counted as Waiting
	KVUsed          int64   `json:"kv_used_bytes"`
	KVBudget        int64   `json:"kv_budget_bytes"`
	CacheEntries    int     `json:"cache_entries"`
	CacheBytes      int64   `json:"cache_bytes"`
	TokensPerSecond float64 `json:"tokens_per_second"`
	Vision          bool    `json:"vision"` // it takes images; false if it is not loaded
	Images          int64   `json:"images"` // computed by its vision tower

	Shared *sharedStatus `json:"shared_prefixes,omitempty"` // the store that servers share; nil: there is none

	Devices []deviceStatus `json:"devices"` // that compute it; none if it is not loaded
}

// deviceStatus is the part of a model on a device.
type deviceStatus struct {
	Name    string   `json:"name"`
	Layers  int      `json:"layers"`
	Parts   []string `json:"parts"`
	Weights int64    `json:"weight_bytes"`
	Memory  int64    `json:"memory_bytes"` // of the device; 0: not known
	Free    int64    `json:"memory_free_bytes"`
	Used    int64    `json:"memory_used_bytes"` // by the model
}

// deviceStatuses are the devices of a model.
func deviceStatuses(m *foretoken.Model, x *foretoken.Stats) []deviceStatus {
	list := []deviceStatus{}
	for _, p := range m.Placement() {
		d := deviceStatus{Name: p.Device, Layers: p.Layers, Parts: p.Parts, Weights: p.Weights}
		for _, u := range x.Devices {
			if u.Device == p.Device {
				d.Memory, d.Free, d.Used = u.Memory, u.Free, u.Used
			}
		}
		list = append(list, d)
	}
	return list
}

// status reports the load of the models.
func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	now := time.Now()
	a := overview{Uptime: now.Sub(s.started).Seconds()}
	at := map[string]int{}
	states := s.states()
	for i, m := range s.models {
		at[m.Name] = i
		a.Models = append(a.Models, modelStatus{ID: m.Name, State: states[m.Name], TokensPerSecond: m.rate.perSecond(now), Devices: []deviceStatus{}})
	}
	for _, v := range s.library.Status() {
		if v.Model == nil {
			continue
		}
		x, m := v.Model.Stats(), &a.Models[at[v.Name]]
		m.Running, m.Waiting, m.Background = x.Running, x.Waiting, x.Background.Waiting
		m.KVUsed, m.KVBudget = x.KVUsed, x.KVBudget
		m.Vision, m.Images = v.Model.Info().Vision != nil, x.Vision.Pictures
		m.CacheEntries, m.CacheBytes = x.PrefixCache.Entries, x.PrefixCache.Bytes
		m.Devices = deviceStatuses(v.Model, &x)
		m.Shared = newSharedStatus(&x.PrefixCache.Shared)
	}
	if s.lines != nil {
		a.Batches = &batchStatus{Queue: cmp.Or(s.lines.o.QueueAddress, "memory"), Connected: s.lines.o.connected(), Waiting: s.lines.coordinator.Waiting()}
	}
	writeJSON(w, http.StatusOK, a)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}
