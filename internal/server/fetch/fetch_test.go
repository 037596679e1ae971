package fetch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
)

// png is the beginning of an image that the client checks.
const png = "\x89PNG\r\n\x1a\n and the rest of an image"

func TestHosts(t *testing.T) {
	c, err := New([]string{"Example.org", "*.pictures.example", "intranet:8080", "10.0.0.5", "[fd00::1]:81", "127.0.0.1:9000"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"https://example.org/a.png":        true,
		"http://EXAMPLE.ORG./a.png":        true,
		"https://example.org:443/a":        true,
		"http://example.org:443/a":         false, // the port of another scheme
		"https://example.org:8443/a":       false,
		"https://www.example.org/a":        false,
		"https://example.org.evil/a":       false,
		"https://evilexample.org/a":        false,
		"https://a.pictures.example/a":     true,
		"https://a.b.pictures.example/a":   true,
		"https://pictures.example/a":       false,
		"https://evilpictures.example/a":   false,
		"http://intranet:8080/a":           true,
		"http://intranet/a":                false,
		"http://10.0.0.5/a":                true,
		"https://10.0.0.5/a":               true,
		"http://10.0.0.5:8080/a":           false,
		"http://[::ffff:10.0.0.5]/a":       true,
		"http://10.0.0.50/a":               false,
		"http://[fd00::1]:81/a":            true,
		"http://[fd00::1]/a":               false,
		"http://127.0.0.1:9000/a":          true,
		"http://127.0.0.1/a":               false,
		"http://2130706433/a":              false, // 127.0.0.1, as some resolvers read it
		"ftp://example.org/a":              false,
		"file:///etc/passwd":               false,
		"https://user:secret@example.org/": false,
		"https://example.org@evil/a":       false,
		"https:///a":                       false,
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Allows(u); (err == nil) != want || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
		if want {
			continue
		}
		if _, err := c.Fetch(t.Context(), u); err == nil {
			t.Errorf("%s was fetched", text)
		}
	}
	for _, text := range []string{"", "a b", "https://example.org", "*.", "**", "*example.org", "*:80", "*.example.org:80", ".example.org", "example.org/path", "a:b:c", "a:http", "a:0", "a:65536", "a:"} {
		if _, err := New([]string{text}, nil); err == nil {
			t.Errorf("%q is taken for a host", text)
		}
	}
	all, _ := New([]string{"*"}, nil)
	if err := all.Allows(&url.URL{Scheme: "https", Host: "anything.example"}); err != nil {
		t.Error(err)
	}
}

func TestPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"1.1.1.1": true, "93.184.216.34": true, "2606:4700::1111": true, "::ffff:1.1.1.1": true,
		"0.0.0.0": false, "0.1.2.3": false, "10.1.2.3": false, "100.64.0.1": false, "127.0.0.1": false, "127.9.9.9": false, "169.254.169.254": false,
		"172.16.0.1": false, "172.31.255.255": false, "192.168.0.1": false, "192.0.0.1": false, "198.18.0.1": false, "224.0.0.1": false,
		"240.0.0.1": false, "255.255.255.255": false, "::": false, "::1": false, "::7f00:1": false, "::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false,
		"fe80::1": false, "fe80::1%eth0": false, "fd00::1": false, "fc00::1": false, "fec0::1": false, "ff02::1": false,
		"64:ff9b::7f00:1": false, "2002:7f00:1::": false, "2001::1": false, "2001:db8::1": false,
	} {
		if got := public(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// local is a client that may fetch from a server on this machine.
func local(t *testing.T, h http.HandlerFunc) (*Client, *url.URL) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New([]string{u.Host}, nil)
	if err != nil {
		t.Fatal(err)
	}
	u.Path, u.RawQuery = "/a.png", "token=secret"
	return c, u
}

// TestFetch asks servers that behave well and badly.
func TestFetch(t *testing.T) {
	gone := make(chan struct{}) // closed when no handler needs to wait any longer
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string // of the error; "": there is none
	}{
		"an image": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(png)) }, ""},
		"called something else": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte(png))
		}, ""},
		"called an image": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "image/png")
			_, _ = w.Write([]byte("<html>"))
		}, `not a PNG, JPEG, WebP or GIF image: it begins with "<html>"`},
		"another kind": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("BM is how these begin")) }, "unsupported image: BMP"},
		"nothing":      {func(http.ResponseWriter, *http.Request) {}, "not a PNG, JPEG, WebP or GIF image: no bytes"},
		"missing":      {http.NotFound, "it answered with status 404"},
		"an error":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "it answered with status 500"},
		"partial":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(206); _, _ = w.Write([]byte(png)) }, "it answered with status 206"},
		"compressed": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte("\x1f\x8b"))
		}, "not a PNG"},
		"long, as it says": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "999999999999")
			_, _ = w.Write([]byte(png))
		}, "it has more than 65536 bytes, the maximum"},
		"shorter than it says": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(png))
		}, "unexpected EOF"},
		"no end":               {func(w http.ResponseWriter, r *http.Request) { endless(w, r, []byte(png)) }, "it has more than 65536 bytes, the maximum"},
		"no end, and no image": {func(w http.ResponseWriter, r *http.Request) { endless(w, r, []byte("a text that is no image ")) }, "not a PNG"},
		"a header without end": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", maxHeader+8<<10))
		}, "server response headers exceeded"},
		"silence": {func(_ http.ResponseWriter, r *http.Request) { wait(r, gone) }, "did not arrive from"},
		"silence in the middle": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(png))
			w.(http.Flusher).Flush()
			wait(r, gone)
		}, "did not arrive from"},
	} {
		t.Run(name, func(t *testing.T) {
			client, u := local(t, c.handler)
			client.maxBytes = 1 << 16
			if strings.HasPrefix(name, "silence") {
				client.timeout = 50 * time.Millisecond
			}
			told := 0
			client.observe = func(n int, err error) {
				if told++; (err == nil) != (c.want == "") || err == nil && n != len(png) {
					t.Errorf("observed %d bytes, %v", n, err)
				}
			}
			data, err := client.Fetch(t.Context(), u)
			switch {
			case told != 1:
				t.Errorf("observed %d times", told)
			case c.want == "" && (err != nil || string(data) != png):
				t.Errorf("%q, %v", data, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), u.Host) || strings.Contains(err.Error(), "secret") || data != nil):
				t.Errorf("%d bytes, %v, want %s", len(data), err, c.want)
			}
		})
	}
	close(gone)
}

// endless writes the same again and again.
func endless(w http.ResponseWriter, r *http.Request, text []byte) {
	for r.Context().Err() == nil {
		if _, err := w.Write(text); err != nil {
			return
		}
	}
}

// wait waits for the client to leave.
func wait(r *http.Request, gone chan struct{}) {
	select {
	case <-r.Context().Done():
	case <-gone:
	}
}

func TestCanceledFetchIsNoFaultOfTheHost(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, u := local(t, func(http.ResponseWriter, *http.Request) { cancel() })
	if _, err := c.Fetch(ctx, u); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestRedirects follows redirects to allowed hosts, without headers of the first request.
func TestRedirects(t *testing.T) {
	var c *Client
	var u *url.URL
	c, u = local(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Cookie") != "" || r.Header.Get("Referer") != "" || r.Header.Get("Authorization") != "" {
			t.Errorf("%s: header %v", r.URL, r.Header)
		}
		http.SetCookie(w, &http.Cookie{Name: "who", Value: "you"})
		if to, ok := strings.CutPrefix(r.URL.Path, "/to/"); ok {
			w.Header().Set("Location", to+"?"+r.URL.RawQuery)
			w.WriteHeader(http.StatusFound)
			return
		}
		_, _ = w.Write([]byte(png))
	})
	for to, want := range map[string]string{
		"/a.png":                      "",
		"/to//to//a.png":              "",
		"/to//to//to//to//a.png":      "more than 3 redirects",
		"http://localhost/a.png":      `a redirect: this server does not fetch images from "localhost"`,
		"http://169.254.169.254/meta": `a redirect: this server does not fetch images from "169.254.169.254"`,
		"http://127.0.0.1:1/a.png":    `a redirect: this server does not fetch images from "127.0.0.1:1"`,
		"file:///etc/passwd":          `a redirect: URLs of scheme "file" are not fetched`,
		"http://a:b@" + u.Host + "/a": "a redirect: the URL has a user name or password",
	} {
		u.Path = "/to/" + to
		data, err := c.Fetch(t.Context(), u)
		if want == "" && (err != nil || string(data) != png) || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %q, %v, want %s", to, data, err, want)
		}
	}
}

func TestRedirectsKeepSecrecy(t *testing.T) {
	c, plain := local(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(png)) })
	s := httptest.NewTLSServer(http.RedirectHandler(plain.String(), http.StatusFound))
	t.Cleanup(s.Close)
	u, _ := url.Parse(s.URL) // of a server that runs
	h, err := parseHost(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	c.hosts = append(c.hosts, h)
	c.http.Transport.(*http.Transport).TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig
	if _, err := c.Fetch(t.Context(), u); err == nil || !strings.Contains(err.Error(), "a redirect from https to http") {
		t.Error(err)
	}
}

// TestAddressesAreThoseThatAreChecked has names whose addresses change from one lookup to the
// next, as the owner of a name can arrange.
func TestAddressesAreThoseThatAreChecked(t *testing.T) {
	c, err := New([]string{"*", "intranet:8080"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string][]string{ // by lookup
		"public.example":  {"93.184.216.34", "127.0.0.1"},
		"private.example": {"127.0.0.1 10.0.0.1 ::1 169.254.169.254", "93.184.216.34"},
		"mixed.example":   {"127.0.0.1 93.184.216.34"},
		"mapped.example":  {"::ffff:127.0.0.1"},
		"intranet":        {"10.0.0.7"},
		"no.example":      {""},
		"127.0.0.1":       {"127.0.0.1"},
		"169.254.169.254": {"169.254.169.254"},
		"93.184.216.34":   {"93.184.216.34"},
		"2606:4700::1111": {"2606:4700::1111"},
	}
	lookups := map[string]int{}
	var dialed []string
	c.lookup = func(_ context.Context, _, host string) (list []netip.Addr, _ error) {
		for _, text := range strings.Fields(answers[host][lookups[host]]) {
			list = append(list, netip.MustParseAddr(text))
		}
		lookups[host]++
		return list, nil
	}
	c.connect = func(_ context.Context, _, address string) (net.Conn, error) {
		dialed = append(dialed, address)
		return nil, errors.New("dialed")
	}
	for _, x := range []struct{ url, dialed, says string }{
		{"http://public.example/a", "93.184.216.34:80", "dialed"},
		{"http://public.example/a", "", `"public.example" has no public address`},
		{"https://private.example/a", "", `"private.example" has no public address`},
		{"https://private.example/a", "93.184.216.34:443", "dialed"},
		{"https://mixed.example/a", "93.184.216.34:443", "dialed"},
		{"http://mapped.example/a", "", "has no public address"},
		{"http://intranet:8080/a", "10.0.0.7:8080", "dialed"}, // which the list names with its port
		{"http://no.example/a", "", "has no public address"},
		{"http://127.0.0.1/a", "", "has no public address"},
		{"http://169.254.169.254/a", "", "has no public address"},
		{"http://93.184.216.34/a", "93.184.216.34:80", "dialed"},
		{"http://[2606:4700::1111]/a", "[2606:4700::1111]:80", "dialed"},
	} {
		dialed = nil
		u, err := url.Parse(x.url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = c.Fetch(t.Context(), u); err == nil || !strings.Contains(err.Error(), x.says) || strings.Join(dialed, " ") != x.dialed {
			t.Errorf("%s: dialed %q, %v, want %q and %s", x.url, dialed, err, x.dialed, x.says)
		}
	}
	if c.http.Transport.(*http.Transport).Proxy != nil || c.http.Jar != nil {
		t.Error("there is a proxy or a jar of cookies")
	}
}

func TestNamesAreResolved(t *testing.T) {
	c, u := local(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(png)) })
	u.Host = "pictures.example:" + u.Port()
	named, err := New([]string{u.Host}, nil)
	if err != nil {
		t.Fatal(err)
	}
	named.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	if data, err := named.Fetch(t.Context(), u); err != nil || string(data) != png {
		t.Errorf("%q, %v", data, err)
	}
	if err := c.Allows(u); err == nil {
		t.Error("another name of the same machine is allowed")
	}
	named.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
		return nil, fmt.Errorf("lookup of %s failed", "a name")
	}
	if _, err := named.Fetch(t.Context(), u); err == nil || !strings.Contains(err.Error(), "lookup of a name failed") {
		t.Error(err)
	}
}
