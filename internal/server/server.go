// Package server puts models behind HTTP: who may ask, how much and how often, what is
// logged and counted, when the process is ready and how it ends. It knows nothing of what
// requests say; each protocol is a package of its own below this one.
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
	"github.com/foretoken/foretoken/internal/rescue"
	"github.com/foretoken/foretoken/internal/server/turn"
)

// What holds where Options say nothing.
const (
	DefaultMaxBody       = 32 << 20
	DefaultHeaderTimeout = 10 * time.Second
	DefaultBodyTimeout   = time.Minute
	DefaultIdleTimeout   = 2 * time.Minute
)

const (
	maxHeader = 64 << 10
	// writeStall is how long a client may take nothing of what is written to it.
	writeStall = time.Minute
)

// Model is one that a server offers.
type Model struct {
	Name    string            // by which it is listed, different from those of the others
	Path    string            // as foretoken.Open takes it
	Options foretoken.Options // of which OnRound, Progress and Log are the server's
	Pinned  bool              // it stays once it is loaded
	Preload bool              // it is loaded at once, and the server is not ready before; the first always is
}

// Options say what a server offers, and to whom.
type Options struct {
	Models       []Model           // the first is for requests that name none
	Aliases      map[string]string // further names of models
	ModelsMemory int64             // as foretoken.LibraryOptions has it
	KeepAlive    time.Duration     // likewise

	Keys *Keys // that clients must have; nil: none. What is kept of a request is for those with the same key
	// SharePrefixes lets requests find in the prefix cache what was read for other keys.
	SharePrefixes bool
	Local         bool        // refuse requests that do not name this machine itself: a web page could bend a name of its own to it
	Origins       []string    // of web pages elsewhere that may ask, such as https://example.com; *: all
	TLS           *tls.Config // nil: plain HTTP

	MaxBody        int64         // bytes of a request; 0: DefaultMaxBody
	HeaderTimeout  time.Duration // for the head of a request; 0: DefaultHeaderTimeout
	BodyTimeout    time.Duration // for its body; 0: DefaultBodyTimeout
	IdleTimeout    time.Duration // between requests of a connection; 0: DefaultIdleTimeout
	MaxConnections int           // further ones wait; 0: any number
	StrictFields   bool          // a field that is not known, or asks for what cannot be had, is an error; else it is ignored and named in a header
	PerKey         int           // most requests at a time with one key, or without keys from one address; 0: any number

	Ready func()       // called once, when the server is ready; nil: nothing is
	Log   *slog.Logger // nil: the default
}

// Server answers requests. Its life is New, Serve, Shutdown.
type Server struct {
	o       Options
	log     *slog.Logger
	started time.Time
	models  []*offer
	library *foretoken.Library
	host    *turn.Host
	mux     *http.ServeMux
	public  map[string]bool // patterns that need no key
	origins *origins
	perKey  *perKey
	metrics *metrics
	http    *http.Server

	loaded, draining atomic.Bool
	stop             context.CancelFunc // ends loading
	loading          context.Context
	drained          chan struct{} // closed when Shutdown has ended
}

// New returns a server of which nothing runs yet.
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
	if err := s.offer(); err != nil {
		return nil, err
	}
	s.metrics = newMetrics(s)
	s.loading, s.stop = context.WithCancel(context.Background())
	s.routes()
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: cmp.Or(o.HeaderTimeout, DefaultHeaderTimeout),
		IdleTimeout:       cmp.Or(o.IdleTimeout, DefaultIdleTimeout),
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // clients' broken connections
	}
	return s, nil
}

// Handler is the whole server as a handler, for a listener that is not Serve's. The models
// are loaded when they are asked for.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Serve loads what is to be loaded and answers requests, at first only that it is not ready.
// It returns nil when Shutdown has ended, and otherwise an error: of the listener, which it
// closes in any case, or of loading.
func (s *Server) Serve(l net.Listener) error {
	failed := make(chan error, 1)
	go func() {
		if err := rescue.Do(s.preload); err != nil {
			failed <- err
			_ = s.http.Close() // Serve returns; there is nobody else to tell
		}
	}()
	if s.o.MaxConnections > 0 {
		l = newLimitedListener(l, s.o.MaxConnections)
	}
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
		return fmt.Errorf("server: %w", err)
	}
	<-s.drained
	return nil
}

// Shutdown takes no more requests, lets those that run end, and closes the models. When ctx
// ends, whatever still runs is cut off, and the error says so. It is called once.
func (s *Server) Shutdown(ctx context.Context) error {
	defer close(s.drained)
	s.draining.Store(true)
	s.stop()
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

// preload loads the models that are to be there from the beginning, one after the other.
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

// offer checks the models and opens the library.
func (s *Server) offer() error {
	if len(s.o.Models) == 0 {
		return errors.New("server: no model")
	}
	library := foretoken.LibraryOptions{Load: s.load, Size: s.size, Names: s.names, Memory: s.o.ModelsMemory, KeepAlive: s.o.KeepAlive}
	for i, m := range s.o.Models {
		if m.Name == "" || slices.Contains(s.names(), m.Name) {
			return fmt.Errorf("server: model %q: every model needs a name of its own", m.Name)
		}
		m.Preload = m.Preload || i == 0
		s.models = append(s.models, &offer{Model: m})
		if m.Pinned {
			library.Pinned = append(library.Pinned, m.Name)
		}
	}
	for alias, name := range s.o.Aliases {
		if !slices.Contains(s.names(), name) {
			return fmt.Errorf("server: alias %q: there is no model %q; there are %q", alias, name, s.names())
		}
		if alias != name && slices.Contains(s.names(), alias) {
			return fmt.Errorf("server: alias %q of %q: it is the name of another model", alias, name)
		}
	}
	s.library = foretoken.NewLibrary(library)
	s.host = &turn.Host{Library: s.library, Default: s.models[0].Name, Aliases: s.o.Aliases, SharePrefixes: s.o.SharePrefixes}
	return nil
}
