package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestListReadsAllPages(t *testing.T) {
	h := newFakeHub(t, someFiles())
	for page := 1; page < 11; page += 3 {
		h.page = page
		h.set(nil)
		c, _ := h.client(t)
		l := list(t, c)
		if len(l.Files) != len(h.files) || l.Commit != testCommit || l.Revision != "main" {
			t.Fatalf("pages of %d: %+v", page, l)
		}
		for _, f := range l.Files {
			if data, ok := h.files[f.Path]; !ok || f.Size != int64(len(data)) || f.Hash != hashOf(data) {
				t.Errorf("pages of %d: %+v", page, f)
			}
		}
		if n := h.count("hub GET /api/models/Org/Tiny-1.5/tree/"); n != (len(h.files)+page-1)/page {
			t.Errorf("pages of %d: %d requests", page, n)
		}
	}
	c, _ := h.client(t)
	if l, err := c.List(t.Context(), testRepo, "refs/pr/1"); err != nil || l.Revision != "refs/pr/1" {
		t.Errorf("a revision with slashes: %+v, %v", l, err)
	}
}

func TestListExplainsRefusals(t *testing.T) {
	for _, c := range []struct {
		token  string
		code   int
		reason string
		says   []string
	}{
		{"", 401, "GatedRepo", []string{"is gated: ask for access at http", "/Org/Tiny-1.5, then set HF_TOKEN to a token from", "/settings/tokens"}},
		{"t", 403, "GatedRepo", []string{"ask for access at"}},
		{"t", 403, "", []string{"this token has no access to"}},
		{"", 401, "RepoNotFound", []string{"does not exist, or is private", "set HF_TOKEN"}},
		{"", 401, "", []string{"does not exist, or is private"}},
		{"t", 401, "", []string{"this token has no access to it", "HF_TOKEN"}},
		{"t", 404, "RepoNotFound", []string{"this token has no access to it"}},
		{"", 404, "RevisionNotFound", []string{`has no revision "v9"`, "/tree/main"}},
		{"", 410, "", []string{"answers 410 Gone: a   sentence"}},
	} {
		h := newFakeHub(t, someFiles())
		h.set(func(w http.ResponseWriter, _ *http.Request) bool {
			if c.reason != "" {
				w.Header().Set("X-Error-Code", c.reason)
			}
			w.Header().Set("X-Error-Message", "a \u009b sentence")
			w.WriteHeader(c.code)
			return true
		})
		client, clock := h.client(t)
		client.token = c.token
		_, err := client.List(t.Context(), testRepo, "v9")
		for _, part := range c.says {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%d %s: %v, want %q", c.code, c.reason, err, part)
			}
		}
		if len(h.seen()) != 1 || len(clock.list) != 0 {
			t.Errorf("%d %s was tried again: %v", c.code, c.reason, h.seen())
		}
	}
}

func TestListWaitsAsLongAsItIsTold(t *testing.T) {
	now := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		code          int
		header, value string
		wait          time.Duration // 0: our own
		fails         bool
	}{
		{429, "Retry-After", "7", 7 * time.Second, false},
		{503, "Retry-After", now.Add(90 * time.Second).Format(http.TimeFormat), 90 * time.Second, false},
		{429, "RateLimit", `"resolvers";r=0;t=55`, 55 * time.Second, false},
		{429, "RateLimit", `"resolvers";r=12;t=55`, 0, false},
		{503, "Retry-After", "-1", 0, false},
		{503, "Retry-After", now.Add(-time.Hour).Format(http.TimeFormat), 0, false},
		{502, "X-Nothing", "", 0, false},
		{429, "Retry-After", "3600", 0, true},
		{429, "Retry-After", "99999999999999999999", 0, false},
		{501, "Retry-After", "1", 0, true},
	} {
		h := newFakeHub(t, someFiles())
		h.set(func(w http.ResponseWriter, _ *http.Request) bool {
			if h.count("hub") > 1 {
				return false
			}
			w.Header().Set(c.header, c.value)
			w.WriteHeader(c.code)
			return true
		})
		client, clock := h.client(t)
		client.now = func() time.Time { return now }
		_, err := client.List(t.Context(), testRepo, "")
		if (err != nil) != c.fails {
			t.Errorf("%d %s %s: %v", c.code, c.header, c.value, err)
		}
		switch {
		case c.fails && len(clock.list) > 0, !c.fails && len(clock.list) != 1:
			t.Errorf("%d %s %s: waited %v", c.code, c.header, c.value, clock.list)
		case !c.fails && c.wait > 0 && clock.list[0] != c.wait, !c.fails && c.wait == 0 && (clock.list[0] < firstWait/2 || clock.list[0] > firstWait):
			t.Errorf("%d %s %s: waited %v", c.code, c.header, c.value, clock.list)
		}
	}
}

func TestListGivesUpAfterSomeTries(t *testing.T) {
	h := newFakeHub(t, someFiles())
	h.set(func(w http.ResponseWriter, _ *http.Request) bool {
		cut(w, http.StatusOK, 100, []byte("{"))
		return true
	})
	c, clock := h.client(t)
	_, err := c.List(t.Context(), testRepo, "")
	if err == nil || !strings.Contains(err.Error(), "/api/models/Org/Tiny-1.5/revision/main: the connection broke") {
		t.Error(err)
	}
	if len(h.seen()) != maxFailures || len(clock.list) != maxFailures-1 || !slices.IsSorted(clock.list) && clock.list[4] < clock.list[0] {
		t.Errorf("%d tries, waits %v", len(h.seen()), clock.list)
	}
}

func TestListWithoutANetwork(t *testing.T) {
	h := newFakeHub(t, nil)
	c, clock := h.client(t)
	h.main.Close()
	_, err := c.List(t.Context(), testRepo, "")
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), h.main.URL+"/api/models/Org/Tiny-1.5/revision/main is not reachable: dial") || len(clock.list) > 0 {
		t.Errorf("no server listens: %v, waits %v", err, clock.list)
	}
	c.endpoint.Host = "hub.invalid"
	if _, err = c.List(t.Context(), testRepo, ""); !errors.Is(err, ErrUnreachable) {
		t.Errorf("no such host: %v", err)
	}
	var dns *net.DNSError
	if !errors.As(err, &dns) {
		t.Errorf("the cause is lost: %v", err)
	}
	c.offline = true
	if _, err := c.List(t.Context(), testRepo, ""); !errors.Is(err, ErrOffline) {
		t.Errorf("offline: %v", err)
	}
	if _, err := c.Fetch(t.Context(), &Listing{Repo: testRepo, Commit: testCommit}, nil, nil); !errors.Is(err, ErrOffline) {
		t.Errorf("offline: %v", err)
	}
}

func TestListRefusesWhatNoHubSays(t *testing.T) {
	hash := strings.Repeat("a", 40)
	entry := func(path string) string {
		return fmt.Sprintf(`{"type":"file","path":%q,"oid":%q,"size":3}`, path, hash)
	}
	for tree, says := range map[string]string{
		`[` + entry("../../x") + `]`:                                    `file name "../../x" is not a path inside the repository`,
		`[` + entry("/etc/passwd") + `]`:                                "is not a path inside",
		`[` + entry("a/../../b") + `]`:                                  "is not a path inside",
		`[` + entry(`..\\x`) + `]`:                                      "is not a path inside",
		`[` + entry("c:x") + `]`:                                        "is not a path inside",
		`[` + entry("") + `]`:                                           "is not a path inside",
		`[` + entry(".") + `]`:                                          "is not a path inside",
		`[` + entry("a\\u001b[2J") + `]`:                                "is not a path inside",
		`[` + entry("a//b") + `]`:                                       "is not a path inside",
		`[` + entry("a") + "," + entry("a") + `]`:                       `"a" is listed twice`,
		`[{"type":"file","path":"a","oid":"../../../x","size":3}]`:      `has the hash "../../../x"`,
		`[{"type":"file","path":"a","oid":"` + hash + `","size":-3}]`:   "has a size of -3",
		`[{"type":"file","path":"a","oid":"` + hash + `","size":1e30}]`: "does not answer like a hub",
		`[{"type":"file","path":"a","oid":"` + hash + `","size":1,"lfs":{"oid":"` + hash + `","size":1}}]`: "has the hash",
		`[{"type":"file","path":"a","oid":"` + strings.Repeat("a", 64) + `","size":1}]`:                    "has the hash",
		`[{"type":"file","path":"a","oid":"` + hash + `","size":9223372036854775807},` + entry("b") + `]`:  "sum of the file sizes overflows",
		`{"error":"no"}`:                 "does not answer like a hub",
		`<html>`:                         "does not answer like a hub",
		strings.Repeat(" ", maxAnswer+1): "the answer has more than",
	} {
		h := newFakeHub(t, someFiles())
		h.set(func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/tree/") {
				_, _ = w.Write([]byte(strings.ReplaceAll(tree, `\\u`, `\u`)))
			}
			return strings.Contains(r.URL.Path, "/tree/")
		})
		c, _ := h.client(t)
		if _, err := c.List(t.Context(), testRepo, ""); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.100s: %v, want %q", tree, err, says)
		}
	}
}

func TestListEndsThoughThePagesDoNot(t *testing.T) {
	h := newFakeHub(t, someFiles())
	h.set(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/tree/") {
			return false
		}
		w.Header().Set("Link", `<?cursor=1>; rel="next"`)
		_, _ = w.Write([]byte("[]"))
		return true
	})
	c, _ := h.client(t)
	if _, err := c.List(t.Context(), testRepo, ""); err == nil || !strings.Contains(err.Error(), "does not end") {
		t.Error(err)
	}
	h.set(func(w http.ResponseWriter, _ *http.Request) bool {
		_, _ = w.Write([]byte(`{"sha":"../../x"}`))
		return true
	})
	if _, err := c.List(t.Context(), testRepo, ""); err == nil || !strings.Contains(err.Error(), `gives "../../x" as the commit`) {
		t.Error(err)
	}
	if _, err := c.List(t.Context(), testRepo, "../x"); err == nil || !strings.Contains(err.Error(), "want a branch") {
		t.Error(err)
	}
}

func TestNewRefusesBadOptions(t *testing.T) {
	for says, o := range map[string]Options{
		"no cache":                       {},
		"want an address such as https:": {Cache: "x", Endpoint: "huggingface.co"},
		`endpoint "ftp://x"`:             {Cache: "x", Endpoint: "ftp://x"},
		"invalid characters":             {Cache: "x", Token: "a\nb"},
		"65 connections, want 1 to 64":   {Cache: "x", Parallel: 65},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", o, err, says)
		}
	}
}

// FuzzListing checks that an accepted listing satisfies the assumptions of its users.
func FuzzListing(f *testing.F) {
	f.Add([]byte(`[{"type":"file","path":"config.json","oid":"05c6e9dfec32e8fee1aaaa5c0a94ad2c9736f878","size":24}]`))
	f.Add([]byte(`[{"type":"file","path":"mtp/w","oid":"","size":1,"lfs":{"oid":"` + strings.Repeat("0", 64) + `","size":9}},{"type":"directory","path":".."}]`))
	f.Add([]byte(`[{"type":"file","path":"..\\..\\x"},{"type":"file","path":"a:b"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var entries []treeEntry
		if json.Unmarshal(data, &entries) != nil {
			return
		}
		files, err := filesOf(entries)
		if err != nil {
			return
		}
		l := &Listing{Repo: testRepo, Files: files}
		if l.check() != nil {
			return
		}
		for _, file := range l.Files {
			if file.Size < 0 || strings.HasPrefix(file.Path, "/") || slices.Contains(strings.FieldsFunc(file.Path, func(r rune) bool { return r == '/' || r == '\\' }), "..") || len(file.Hash) < 40 {
				t.Errorf("%+v", file)
			}
		}
		_, _ = l.Choose(nil, []string{"*.bin"})
	})
}
