package fetch

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// host is an entry of the list of hosts.
type host struct {
	name string     // in lower case; a suffix with its dot for *.example.org, "" for *
	addr netip.Addr // of a literal address
	port string     // "": those of http and https
}

// explicit reports whether the entry names one address or one port of a host. Such an entry
// allows private addresses.
func (h host) explicit() bool { return h.addr.IsValid() || h.port != "" }

// parseHost reads an entry: HOST, *.DOMAIN or *, or with a literal address or a port one that
// may be on a private network.
func parseHost(text string) (host, error) {
	h := host{name: strings.ToLower(text)}
	if name, port, err := net.SplitHostPort(h.name); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return h, fmt.Errorf("%q, want HOST, HOST:PORT, *.DOMAIN or *", text)
		}
		h.name, h.port = name, port
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(h.name, "["), "]")
	if addr, err := netip.ParseAddr(bare); err == nil {
		h.addr = addr.Unmap()
		return h, nil
	}
	wild, isWild := strings.CutPrefix(h.name, "*")
	switch {
	case isWild && wild == "" && h.port == "":
		h.name = ""
	case isWild && len(wild) > 1 && wild[0] == '.' && h.port == "" && plain(wild[1:]):
		h.name = wild
	case isWild || !plain(h.name):
		return h, fmt.Errorf("%q, want HOST, HOST:PORT, *.DOMAIN or *", text)
	}
	return h, nil
}

// plain reports whether a text can be the name of a host.
func plain(name string) bool {
	return name != "" && name[0] != '.' && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

// find is the entry that allows a URL. Entries that name a port or address come first.
func (c *Client) find(u *url.URL) (host, error) {
	name, port := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), u.Port()
	standard := port == "" || u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443"
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	addr, _ := netip.ParseAddr(name)
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return host{}, fmt.Errorf("URLs of scheme %.20q are not fetched", u.Scheme)
	case u.User != nil:
		return host{}, fmt.Errorf("the URL has a user name or password, which is not supported")
	}
	at := slices.IndexFunc(c.hosts, func(h host) bool {
		switch {
		case h.port != "" && h.port != port, h.port == "" && !standard:
			return false
		case h.addr.IsValid():
			return h.addr == addr.Unmap()
		case h.name == "":
			return true
		case h.name[0] == '.':
			return strings.HasSuffix(name, h.name)
		}
		return h.name == name
	})
	if at < 0 {
		return host{}, fmt.Errorf("this server does not fetch images from %.100q: send the image as a data: URL, or see foretoken serve --allow-image-urls", u.Host)
	}
	return c.hosts[at], nil
}

// reserved are networks beyond those that package netip knows, of addresses that are not hosts of
// the public Internet or that stand for others, which may be private.
var reserved = func() (list []netip.Prefix) {
	for _, text := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
		"203.0.113.0/24", "240.0.0.0/4",
		"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fec0::/10",
	} {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}()

// public reports whether an address is that of a host of the public Internet.
func public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return a.IsGlobalUnicast() && !a.IsPrivate() && !slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(a) })
}
