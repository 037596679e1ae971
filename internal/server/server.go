// Package server puts models behind HTTP: authentication, limits, logs
// and metrics, readiness and shutdown. It does not know the contents of
// requests; each protocol is a package below this one.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/library"
	"github.com/foretoken/foretoken/internal/rescue"
	"github.com/foretoken/foretoken/internal/server/fetch"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/kvevents"
	"github.com/foretoken/foretoken/internal/server/openai"
)

// The defaults of Options.
const (
	defaultMaxBody       = 64 << 20 // 48 MB of images in base64
	DefaultHeaderTimeout = 10 * time.Second
	DefaultBodyTimeout   = time.Minute
	DefaultIdleTimeout   = 2 * time.Minute
)

const (
	maxHeader = 64 << 10
	// writeStall is how long a client may stop reading before its connection is closed.
	writeStall = time.Minute
)

// Model is a model of a server.
type Model struct {
	Name    string            // unique
	Path    string            // as foretoken.Open takes it
	Options foretoken.Options // OnRound, OnBroken, Progress and Log are set by the server
	Pinned  bool              // it is never unloaded
	Preload bool              // it is loaded before the server is ready; the first model always is
}

// Options are the models of a server, its limits, and its keys.
type Options struct {
	Models       []Model           // the first is for requests without a model
	Aliases      map[string]string // further names of models
	ModelsMemory int64             // as library.Options has it
	KeepAlive    time.Duration     // likewise

	Keys *Keys // of clients; nil: none. Each key has its own prefix cache and stored responses
	// SharePrefixes lets requests with different keys share the prefix cache.
	SharePrefixes bool
	// ImageHosts are those that images are fetched from, as for fetch.New; none: images come
	// with the request.
	ImageHosts []string
	Local      bool        // refuse requests whose Host is not this machine: protects against DNS rebinding
	Origins    []string    // origins of other web pages that may send requests, such as https://example.com; *: all
	TLS        *tls.Config // nil: plain HTTP

	MaxBody        int64         // bytes of a request; 0: 64 MB
	HeaderTimeout  time.Duration // for the header of a request; 0: DefaultHeaderTimeout
	BodyTimeout    time.Duration // for its body; 0: DefaultBodyTimeout
	IdleTimeout    time.Duration // between requests of a connection; 0: DefaultIdleTimeout
	MaxConnections int           // further ones wait; 0: unlimited
	StrictFields   bool          // a field that is unknown or not supported is an error; else it is ignored and named in a header
	PerKey         int           // maximum of concurrent requests of one key, or without keys of one address; 0: unlimited

	// Events publishes what the prefix caches of the models can resume; may be nil. The caller
	// closes it after the server.
	Events *kvevents.Publisher

	Batches *Batches // for files and batches; nil: there are none

	Ready func()       // called once, when the server is ready; may be nil
	Log   *slog.Logger // nil: the default; a handler with rescue.Attr shows the stacks of panics
}

// Server answers requests. Its life is New, Serve, Shutdown.
type Server struct {
	o       Options
	log     *slog.Logger
	started time.Time
	models  []*entry
	library *library.Library
	service *generate.Service
	openai  *openai.API // also answers the lines of batches
	mux     *http.ServeMux
	public  map[string]bool // patterns that need no key
	origins *origins
	perKey  *perKey
	lines   *lines // nil: there are no batches, or they are elsewhere

	lineMetrics *lineMetrics // nil: no lines of batches are answered
	metrics     *metrics
	http        *http.Server
	ops         *http.Server // of metrics, for gateways

	loaded, draining atomic.Bool
	stop             context.CancelFunc // ends loading
	loading          context.Context
	broken           context.Context // ends when a model fails for good; its cause says why
	breakDown        context.CancelCauseFunc
	drained          chan struct{} // closed when Shutdown has ended
}

// New returns a server that does not run yet.
func New(o Options) (*Server, error) {
	s := &Server{
		o: o, log: o.Log, started: time.Now(), mux: http.NewServeMux(), public: map[string]bool{}, perKey: newPerKey(o.PerKey),
		drained: make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	var err error
	if s.origins, err = newOrigins(o.Origins); err != nil {
		return nil, err
	}
	if err := s.addModels(); err != nil {
		return nil, err
	}
	s.metrics = newMetrics(s)
	if len(o.ImageHosts) > 0 {
		if s.service.Images, err = fetch.New(o.ImageHosts, s.metrics.fetched); err != nil {
			return nil, fmt.Errorf("server: hosts of images: %w", err)
		}
	}
	s.loading, s.stop = context.WithCancel(context.Background())
	s.broken, s.breakDown = context.WithCancelCause(context.Background())
	s.routes()
	if o.Batches != nil {
		s.lineMetrics = newLineMetrics(s, o.Batches)
		if !o.Batches.Elsewhere {
			s.lines = newLines(s, *o.Batches)
		}
	}
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: cmp.Or(o.HeaderTimeout, DefaultHeaderTimeout),
		IdleTimeout:       cmp.Or(o.IdleTimeout, DefaultIdleTimeout),
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // clients' broken connections
	}
	s.ops = s.newMetricsServer()
	return s, nil
}

// Handler is the server as a handler, for callers that do not use Serve. Models are loaded at
// their first request.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Serve loads models and answers requests; until it is ready, with an error that says so.
// It returns nil when Shutdown has ended, and otherwise an error: of the listener, which it
// closes in any case, of loading, or of a model that failed for good, for example because its device is
// lost: another process may continue. Then answers of other models may still be running, which
// Shutdown waits for.
func (s *Server) Serve(l net.Listener) error {
	failed := make(chan error, 1)
	go func() {
		if err := rescue.Do(s.preload); err != nil {
			failed <- err
			_ = s.http.Close() // Serve returns, with the error of loading
		}
	}()
	if s.lines != nil {
		s.lines.start()
	}
	if s.o.MaxConnections > 0 {
		l = newLimitedListener(l, s.o.MaxConnections)
	}
	defer context.AfterFunc(s.broken, func() { _ = l.Close() })() // Serve returns
	var err error
	if s.o.TLS != nil {
		s.http.TLSConfig = s.o.TLS
		err = s.http.ServeTLS(l, "", "")
	} else {
		err = s.http.Serve(l)
	}
	select {
	case loading := <-failed:
		if !s.draining.Load() {
			return loading
		}
	default:
	}
	if !s.draining.Load() {
		if why := context.Cause(s.broken); why != nil {
			return why
		}
		return fmt.Errorf("server: %w", err)
	}
	<-s.drained
	return nil
}

// Shutdown refuses new requests, waits for those in progress, and closes the models. When ctx
// ends, requests still in progress are cut off, and the error says so. It is called once.
func (s *Server) Shutdown(ctx context.Context) error {
	defer close(s.drained)
	defer func() { _ = s.ops.Close() }() // last: a gateway is to see that the server ends
	s.draining.Store(true)
	s.stop()
	if s.lines != nil {
		s.lines.end()
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = fmt.Errorf("server: %d requests were cut off: %w", s.metrics.active.Load(), err)
		err = errors.Join(err, s.http.Close())
	}
	if drain := s.library.Drain(ctx); err == nil {
		err = drain
	}
	return err
}

// preload loads the models with Preload, one after the other.
func (s *Server) preload() error {
	for _, m := range s.models {
		if !m.Preload {
			continue
		}
		_, done, err := s.library.Use(s.loading, m.Name)
		if err != nil {
			return fmt.Errorf("server: model %s: %w", m.Name, err)
		}
		done()
	}
	s.loaded.Store(true)
	if s.o.Ready != nil {
		s.o.Ready()
	}
	return nil
}

// names are the models in the order they were given.
func (s *Server) names() []string {
	list := make([]string, len(s.models))
	for i, m := range s.models {
		list[i] = m.Name
	}
	return list
}

// addModels checks the models and makes the library.
func (s *Server) addModels() error {
	if len(s.o.Models) == 0 {
		return errors.New("server: no model")
	}
	o := library.Options{Load: s.load, Size: s.size, Names: s.names, Memory: s.o.ModelsMemory, KeepAlive: s.o.KeepAlive, Log: s.log}
	for i, m := range s.o.Models {
		if m.Name == "" || slices.Contains(s.names(), m.Name) {
			return fmt.Errorf("server: model %q: the name is empty or used twice", m.Name)
		}
		m.Preload = m.Preload || i == 0
		s.models = append(s.models, &entry{Model: m})
		if m.Pinned {
			o.Pinned = append(o.Pinned, m.Name)
		}
	}
	for alias, name := range s.o.Aliases {
		if !slices.Contains(s.names(), name) {
			return fmt.Errorf("server: alias %q: there is no model %q; available: %q", alias, name, s.names())
		}
		if alias != name && slices.Contains(s.names(), alias) {
			return fmt.Errorf("server: alias %q of %q: another model has this name", alias, name)
		}
	}
	s.library = library.New(o)
	s.service = &generate.Service{Library: s.library, Default: s.models[0].Name, Aliases: s.o.Aliases, SharePrefixes: s.o.SharePrefixes}
	return nil
}
