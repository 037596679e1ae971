package server

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// Buckets of histograms: seconds, sequences, tokens.
var (
	requestBuckets = []float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
	firstBuckets   = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	tokenBuckets   = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1}
	widthBuckets   = []float64{1, 2, 4, 8, 16, 32, 64}
	depthBuckets   = []float64{0, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 7, 8}
)

// metrics are the metrics of a server. Those of its engines are read from them at each scrape.
type metrics struct {
	registry *prometheus.Registry
	cheap    *prometheus.Registry // the same without the process collectors, which read from the system
	active   atomic.Int64         // requests in progress

	requests *prometheus.CounterVec   // by endpoint and status
	duration *prometheus.HistogramVec // by endpoint
	errors   *prometheus.CounterVec   // by kind
	fetches  *prometheus.CounterVec   // of images, by result
	bytes    prometheus.Counter       // of fetched images
	first    *prometheus.HistogramVec // by model
	gap      *prometheus.HistogramVec
	queued   *prometheus.HistogramVec
	depth    *prometheus.HistogramVec
	took     *prometheus.HistogramVec
	width    *prometheus.HistogramVec
	offline  *prometheus.CounterVec
}

// byModel is the label of a model's name, the one that gateways expect.
const byModel = "model_name"

func newMetrics(s *Server) *metrics {
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		cheap:    prometheus.NewRegistry(),
		requests: counter("foretoken_http_requests_total", "HTTP requests, by endpoint and status; 499: the client disconnected.", "endpoint", "status"),
		duration: histogram("foretoken_http_request_duration_seconds", "Time from a request's header to the end of its response.", requestBuckets, "endpoint"),
		errors:   counter("foretoken_errors_total", "Requests that failed, by kind of error.", "kind"),
		fetches:  counter("foretoken_image_fetches_total", "Images fetched from other hosts, by result: ok or error.", "result"),
		bytes:    prometheus.NewCounter(prometheus.CounterOpts{Name: "foretoken_image_fetched_bytes_total", Help: "Bytes of images fetched from other hosts."}),
		first:    histogram("foretoken_time_to_first_token_seconds", "Time from a request's header to its first token.", firstBuckets, byModel),
		gap:      histogram("foretoken_inter_token_latency_seconds", "Mean time between the tokens of an answer, one observation per answer.", tokenBuckets, byModel),
		queued:   histogram("foretoken_queue_time_seconds", "Time that a request spent in the queue.", firstBuckets, byModel),
		depth:    histogram("foretoken_draft_depth", "Mean number of draft tokens per round of an answer, one observation per answer.", depthBuckets, byModel),
		took:     histogram("foretoken_round_seconds", "Time of a round, one forward pass over the batch.", tokenBuckets, byModel),
		width:    histogram("foretoken_round_sequences", "Sequences in the batch of a round.", widthBuckets, byModel),
		offline:  counter("foretoken_offline_rows_total", "Rows of offline requests (lines of batches) in rounds, prompts and drafts included.", byModel),
	}
	for _, result := range []string{"ok", "error"} { // there from the start
		m.fetches.WithLabelValues(result)
	}
	active := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "foretoken_http_requests_active", Help: "HTTP requests in progress."}, func() float64 { return float64(m.active.Load()) })
	ready := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "foretoken_ready", Help: "1 if the server is ready: models are loaded, none has failed, and it is not shutting down."}, func() float64 { return truth(s.ready()) })
	m.register(m.requests, m.duration, m.errors, m.fetches, m.bytes, m.first, m.gap, m.queued, m.depth, m.took, m.width, m.offline, active, ready, &engines{s})
	if s.o.Events != nil {
		m.register(&events{s.o.Events})
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// register adds metrics that are cheap to read.
func (m *metrics) register(list ...prometheus.Collector) {
	m.registry.MustRegister(list...)
	m.cheap.MustRegister(list...)
}

// request records a request that has ended.
func (m *metrics) request(a *account, status int, took time.Duration) {
	m.requests.WithLabelValues(a.endpoint(), strconv.Itoa(status)).Inc()
	if !a.s.quiet(a.pattern) {
		m.duration.WithLabelValues(a.endpoint()).Observe(took.Seconds())
	}
	if a.err != nil {
		m.errors.WithLabelValues(string(a.err.Kind)).Inc()
	}
}

// fetched records that an image was requested from another machine.
func (m *metrics) fetched(bytes int, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.fetches.WithLabelValues(result).Inc()
	m.bytes.Add(float64(bytes))
}

// run records the answers of a run.
func (m *metrics) run(a *account, run *generate.Run) {
	name := a.s.service.Resolve(run.Name)
	before := run.Created.Sub(a.start)
	for _, x := range run.Answers {
		r := &x.Result
		m.queued.WithLabelValues(name).Observe(r.Queue.Seconds())
		if r.Tokens > 0 {
			m.first.WithLabelValues(name).Observe((before + r.Queue + r.Prefill).Seconds())
		}
		if r.Tokens > 1 {
			m.gap.WithLabelValues(name).Observe(r.Decode.Seconds() / float64(r.Tokens-1))
		}
		if r.Speculation.Drafter != "" {
			m.depth.WithLabelValues(name).Observe(r.Speculation.MeanDepth())
		}
	}
}

// rounds records the rounds of one model.
type rounds struct {
	took, width prometheus.Observer
	offline     prometheus.Counter
}

func (m *metrics) rounds(name string) *rounds {
	return &rounds{m.took.WithLabelValues(name), m.width.WithLabelValues(name), m.offline.WithLabelValues(name)}
}

func (r *rounds) observe(x foretoken.Round) {
	r.took.Observe(x.Took.Seconds())
	r.width.Observe(float64(x.Sequences))
	r.offline.Add(float64(x.Offline))
}
