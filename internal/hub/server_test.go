package hub

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	testRepo   = Repo("Org/Tiny-1.5")
	testCommit = "0123456789abcdef0123456789abcdef01234567"
	testToken  = "hf_secret"
	largeFrom  = 600  // bytes from which the fake hub stores files elsewhere
	testChunk  = 1000 // bytes of a part
)

// fakeHub behaves as the hub does: lists in pages, small files on itself by way of a
// redirect, large ones on a second server by way of another.
type fakeHub struct {
	main, store *httptest.Server
	files       map[string][]byte
	hashes      map[string]string // of the files, by path
	page        int               // entries of a page

	mu sync.Mutex // protects what follows
	// fault, if not nil, may answer a request in place of the server.
	fault    func(w http.ResponseWriter, r *http.Request) bool
	requests []string // "hub GET /path" or "store GET /path bytes=0-9"
	leaks    []string // tokens that the store was sent
	signed   int      // number of addresses given out
}

func newFakeHub(t testing.TB, files map[string][]byte) *fakeHub {
	t.Helper()
	h := &fakeHub{files: files, hashes: map[string]string{}, page: 2}
	for path, data := range files {
		h.hashes[path] = hashOf(data)
	}
	h.main = httptest.NewServer(http.HandlerFunc(h.serveMain))
	h.store = httptest.NewServer(http.HandlerFunc(h.serveStore))
	t.Cleanup(h.main.Close)
	t.Cleanup(h.store.Close)
	return h
}

// someFiles are a small model: two files that are large here, and one that is empty.
func someFiles() map[string][]byte {
	return map[string][]byte{
		"config.json":         []byte(`{"model_type":"qwen3_5"}`),
		"tokenizer.json":      bytes.Repeat([]byte("tokens "), 60),
		"model.safetensors":   pattern(7500),
		"mtp.safetensors":     pattern(1234),
		"mtp/manifest.json":   {},
		"pytorch_model.bin":   pattern(3000),
		"README.md":           []byte("# Tiny"),
		"onnx/config.json":    []byte("{}"),
		"chat_template.jinja": []byte("{{ messages }}"),
	}
}

// pattern is n bytes in which no two parts are alike.
func pattern(n int) []byte {
	b := make([]byte, 0, n+8)
	for i := 0; len(b) < n; i++ {
		b = fmt.Appendf(b, "%d,", i*i)
	}
	return b[:n]
}

func hashOf(data []byte) string {
	if len(data) >= largeFrom {
		return fmt.Sprintf("%x", sha256.Sum256(data))
	}
	return fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(data), data)))
}

// set changes the fault, and forgets the requests there were.
func (h *fakeHub) set(fault func(w http.ResponseWriter, r *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault, h.requests = fault, nil
}

// faulty reports whether the fault answered.
func (h *fakeHub) faulty(w http.ResponseWriter, r *http.Request) bool {
	h.mu.Lock()
	fault := h.fault
	h.mu.Unlock()
	return fault != nil && fault(w, r)
}

func (h *fakeHub) note(where string, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", where, r.Method, r.URL.Path, r.Header.Get("Range"))))
}

// seen are the requests so far. Those of a canceled call may still be coming in.
func (h *fakeHub) seen() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.requests)
}

// count is how many requests began so.
func (h *fakeHub) count(prefix string) int {
	n := 0
	for _, r := range h.seen() {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

func (h *fakeHub) serveMain(w http.ResponseWriter, r *http.Request) {
	h.note("hub", r)
	if h.faulty(w, r) {
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+testToken {
		w.Header().Set("X-Error-Code", "RepoNotFound")
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	api := "/api/models/" + string(testRepo)
	resolve := "/" + string(testRepo) + "/resolve/" + testCommit + "/"
	cached := "/api/resolve-cache/"
	path := r.URL.Path
	switch {
	case path == api+"/revision/main" || path == api+"/revision/refs/pr/1" || path == api+"/revision/"+testCommit:
		_, _ = fmt.Fprintf(w, `{"id":%q,"sha":%q,"gated":false}`, testRepo, testCommit)
	case path == api+"/tree/"+testCommit:
		h.serveTree(w, r)
	case strings.HasPrefix(path, resolve) && h.files[path[len(resolve):]] != nil:
		name := path[len(resolve):]
		data := h.files[name]
		w.Header().Set("X-Repo-Commit", testCommit)
		if len(data) < largeFrom {
			http.Redirect(w, r, cached+name, http.StatusTemporaryRedirect)
			return
		}
		w.Header().Set("X-Linked-Etag", strconv.Quote(h.hashes[name]))
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(data)))
		h.mu.Lock()
		h.signed++
		signature := h.signed
		h.mu.Unlock()
		http.Redirect(w, r, fmt.Sprintf("%s/%s?signature=%d", h.store.URL, h.hashes[name], signature), http.StatusFound)
	case strings.HasPrefix(path, cached) && h.files[path[len(cached):]] != nil:
		data := h.files[path[len(cached):]]
		w.Header().Set("ETag", `W/"`+h.hashes[path[len(cached):]]+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	default:
		w.Header().Set("X-Error-Code", "EntryNotFound")
		http.NotFound(w, r)
	}
}

func (h *fakeHub) serveTree(w http.ResponseWriter, r *http.Request) {
	names := slices.Sorted(maps.Keys(h.files))
	at, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	entries := []map[string]any{{"type": "directory", "path": "mtp", "oid": strings.Repeat("a", 40), "size": 0}}
	for _, name := range names[at:min(at+h.page, len(names))] {
		data := h.files[name]
		e := map[string]any{"type": "file", "path": name, "oid": strings.Repeat("b", 40), "size": len(data)}
		if hash := h.hashes[name]; len(data) >= largeFrom {
			e["lfs"] = map[string]any{"oid": hash, "size": len(data), "pointerSize": 134}
		} else {
			e["oid"] = hash
		}
		entries = append(entries, e)
	}
	if at += h.page; at < len(names) && r.URL.Query().Get("recursive") == "true" {
		w.Header().Set("Link", fmt.Sprintf(`<https://mirrored.example%s?cursor=%d&recursive=true>; rel="next"`, r.URL.Path, at))
	}
	_ = json.NewEncoder(w).Encode(entries)
}

func (h *fakeHub) serveStore(w http.ResponseWriter, r *http.Request) {
	h.note("store", r)
	if token := r.Header.Get("Authorization"); token != "" {
		h.mu.Lock()
		h.leaks = append(h.leaks, token)
		h.mu.Unlock()
	}
	if h.faulty(w, r) {
		return
	}
	for path, data := range h.files {
		if r.URL.Path == "/"+h.hashes[path] && r.URL.Query().Has("signature") && r.Method == http.MethodGet {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
			return
		}
	}
	http.Error(w, "no such file", http.StatusForbidden)
}

// cut sends the first part of an answer and breaks the connection.
func cut(w http.ResponseWriter, status, length int, part []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(length))
	w.WriteHeader(status)
	_, _ = w.Write(part)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// waits is a clock that does not wait but remembers for how long it was to.
type waits struct {
	mu   sync.Mutex // protects what follows
	list []time.Duration
}

func (w *waits) sleep(ctx context.Context, d time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, d)
	return ctx.Err()
}

// client is a client of the fake hub with an empty cache, small parts and no patience.
func (h *fakeHub) client(t *testing.T) (*Client, *waits) {
	t.Helper()
	c, err := New(Options{Cache: t.TempDir(), Endpoint: h.main.URL + "/", Token: testToken, Parallel: 3})
	if err != nil {
		t.Fatal(err)
	}
	clock := &waits{}
	c.chunk, c.sleep = testChunk, clock.sleep
	return c, clock
}

// list asks for main.
func list(t *testing.T, c *Client) *Listing {
	t.Helper()
	l, err := c.List(t.Context(), testRepo, "")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// only is the listed file of a path.
func only(t *testing.T, l *Listing, path string) []File {
	t.Helper()
	i := slices.IndexFunc(l.Files, func(f File) bool { return f.Path == path })
	if i < 0 {
		t.Fatalf("%s is not listed", path)
	}
	return []File{l.Files[i]}
}

// root is the folder of the test's repository.
func root(c *Client) string { return filepath.Join(string(c.cache), "models--Org--Tiny-1.5") }

// arrived demands that the snapshot holds the files and nothing is left over.
func arrived(t *testing.T, c *Client, h *fakeHub, files []File) {
	t.Helper()
	for _, f := range files {
		path := filepath.Join(root(c), "snapshots", testCommit, filepath.FromSlash(f.Path))
		if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, h.files[f.Path]) {
			t.Errorf("%s: %d bytes of %d, %v", f.Path, len(data), len(h.files[f.Path]), err)
		}
	}
	left, err := filepath.Glob(filepath.Join(root(c), "*", "*incomplete"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// nothingOf demands that no blob has appeared under its final name.
func nothingOf(t *testing.T, c *Client) {
	t.Helper()
	for _, pattern := range []string{"blobs/*", "snapshots/*/*", "refs/*"} {
		found, err := filepath.Glob(filepath.Join(root(c), pattern))
		if err != nil || len(found) > 0 {
			t.Errorf("%v is there, %v", found, err)
		}
	}
}
