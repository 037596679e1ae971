package nodes

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/node"
	"github.com/foretoken/foretoken/internal/rescue"
)

// metricsTime bounds a request for metrics.
const metricsTime = 10 * time.Second

// register adds the metrics of a node.
func (x *lender) register(r *prometheus.Registry) {
	gauge := func(name, help string, value func(s remote.Status) int64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "foretoken_node_" + name, Help: help}, func() float64 { return float64(value(x.server.Status())) }))
	}
	counter := func(name, help string, value func(c node.Counts) int64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "foretoken_node_" + name, Help: help}, func() float64 { return float64(value(x.weights.Counts())) }))
	}
	gauge("leaders", "Leaders that use the node: 0 or 1.", func(s remote.Status) int64 { return int64(min(len(s.Leader), 1)) })
	gauge("memory_bytes", "Memory that the leader may use; 0 without one.", func(s remote.Status) int64 { return s.Budget })
	gauge("used_bytes", "Memory that the leader uses.", func(s remote.Status) int64 { return s.Used })
	gauge("passes", "Passes for the present leader.", func(s remote.Status) int64 { return s.Passes })
	counter("own_weight_bytes_total", "Bytes of weights that were read from files of this machine.", func(c node.Counts) int64 { return c.OwnBytes })
	counter("cached_weight_bytes_total", "Bytes of weights that were read from the cache of sent ones.", func(c node.Counts) int64 { return c.CachedBytes })
	counter("sent_weight_bytes_total", "Bytes of weights that leaders have sent.", func(c node.Counts) int64 { return c.SentBytes })
	counter("refused_connections_total", "Connections that were refused before they were a leader's.", func(node.Counts) int64 { return x.refused.Load() })
}

// serveMetrics answers /metrics, /healthz and /readyz at --metrics-addr until end is called.
func (f *nodeFlags) serveMetrics(log *slog.Logger, x *lender) (end func(), err error) {
	if f.metricsAddr == "" {
		return func() {}, nil
	}
	if _, _, err := net.SplitHostPort(f.metricsAddr); err != nil {
		return nil, flags.Usagef("--metrics-addr %s: want HOST:PORT", f.metricsAddr)
	}
	l, err := net.Listen("tcp", f.metricsAddr)
	if err != nil {
		return nil, fmt.Errorf("--metrics-addr: %w", err)
	}
	registry := prometheus.NewRegistry()
	x.register(registry)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	well := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) } // the client may be gone
	mux.HandleFunc("GET /healthz", well)
	mux.HandleFunc("GET /readyz", well)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true}))
	s := &http.Server{
		Handler: mux, ReadHeaderTimeout: metricsTime, ReadTimeout: metricsTime, WriteTimeout: metricsTime, IdleTimeout: metricsTime,
		MaxHeaderBytes: 8 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	log.Info("listening for metrics", "flag", "--metrics-addr", "address", l.Addr().String())
	go func() {
		if err := rescue.Do(func() error { return s.Serve(l) }); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are no longer served", "error", err)
		}
	}()
	return func() { _ = s.Close() }, nil // nothing is lost
}
