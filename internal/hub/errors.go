package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
)

var (
	// ErrUnreachable is of a hub that cannot be talked to: no network, no such address, a
	// firewall.
	ErrUnreachable = errors.New("not reachable")
	// ErrOffline reports that a client with Options.Offline needed the network.
	ErrOffline = errors.New("offline")
	// ErrNotCached is of a model that is not in the cache.
	ErrNotCached = errors.New("not in the cache")

	errStalled = errors.New("the transfer has stalled")
)

// fatalError is an error that retries do not change.
type fatalError struct{ error }

func (e *fatalError) Unwrap() error { return e.error }

// statusError is an answer with another status than requested.
type statusError struct {
	at      string
	ours    bool // the hub itself said so
	code    int
	reason  string // the hub's word for it, such as GatedRepo
	message string // the hub's sentence, if it has one
	after   time.Duration
}

func (c *Client) newStatusError(r *http.Response, at *url.URL) *statusError {
	return &statusError{
		at: shown(at), ours: c.ours(at), code: r.StatusCode, reason: r.Header.Get("X-Error-Code"),
		message: plainText(r.Header.Get("X-Error-Message")), after: c.retryAfter(r.Header),
	}
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("hub: %s answers %d %s", e.at, e.code, http.StatusText(e.code))
	if e.message != "" {
		text += ": " + e.message
	}
	if e.after > 0 {
		text += fmt.Sprintf(" (retry in %v)", e.after)
	}
	return text
}

// temporary reports whether the same question may get another answer later.
func (e *statusError) temporary() bool {
	switch e.code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// refused reports whether an address that once was good is not any more.
func (e *statusError) refused() bool {
	switch e.code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return true
	}
	return false
}

// rateReset is the hub's own header for the seconds until a limit is lifted.
var rateReset = regexp.MustCompile(`\br=0\b.*\bt=([0-9]{1,9})\b`)

// retryAfter is the delay that an answer asks for, 0 if none.
func (c *Client) retryAfter(h http.Header) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if m := rateReset.FindStringSubmatch(h.Get("RateLimit")); value == "" && m != nil {
		value = m[1]
	}
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(date.Sub(c.now()), 0)
	}
	return 0
}

// explain translates an error of the hub's API for the user.
func (c *Client) explain(err error, repo Repo, revision string) error {
	var e *statusError
	if !errors.As(err, &e) || !e.ours {
		return err
	}
	page := c.endpoint.String() + "/" + string(repo)
	unknown := e.reason == "RepoNotFound" || e.reason == "" && (e.code == http.StatusUnauthorized || e.code == http.StatusNotFound)
	switch {
	case e.reason == "GatedRepo" && c.token == "":
		return fmt.Errorf("hub: %s is gated: ask for access at %s, then set HF_TOKEN to a token from %s/settings/tokens: %w", repo, page, c.endpoint, err)
	case e.reason == "GatedRepo" || e.code == http.StatusForbidden:
		return fmt.Errorf("hub: this token has no access to %s: ask for access at %s, and give the token the right to read gated repositories: %w", repo, page, err)
	case e.reason == "RevisionNotFound":
		return fmt.Errorf("hub: %s has no revision %q: its branches and tags are at %s/tree/main: %w", repo, revision, page, err)
	case unknown && c.token == "":
		return fmt.Errorf("hub: %s does not exist, or is private: check the name; for a private repository set HF_TOKEN: %w", repo, err)
	case unknown:
		return fmt.Errorf("hub: %s does not exist, or this token has no access to it: check the name and HF_TOKEN: %w", repo, err)
	}
	return err
}

// noAnswer is the error of a request that was not answered at all. The address that the
// http package adds has a signature in it.
func noAnswer(at *url.URL, err error) error {
	var whole *url.Error
	if errors.As(err, &whole) {
		err = whole.Err
	}
	return fmt.Errorf("hub: %s is %w: %w", shown(at), ErrUnreachable, err)
}

// cutShort is the error of an interrupted answer: a known one, or a network error.
func cutShort(at *url.URL, err error) error {
	var status *statusError
	var fatal *fatalError
	if errors.As(err, &status) || errors.As(err, &fatal) {
		return err
	}
	return fmt.Errorf("hub: %s: the connection broke: %w", shown(at), err)
}

// diskError adds advice to an error of the file system.
func (c Cache) diskError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("hub: the disk of %s is full: free some space and fetch again; the download continues where it stopped: %w", string(c), err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("hub: the cache %s is not writable: change its permissions, or set HF_HUB_CACHE to another folder: %w", string(c), err)
	}
	return fmt.Errorf("hub: %w", err)
}

// shown is an address for people: without the query, which may hold a signature.
func shown(at *url.URL) string {
	short := url.URL{Scheme: at.Scheme, Host: at.Host, Path: at.Path}
	return short.String()
}

// plainText is text of a server, cut short and without anything that steers a terminal.
func plainText(text string) string {
	const limit = 300
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}
