package server

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/server/generate"
)

// origins are the other origins whose web pages may send requests.
type origins struct {
	list       []string
	all        bool
	protection *http.CrossOriginProtection
}

func newOrigins(list []string) (*origins, error) {
	o := &origins{protection: http.NewCrossOriginProtection()}
	for _, origin := range list {
		if origin == "*" {
			o.all = true
			continue
		}
		if err := o.protection.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("server: origin %q: want a scheme and a host, such as https://example.com, or *: %w", origin, err)
		}
		o.list = append(o.list, origin)
	}
	return o, nil
}

// allow sets the CORS headers for the request's origin, and reports whether it was a preflight
// request, which is answered by them.
func (o *origins) allow(w http.ResponseWriter, r *http.Request) (answered bool) {
	origin := r.Header.Get("Origin")
	if !o.all && len(o.list) == 0 || origin == "" {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	if !o.all && !slices.Contains(o.list, origin) {
		return false
	}
	if o.all {
		origin = "*"
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After, Foretoken-Ignored")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS")
	h.Set("Access-Control-Allow-Headers", cmp.Or(r.Header.Get("Access-Control-Request-Headers"), "*"))
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// check refuses requests of web pages from other origins. A browser keeps such a page from reading
// the answer, but not from having it computed.
func (o *origins) check(r *http.Request) error {
	if o.all || o.protection.Check(r) == nil {
		return nil
	}
	return &generate.Error{
		Status: http.StatusForbidden, Kind: generate.Unauthorized,
		Message: fmt.Sprintf("pages of %q may not use this server: start it with --cors ORIGIN to allow it", r.Header.Get("Origin")),
	}
}

// checkHost refuses a request whose host is not this machine: protection against DNS rebinding,
// where a page's own name resolves to this machine, so that the browser treats it as the same origin.
func checkHost(host string) error {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	ip, err := netip.ParseAddr(strings.Trim(name, "[]"))
	if err == nil && ip.IsLoopback() || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return nil
	}
	return &generate.Error{
		Status: http.StatusForbidden, Kind: generate.Unauthorized,
		Message: fmt.Sprintf("host %q is not a name of this machine: start the server with --api-key, or with --insecure, to allow other names", host),
	}
}
