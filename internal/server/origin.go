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

// origins are the web pages elsewhere that may ask.
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

// allow tells a browser what pages of the request's origin may do, and reports whether that
// is all there is to answer.
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

// check refuses a browser that asks for a page from elsewhere. Without it any page could
// have this machine compute: not reading the answer does not keep a page from asking.
func (o *origins) check(r *http.Request) error {
	if o.all || o.protection.Check(r) == nil {
		return nil
	}
	return &generate.Error{
		Status: http.StatusForbidden, Kind: generate.Unauthorized,
		Message: fmt.Sprintf("pages of %q may not use this server: start it with --cors ORIGIN to allow them", r.Header.Get("Origin")),
	}
}

// checkHost refuses a request that does not name this machine. A page elsewhere can have its
// own name resolve to this machine and is then no longer elsewhere to a browser.
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
		Message: fmt.Sprintf("host %q: this server answers to names of this machine only: start it with --api-key, or with --insecure, to use other names", host),
	}
}
