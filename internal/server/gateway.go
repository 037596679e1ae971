package server

import (
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/server/kvevents"
)

// Bounds of the listener for metrics.
const (
	metricsConnections = 64
	metricsTime        = 10 * time.Second // of a request, from its header to the end of its answer
)

// newMetricsServer serves metrics and health without authentication.
func (s *Server) newMetricsServer() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle(patternMetrics, promhttp.HandlerFor(s.metrics.cheap, promhttp.HandlerOpts{DisableCompression: true}))
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: metricsTime, ReadTimeout: metricsTime, WriteTimeout: metricsTime,
		IdleTimeout: DefaultIdleTimeout, MaxHeaderBytes: 8 << 10,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// ServeMetrics answers only /metrics, /healthz and /readyz, on a separate listener:
// a gateway's picker, which cannot send a key, reads them there. The metrics are those of the
// server without those of the process collectors, so that they may be read often. It returns nil when
// Shutdown has ended, and closes the listener in any case.
func (s *Server) ServeMetrics(l net.Listener) error {
	if err := s.ops.Serve(newLimitedListener(l, metricsConnections)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("server: metrics: %w", err)
	}
	<-s.drained
	return nil
}

// announcer publishes the resumable prefixes of a model. It is a prefix.Observer.
type announcer struct{ m *kvevents.Model }

// Stored implements prefix.Observer.
func (a announcer) Stored(tokens []int32, rows []prefix.Rows) { a.m.Stored(tokens, places(rows)...) }

// Removed implements prefix.Observer.
func (a announcer) Removed(tokens []int32, rows []prefix.Rows) {
	a.m.Removed(tokens, places(rows)...)
}

// Cleared implements prefix.Observer.
func (a announcer) Cleared() { a.m.Cleared() }

// places are the places of rows, with the keys of the render endpoints.
func places(rows []prefix.Rows) (list []kvevents.Place) {
	for i := range rows {
		list = append(list, kvevents.Place{At: rows[i].At, N: rows[i].N, Key: hex.EncodeToString(rows[i].Hash[:])})
	}
	return list
}

// events collects the metrics of the publisher of events. It is a prometheus.Collector.
type events struct{ p *kvevents.Publisher }

// eventSeries are the series of events.
var eventSeries = seriesOf[kvevents.Stats]{
	newSeries("foretoken_kv_event_subscribers", "Subscribers to the events of the prefix cache.", prometheus.GaugeValue, func(x *kvevents.Stats) float64 { return float64(x.Subscribers) }),
	newSeries("foretoken_kv_event_batches_total", "Batches of events published.", prometheus.CounterValue, func(x *kvevents.Stats) float64 { return float64(x.Batches) }),
	newSeries("foretoken_kv_event_batches_replayed_total", "Batches of events sent again on request.", prometheus.CounterValue, func(x *kvevents.Stats) float64 { return float64(x.Replayed) }),
	newSeries("foretoken_kv_event_subscribers_dropped_total", "Subscribers that were disconnected because they did not read.", prometheus.CounterValue, func(x *kvevents.Stats) float64 { return float64(x.Slow) }),
}

// Describe implements prometheus.Collector.
func (e *events) Describe(to chan<- *prometheus.Desc) { eventSeries.describe(to) }

// Collect implements prometheus.Collector.
func (e *events) Collect(to chan<- prometheus.Metric) {
	x := e.p.Stats()
	eventSeries.collect(to, &x)
}
