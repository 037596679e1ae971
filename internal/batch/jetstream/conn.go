// Package jetstream stores batches of several machines in NATS JetStream: hints in a work
// queue, files, results and records. It is a client of a NATS server or of a cluster. It knows
// neither models nor the contents of lines.
package jetstream

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/foretoken/foretoken/internal/batch"
)

// Options of a connection.
type Options struct {
	Log *slog.Logger // nil: nothing is logged
	// Time after which the hints of a silent worker are reassigned: 30 seconds if 0.
	AckWait time.Duration
	// Maximum bytes of hints, 1 GiB if 0. Beyond it there is batch.ErrFull.
	MaxBytes int64

	// Servers of one cluster, such as nats://a:4222 or tls://b:4222.
	Servers []string
	// PEM files: the authorities of the servers' certificates, and the certificate and key of this
	// client. Any of them requires TLS.
	CA, Cert, Key string
	// File with the user's token and seed, as nsc writes it.
	Credentials string
}

// Defaults of Options.
const (
	defaultAckWait  = 30 * time.Second
	defaultMaxBytes = 1 << 30

	apiTimeout = 5 * time.Second // of one request to the servers
)

// Conn is a connection to servers. It comes back by itself when it is lost.
type Conn struct {
	log      *slog.Logger
	nc       *nats.Conn
	js       js.JetStream
	address  string // for people, without secrets
	replicas int
	ackWait  time.Duration
	maxBytes int64
	settled  bool // the stream of hints was there once

	mu        sync.Mutex
	stream    js.Stream // of hints; nil until it is known to exist
	consumers map[string]js.Consumer
}

// Dial connects to a cluster. The error names the unreachable servers.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	address, err := addresses(o.Servers)
	if err != nil {
		return nil, err
	}
	c := o.conn(address)
	options := append(c.options(), nats.Timeout(5*time.Second), nats.MaxReconnects(-1), nats.ReconnectWait(time.Second), nats.ReconnectJitter(200*time.Millisecond, time.Second))
	if o.CA != "" {
		options = append(options, nats.RootCAs(o.CA))
	}
	if o.Cert != "" {
		options = append(options, nats.ClientCert(o.Cert, o.Key))
	}
	if o.Credentials != "" {
		options = append(options, nats.UserCredentials(o.Credentials))
	}
	nc, err := nats.Connect(strings.Join(o.Servers, ","), options...)
	if err != nil {
		return nil, fmt.Errorf("queue %s: %w%s", address, err, o.remedy(err))
	}
	if err := c.use(ctx, nc); err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

// remedy suggests a fix if servers refuse the connection.
func (o *Options) remedy(err error) string {
	var unknown x509.UnknownAuthorityError
	secure := o.CA != "" || o.Cert != "" || slices.ContainsFunc(o.Servers, func(s string) bool { return strings.HasPrefix(s, "tls:") })
	switch {
	case errors.As(err, &unknown):
		return ": set --queue-ca to the certificate of the authority that signed it"
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return ": set --queue-credentials to credentials that the servers accept"
	case errors.Is(err, nats.ErrNoServers):
		return ": check that a server runs there; 'nats-server --jetstream' starts one"
	case errors.Is(err, fs.ErrNotExist), !secure:
		return ""
	}
	return ": if the servers require a client certificate, set --queue-cert and --queue-key"
}

// addresses are the servers for people, without credentials in their URLs.
func addresses(servers []string) (string, error) {
	if len(servers) == 0 {
		return "", errors.New("queue: no server is given, want nats://HOST:PORT")
	}
	var shown []string
	for _, s := range servers {
		u, err := url.Parse(s)
		if err != nil { // its message has the whole text, secrets included
			return "", errors.New("queue: an address is not valid, want nats://HOST:PORT")
		}
		if u.Scheme != "nats" && u.Scheme != "tls" || u.Host == "" {
			return "", fmt.Errorf("queue %s: want nats://HOST:PORT or tls://HOST:PORT", u.Redacted())
		}
		shown = append(shown, u.Scheme+"://"+u.Host)
	}
	return strings.Join(shown, ","), nil
}

// conn is a connection that is still to be made.
func (o *Options) conn(address string) *Conn {
	c := &Conn{log: o.Log, address: address, ackWait: o.AckWait, maxBytes: o.MaxBytes, consumers: map[string]js.Consumer{}}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.ackWait == 0 {
		c.ackWait = defaultAckWait
	}
	if c.maxBytes == 0 {
		c.maxBytes = defaultMaxBytes
	}
	return c
}

// options are those of all connections. Later failures are only logged.
func (c *Conn) options() []nats.Option {
	return []nats.Option{
		nats.Name("foretoken"),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if !nc.IsClosed() && err != nil {
				c.log.Warn("queue disconnected: requests are answered, batches wait until it is back", "queue", c.address, "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { c.log.Info("queue reconnected", "queue", c.address) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			c.log.Warn("queue", "queue", c.address, "error", err)
		}),
	}
}

// use sets up the connection. A cluster keeps three copies of everything, so that losing one
// node loses no data.
func (c *Conn) use(ctx context.Context, nc *nats.Conn) (err error) {
	c.nc = nc
	if c.js, err = js.New(nc, js.WithDefaultTimeout(apiTimeout)); err != nil {
		return err
	}
	c.replicas = 1
	if nc.ConnectedClusterName() != "" {
		c.replicas = 3
	}
	if _, err := c.work(ctx); err != nil {
		return fmt.Errorf("queue %s: %w", c.address, err)
	}
	c.settled = true
	return nil
}

// Close ends the connection.
func (c *Conn) Close() { c.nc.Close() }

// Address is the addresses of the servers.
func (c *Conn) Address() string { return c.address }

// Connected reports whether a server can be reached now.
func (c *Conn) Connected() bool { return c.nc.IsConnected() }

// Queue is the queue of hints.
func (c *Conn) Queue() batch.Queue { return (*queue)(c) }

// explained maps errors of servers to those of package batch.
func explained(err error) error {
	var api *js.APIError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &api) && full(api):
		return fmt.Errorf("%w: the queue says %q", batch.ErrFull, api.Description)
	case errors.As(err, &api) && api.ErrorCode == noPeers:
		return fmt.Errorf("the cluster cannot keep three copies (%s): start the missing nodes", api.Description)
	case errors.Is(err, js.ErrJetStreamNotEnabled), errors.Is(err, js.ErrJetStreamNotEnabledForAccount), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: start the servers with --jetstream, and enable JetStream for this account", err)
	case transient(err), errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrDisconnected):
		return fmt.Errorf("%w: %w", batch.ErrUnreachable, err)
	}
	return err
}

// Codes of the servers that the client has no names for.
const (
	noPeers          js.ErrorCode = 10005
	noResources      js.ErrorCode = 10023
	memoryExceeded   js.ErrorCode = 10028
	storageExceeded  js.ErrorCode = 10047
	storeFailed      js.ErrorCode = 10077 // for several reasons, one of them a limit
	accountExhausted js.ErrorCode = 10002
)

func full(e *js.APIError) bool {
	switch e.ErrorCode {
	case noResources, memoryExceeded, storageExceeded, accountExhausted:
		return true
	case storeFailed:
		return strings.Contains(e.Description, "maximum") || strings.Contains(e.Description, "no space")
	}
	return false
}

// gone reports that something that existed at the last use no longer exists.
func gone(err error) bool {
	return errors.Is(err, js.ErrStreamNotFound) || errors.Is(err, js.ErrConsumerNotFound) || errors.Is(err, js.ErrConsumerDeleted) ||
		errors.Is(err, js.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders)
}
