package serving

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/rescue"
	"github.com/foretoken/foretoken/internal/server"
	"github.com/foretoken/foretoken/internal/server/kvevents"
)

func (f *serveFlags) gatewayGroup() flags.Group {
	g := flags.NewGroup("Gateways")
	fs := g.Flags()
	fs.SortFlags = false
	f.addMetrics(g)
	fs.StringVar(&f.kvEvents, "kv-events", "", "publish the blocks of the prefix cache at `tcp://HOST:PORT` as vLLM events over ZeroMQ, without authentication; requests with an API key are excluded unless --share-prefix-cache is set")
	fs.StringVar(&f.kvReplay, "kv-events-replay", "", "replay past events on request at `tcp://HOST:PORT`")
	fs.StringVar(&f.kvName, "kv-events-name", "", "`NAME` of this server in events: its address for the gateway (default: the host name and --port)")
	return g
}

// addMetrics adds the flag for the listener of metrics and health.
func (f *serveFlags) addMetrics(g flags.Group) {
	g.Flags().StringVar(&f.metricsAddr, "metrics-addr", "", "serve only /metrics, /healthz and /readyz at `HOST:PORT`, without a key")
}

// publisher is that of --kv-events, nil without it. It has no sockets yet.
func (f *serveFlags) publisher(log *slog.Logger) (*kvevents.Publisher, error) {
	if f.kvEvents == "" {
		return nil, nil
	}
	name, port := f.kvName, f.port.Or(DefaultPort)
	if name == "" {
		host, err := os.Hostname()
		if err != nil || port == 0 {
			return nil, flags.Usagef("the address of this server is not known before it starts: set its name in events with --kv-events-name")
		}
		name = fmt.Sprintf("%s:%d", host, port)
	}
	if strings.ContainsAny(name, "@ ") {
		return nil, flags.Usagef("--kv-events-name %s: want a name without @ and spaces", name)
	}
	return kvevents.New(kvevents.Options{Pod: name, BlockTokens: foretoken.PageTokens, Log: log}), nil
}

// serveGateway opens the listeners for gateways beside the API of s, and serves them in the background until
// s has ended; end is to be called then.
func (f *serveFlags) serveGateway(log *slog.Logger, s *server.Server, events *kvevents.Publisher) (end func(), err error) {
	var open []net.Listener
	end = func() {
		for _, l := range open {
			_ = l.Close() // its server has closed it, unless there is none
		}
	}
	for _, x := range []struct {
		flag, addr, scheme string
		serve              func(net.Listener)
	}{
		{"--metrics-addr", f.metricsAddr, "", func(l net.Listener) { go serveMetrics(log, s, l) }},
		{"--kv-events", f.kvEvents, "tcp://", func(l net.Listener) { events.Publish(l) }},
		{"--kv-events-replay", f.kvReplay, "tcp://", func(l net.Listener) { events.Replay(l) }},
	} {
		if x.addr == "" {
			continue
		}
		l, err := listen(x.flag, x.scheme, x.addr)
		if err != nil {
			end()
			return nil, err
		}
		log.Info("listening for gateways", "flag", x.flag, "address", l.Addr().String())
		open = append(open, l)
		x.serve(l)
	}
	return end, nil
}

// listen opens a listener for a flag. As in ZeroMQ, the host may be *.
func listen(flag, scheme, text string) (net.Listener, error) {
	addr, ok := strings.CutPrefix(text, scheme)
	addr = strings.Replace(addr, "*:", ":", 1)
	if _, _, err := net.SplitHostPort(addr); err != nil || !ok {
		return nil, flags.Usagef("%s %s: want %sHOST:PORT", flag, text, scheme)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return l, nil
}

// serveMetrics serves metrics until s has ended.
func serveMetrics(log *slog.Logger, s *server.Server, l net.Listener) {
	if err := rescue.Do(func() error { return s.ServeMetrics(l) }); err != nil {
		log.Error("metrics are no longer served", "error", err)
	}
}
