package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// DefaultEndpoint is the address of the public hub.
const DefaultEndpoint = "https://huggingface.co"

const (
	defaultParallel = 8
	maxParallel     = 64
	filesAtOnce     = 4                // a few, so that a model arrives file by file
	chunkBytes      = 16 << 20         // of one request for a part of a file
	stallTime       = 60 * time.Second // after which a silent connection is closed
	maxRedirects    = 10
)

// Options say where models come from and go to.
type Options struct {
	Cache    string // folder of the cache
	Endpoint string // address of the hub; empty: DefaultEndpoint
	Token    string // of the user; it is sent only to the endpoint
	Agent    string // User-Agent of the program
	Offline  bool   // send no request
	Parallel int    // connections at a time, each with 16 MiB of memory; 0: 8

	// Proxy is the way to an address, as in http.Transport; nil: straight.
	Proxy func(*http.Request) (*url.URL, error)
}

// Client fetches from one hub into one cache. It may be used from several goroutines, and
// beside other programs that use the same cache.
type Client struct {
	cache    Cache
	endpoint *url.URL
	token    string
	agent    string
	offline  bool
	http     *http.Client
	buffers  chan []byte // one for each connection; nil until it is used

	// Replaced by tests.
	chunk   int
	stall   time.Duration
	sleep   func(context.Context, time.Duration) error
	now     func() time.Time
	symlink func(target, link string) error
}

// New returns a client. It does not connect.
func New(o Options) (*Client, error) {
	if o.Cache == "" {
		return nil, errors.New("hub: no cache folder is given")
	}
	if o.Endpoint == "" {
		o.Endpoint = DefaultEndpoint
	}
	endpoint, err := url.Parse(strings.TrimRight(o.Endpoint, "/"))
	if err != nil || endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.Host == "" || endpoint.RawQuery != "" {
		return nil, fmt.Errorf("hub: endpoint %q: want an address such as %s", o.Endpoint, DefaultEndpoint)
	}
	if strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("hub: the token has invalid characters")
	}
	if o.Parallel == 0 {
		o.Parallel = defaultParallel
	}
	if o.Parallel < 1 || o.Parallel > maxParallel {
		return nil, fmt.Errorf("hub: %d connections, want 1 to %d", o.Parallel, maxParallel)
	}
	c := &Client{
		cache: Cache(o.Cache), endpoint: endpoint, token: o.Token, agent: o.Agent, offline: o.Offline,
		http: newHTTP(o), buffers: make(chan []byte, o.Parallel),
		chunk: chunkBytes, stall: stallTime, sleep: sleep, now: time.Now, symlink: os.Symlink,
	}
	for range o.Parallel {
		c.buffers <- nil
	}
	return c, nil
}

// newHTTP returns the HTTP client. HTTP/2 is off: it would send all parts of all files
// through one connection, which parallel parts are to beat.
func newHTTP(o Options) *http.Client {
	http1 := new(http.Protocols)
	http1.SetHTTP1(true)
	return &http.Client{
		Transport: &http.Transport{
			Proxy:               o.Proxy,
			DialContext:         (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout: 15 * time.Second,
			MaxIdleConnsPerHost: o.Parallel,
			IdleConnTimeout:     90 * time.Second,
			ReadBufferSize:      64 << 10,
			Protocols:           http1,
		},
		// The token may be sent to some hosts only: see ask.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// ours reports whether an address belongs to the hub itself, to which the token may be sent.
func (c *Client) ours(at *url.URL) bool {
	return at.Scheme == c.endpoint.Scheme && at.Host == c.endpoint.Host
}

// ask sends a request and passes a successful answer to read, with its address.
// It follows redirects. A HEAD request looks up the address of a file, and ends at the first
// address outside of the hub: signed addresses are valid for GET only.
// span is the value of the Range header, if not empty.
func (c *Client) ask(ctx context.Context, method string, at *url.URL, span string, read func(*http.Response, *url.URL) error) error {
	for range maxRedirects {
		var next *url.URL
		err := c.exchange(ctx, method, at, span, func(r *http.Response) (err error) {
			switch to := r.Header.Get("Location"); {
			case r.StatusCode < http.StatusMultipleChoices:
				return read(r, at)
			case r.StatusCode >= http.StatusBadRequest || to == "":
				return c.newStatusError(r, at)
			default:
				if next, err = at.Parse(to); err != nil || next.Scheme != "http" && next.Scheme != "https" || next.Host == "" {
					return &fatalError{fmt.Errorf("hub: %s redirects to %.100q, which is not a valid address", shown(at), to)}
				}
			}
			if method == http.MethodHead && !c.ours(next) {
				elsewhere := next
				next = nil
				return read(r, elsewhere)
			}
			return nil
		})
		if err != nil || next == nil {
			return err
		}
		at = next
	}
	return &fatalError{fmt.Errorf("hub: %s: more than %d redirects", shown(at), maxRedirects)}
}

// exchange sends one request and passes the answer to read. It gives up if no data
// arrives for too long.
func (c *Client) exchange(ctx context.Context, method string, at *url.URL, span string, read func(*http.Response) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(c.stall, func() { cancel(errStalled) })
	defer idle.Stop()
	request, err := http.NewRequestWithContext(ctx, method, at.String(), http.NoBody)
	if err != nil {
		return &fatalError{fmt.Errorf("hub: %s: %w", shown(at), err)}
	}
	request.Header.Set("Accept-Encoding", "identity") // sizes and hashes are those of the uncompressed files
	if c.agent != "" {
		request.Header.Set("User-Agent", c.agent)
	}
	if span != "" {
		request.Header.Set("Range", span)
	}
	if c.token != "" && c.ours(at) {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return noAnswer(at, cmp.Or(stalled(ctx), err))
	}
	defer func() { _ = answer.Body.Close() }() // read to its end, or not wanted
	answer.Body = &watched{answer.Body, idle, c.stall}
	if err = read(answer); err != nil {
		err = cutShort(at, cmp.Or(stalled(ctx), err))
	}
	return err
}

// stalled is errStalled if that is why ctx has ended.
func stalled(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errStalled) {
		return errStalled
	}
	return nil
}

// watched is a body that is closed if it stalls.
type watched struct {
	io.ReadCloser
	idle  *time.Timer
	stall time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	w.idle.Reset(w.stall)
	return n, err
}

// Waiting before the next try.
const (
	maxFailures = 6                // in a row
	firstWait   = 1 * time.Second  // doubled with each failure
	longestWait = 30 * time.Second // if the server names no time
	patience    = 5 * time.Minute  // if the server asks for it
)

// again reports whether to retry after an error, and when. failures is
// the number of failures before.
func (c *Client) again(err error, failures int) (wait time.Duration, ok bool) {
	var fatal *fatalError
	var status *statusError
	switch {
	case failures+1 >= maxFailures || errors.As(err, &fatal):
		return 0, false
	case errors.As(err, &status) && (!status.temporary() || status.after > patience):
		return 0, false
	case status != nil && status.after > 0:
		return status.after, true
	}
	wait = min(firstWait<<failures, longestWait)
	return wait/2 + rand.N(wait/2), true // not all connections at the same moment
}

// sleep waits, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
