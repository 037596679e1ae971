// Package fetch gets images from other machines for a server whose operator allows it: from
// hosts of a list, from public addresses only unless the list names the address or port, in
// bounded time and memory. It does not know requests and models.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/picture"
)

// The limits of a fetch.
const (
	maxBytes     = 32 << 20
	maxRedirects = 3
	maxHeader    = 32 << 10
	timeout      = 20 * time.Second // of all of it
)

// Client fetches images.
type Client struct {
	hosts    []host // explicit ones first
	http     *http.Client
	observe  func(bytes int, err error)
	maxBytes int
	timeout  time.Duration
	lookup   func(ctx context.Context, network, host string) ([]netip.Addr, error)
	connect  func(ctx context.Context, network, address string) (net.Conn, error)
}

// New returns a client for hosts: HOST and *.DOMAIN, each on the ports of http and https, or * for
// all. HOST:PORT, and an address in place of a name, may be on a private network; all others must
// have public addresses. observe, if not nil, is called after every fetch.
func New(hosts []string, observe func(bytes int, err error)) (*Client, error) {
	c := &Client{
		observe: observe, maxBytes: maxBytes, timeout: timeout,
		lookup: net.DefaultResolver.LookupNetIP, connect: new(net.Dialer).DialContext,
	}
	for _, text := range hosts {
		h, err := parseHost(text)
		if err != nil {
			return nil, err
		}
		c.hosts = append(c.hosts, h)
	}
	slices.SortStableFunc(c.hosts, func(a, b host) int { return rank(a) - rank(b) })
	c.http = &http.Client{
		CheckRedirect: c.redirect,
		Transport: &http.Transport{ // without a proxy, which would choose the address
			DialContext:            c.dial,
			DisableCompression:     true, // sizes are those of the wire
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: maxHeader,
		},
	}
	return c, nil
}

func rank(h host) int {
	if h.explicit() {
		return 0
	}
	return 1
}

// Allows returns an error that says why a URL may not be fetched, or nil. It sends no
// request.
func (c *Client) Allows(u *url.URL) error {
	_, err := c.find(u)
	return err
}

// Fetch returns the image at a URL. Its format is found by its bytes: a header may be wrong.
func (c *Client) Fetch(ctx context.Context, u *url.URL) (data []byte, err error) {
	if err := c.Allows(u); err != nil {
		return nil, err
	}
	if c.observe != nil {
		defer func() { c.observe(len(data), err) }()
	}
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	data, err = c.get(limited, u)
	switch {
	case err == nil:
		return data, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil:
		return nil, fmt.Errorf("the image did not arrive from %.100q within %v", u.Host, c.timeout)
	}
	if outer := (*url.Error)(nil); errors.As(err, &outer) { // whose text has all of the URL
		err = outer.Err
	}
	return nil, fmt.Errorf("the image could not be fetched from %.100q: %w", u.Host, err)
}

// get sends the request and reads the answer.
func (c *Client) get(ctx context.Context, u *url.URL) ([]byte, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	q.Header.Set("User-Agent", "foretoken")
	q.Header.Set("Accept", "image/png, image/jpeg, image/webp, image/gif")
	r, err := c.http.Do(q)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close() //nolint:errcheck // nothing is written
	switch {
	case r.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("it answered with status %d", r.StatusCode)
	case r.ContentLength > int64(c.maxBytes):
		return nil, c.tooLarge()
	}
	head := make([]byte, picture.HeadBytes)
	n, err := io.ReadFull(r.Body, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	if err := picture.CheckFormat(head[:n]); err != nil { // before the rest is read
		return nil, err
	}
	rest, err := io.ReadAll(io.LimitReader(r.Body, int64(c.maxBytes-n)+1))
	switch {
	case err != nil:
		return nil, err
	case n+len(rest) > c.maxBytes:
		return nil, c.tooLarge()
	}
	return append(head[:n], rest...), nil
}

func (c *Client) tooLarge() error {
	return fmt.Errorf("it has more than %d bytes, the maximum", c.maxBytes)
}

// redirect decides whether to follow a redirect.
func (c *Client) redirect(to *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case via[0].URL.Scheme == "https" && to.URL.Scheme != "https":
		return errors.New("a redirect from https to http")
	}
	to.Header.Del("Referer") // do not reveal the redirecting page
	if err := c.Allows(to.URL); err != nil {
		return fmt.Errorf("a redirect: %w", err)
	}
	return nil
}

// dial connects to an allowed host of a URL. It resolves a name once, and dials the addresses
// that it has checked: a name that changes meanwhile gains nothing.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addresses, err := c.lookup(ctx, "ip", name)
	if err != nil {
		return nil, err
	}
	err = fmt.Errorf("%.100q has no public address: see foretoken serve --allow-image-urls", name)
	for _, a := range addresses {
		if !public(a) && !c.private(name, port) {
			continue
		}
		var conn net.Conn
		if conn, err = c.connect(ctx, network, net.JoinHostPort(a.Unmap().String(), port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// private reports whether a host may have an address that is not public.
func (c *Client) private(name, port string) bool {
	for _, scheme := range []string{"http", "https"} {
		h, err := c.find(&url.URL{Scheme: scheme, Host: net.JoinHostPort(name, port)})
		if err == nil && h.explicit() {
			return true
		}
	}
	return false
}
