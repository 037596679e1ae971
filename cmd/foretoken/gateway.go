package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/rescue"
	"github.com/foretoken/foretoken/internal/server"
	"github.com/foretoken/foretoken/internal/server/kvevents"
)

func (f *serveFlags) gatewayGroup() flagGroup {
	g := newFlagGroup("Gateways")
	fs := g.flags.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.metricsAddr, "metrics-addr", "", "serve /metrics, /healthz and /readyz at `HOST:PORT` too, without a key and without anything else")
	fs.StringVar(&f.kvEvents, "kv-events", "", "publish what the prefix cache can resume at `tcp://HOST:PORT`, as events of vLLM over ZeroMQ; for anybody who reaches it; requests with keys of their own are left out, unless --share-prefix-cache")
	fs.StringVar(&f.kvReplay, "kv-events-replay", "", "send past events again on request at `tcp://HOST:PORT`")
	fs.StringVar(&f.kvName, "kv-events-name", "", "`NAME` of this server in events: its address for the gateway (default: this machine's name and --port)")
	return g
}

// gateway is what serve offers to gateways beside its API.
type gateway struct {
	metrics net.Listener        // nil: none
	events  *kvevents.Publisher // nil: none
}

// openGateway opens the listeners. port is the server's.
func (f *serveFlags) openGateway(log *slog.Logger, port int) (g gateway, err error) {
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	if f.metricsAddr != "" {
		if g.metrics, err = listen("--metrics-addr", f.metricsAddr); err != nil {
			return g, err
		}
		log.Info("listening for metrics", "url", "http://"+g.metrics.Addr().String()+"/metrics")
	}
	if f.kvEvents == "" {
		return g, nil
	}
	name := f.kvName
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return g, fmt.Errorf("the name of this machine: %w; set --kv-events-name", err)
		}
		name = fmt.Sprintf("%s:%d", host, port)
	}
	if strings.Contains(name, "@") {
		return g, usagef("--kv-events-name %s: want a name without @", name)
	}
	g.events = kvevents.New(kvevents.Options{Pod: name, BlockTokens: foretoken.PageTokens, Log: log})
	for _, s := range []struct {
		flag, addr string
		serve      func(net.Listener)
	}{{"--kv-events", f.kvEvents, g.events.Publish}, {"--kv-events-replay", f.kvReplay, g.events.Replay}} {
		if s.addr == "" {
			continue
		}
		addr, ok := strings.CutPrefix(s.addr, "tcp://")
		if !ok {
			return g, usagef("%s %s: want tcp://HOST:PORT", s.flag, s.addr)
		}
		l, err := listen(s.flag, strings.Replace(addr, "*:", ":", 1)) // as ZeroMQ writes every address
		if err != nil {
			return g, err
		}
		log.Info("listening for kv events", "flag", s.flag, "url", "tcp://"+l.Addr().String(), "name", name)
		s.serve(l)
	}
	return g, nil
}

// listen opens a listener that a flag asks for.
func listen(flag, addr string) (net.Listener, error) {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, usagef("%s: %v; want HOST:PORT", flag, err)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return l, nil
}

// serve serves metrics until the server ends, in the background.
func (g *gateway) serve(log *slog.Logger, s *server.Server) {
	if g.metrics == nil {
		return
	}
	go func() {
		if err := rescue.Do(func() error { return s.ServeMetrics(g.metrics) }); err != nil {
			log.Error("metrics are no longer served", "error", err)
		}
	}()
}

// close closes what is open. The server has ended.
func (g *gateway) close() {
	if g.metrics != nil {
		_ = g.metrics.Close() // the server has, unless there is none
	}
	if g.events != nil {
		g.events.Close()
	}
}
