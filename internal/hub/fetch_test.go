package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/filetest"
)

func TestFetchLaysOutTheCacheAsTheHubsOwnClient(t *testing.T) {
	h := newFakeHub(t, someFiles())
	c, _ := h.client(t)
	l := list(t, c)
	files, err := l.Choose(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := map[string]int64{}
	folder, err := c.Fetch(t.Context(), l, files, func(e Event) { done[e.File.Path] = e.Done })
	if err != nil {
		t.Fatal(err)
	}
	if folder != filepath.Join(root(c), "snapshots", testCommit) {
		t.Errorf("the folder is %s", folder)
	}
	arrived(t, c, h, files)
	for _, f := range files {
		if done[f.Path] != f.Size {
			t.Errorf("%s: %d bytes of %d are reported", f.Path, done[f.Path], f.Size)
		}
	}
	for link, want := range map[string]string{
		"model.safetensors": "../../blobs/" + hashOf(h.files["model.safetensors"]),
		"config.json":       "../../blobs/" + hashOf(h.files["config.json"]),
		"mtp/manifest.json": "../../../blobs/e69de29bb2d1d6434b8b29ae775ad8c2e48c5391", // git's empty blob
	} {
		if target, err := os.Readlink(filepath.Join(folder, link)); err != nil || target != want {
			t.Errorf("%s leads to %s, want %s: %v", link, target, want, err)
		}
	}
	if ref, err := os.ReadFile(filepath.Join(root(c), "refs", "main")); err != nil || string(ref) != testCommit {
		t.Errorf("refs/main is %q, %v", ref, err)
	}
	if lock := filepath.Join(string(c.cache), ".locks", "models--Org--Tiny-1.5", hashOf(h.files["config.json"])+".lock"); !hasSize(lock, 0) {
		t.Errorf("there is no lock %s", lock)
	}
	if len(h.leaks) > 0 {
		t.Errorf("the token was sent to the store: %v", h.leaks)
	}
	before := len(h.seen())
	if _, err := c.Fetch(t.Context(), l, files, nil); err != nil || len(h.seen()) != before {
		t.Errorf("fetching what is there: %v, requests %v", err, h.seen()[before:])
	}
}

func TestFetchSurvivesCutConnections(t *testing.T) {
	h := newFakeHub(t, someFiles())
	model := h.files["model.safetensors"]
	var mu sync.Mutex
	cuts := map[string]int{}
	h.set(func(w http.ResponseWriter, r *http.Request) bool {
		var first, last int
		if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); n != 2 || r.URL.Path != "/"+hashOf(model) {
			return false
		}
		mu.Lock()
		cuts[fmt.Sprint(last)]++
		n := cuts[fmt.Sprint(last)]
		mu.Unlock()
		if n > 3 || first == last {
			return false
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(model)))
		cut(w, http.StatusPartialContent, last-first+1, model[first:(first+last)/2])
		return true
	})
	c, clock := h.client(t)
	l := list(t, c)
	files := only(t, l, "model.safetensors")
	retried := 0
	if _, err := c.Fetch(t.Context(), l, files, func(e Event) {
		if e.State == Retrying && strings.Contains(e.Err.Error(), "the connection broke") {
			retried++
		}
	}); err != nil {
		t.Fatal(err)
	}
	arrived(t, c, h, files)
	if retried != 3*8 || len(clock.list) != retried {
		t.Errorf("%d retries and %d waits for 8 parts with 3 cuts each", retried, len(clock.list))
	}
	if n := h.count("store GET /" + hashOf(model) + " bytes=0-999"); n != 1 {
		t.Errorf("the first bytes were asked for %d times: what arrives is to be kept", n)
	}
}

// A part that never arrives whole ends the attempt; earlier parts stay for the next.
func TestFetchInterruptedLeavesAPrefix(t *testing.T) {
	h := newFakeHub(t, someFiles())
	model := h.files["model.safetensors"]
	for name, interrupt := range map[string]func(cancel context.CancelFunc, w http.ResponseWriter){
		"canceled": func(cancel context.CancelFunc, w http.ResponseWriter) {
			cancel()
			http.Error(w, "", http.StatusServiceUnavailable)
		},
		"failed": func(_ context.CancelFunc, w http.ResponseWriter) { http.Error(w, "", http.StatusNotImplemented) },
	} {
		c, _ := h.client(t)
		ctx, cancel := context.WithCancel(t.Context())
		var before sync.WaitGroup // parts before the failing one
		before.Add(4)
		h.set(func(w http.ResponseWriter, r *http.Request) bool {
			switch span := r.Header.Get("Range"); {
			case strings.HasPrefix(span, "bytes=4000-"):
				before.Wait()
				interrupt(cancel, w)
				return true
			case span != "" && len(span) == len("bytes=1000-1999") && span < "bytes=4" || span == "bytes=0-999":
				before.Done()
			}
			return false
		})
		l := list(t, c)
		files := only(t, l, "model.safetensors")
		_, err := c.Fetch(ctx, l, files, nil)
		if err == nil || name == "canceled" && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		partial, err := os.ReadFile(filepath.Join(root(c), "blobs", hashOf(model)+".incomplete"))
		if err != nil || len(partial) > 4000 || !bytes.HasPrefix(model, partial) {
			t.Fatalf("%s: the partial file has %d bytes, a prefix: %v, %v", name, len(partial), bytes.HasPrefix(model, partial), err)
		}
		if name == "failed" && len(partial) != 4000 {
			t.Errorf("%s: %d bytes are kept, want 4000", name, len(partial))
		}
		h.set(nil)
		if _, err := c.Fetch(t.Context(), l, files, nil); err != nil {
			t.Fatal(err)
		}
		arrived(t, c, h, files)
		for _, r := range h.seen() {
			var first int
			_, span, _ := strings.Cut(r, " bytes=")
			if n, _ := fmt.Sscanf(span, "%d-", &first); n == 1 && first < len(partial) {
				t.Errorf("%s: %s was sent though %d bytes were there", name, r, len(partial))
			}
		}
	}
}

// The next Fetch completes whatever a killed program left.
func TestFetchGoesOnFromWhatAKilledProgramLeft(t *testing.T) {
	h := newFakeHub(t, someFiles())
	model := h.files["model.safetensors"]
	for name, c := range map[string]struct {
		file string // in blobs, after the hash
		data []byte
		gets int
	}{
		"nothing written":     {".incomplete", nil, 8},
		"a prefix":            {".incomplete", model[:2500], 5},
		"not renamed":         {".incomplete", model, 0},
		"not linked":          {"", model, 0},
		"blob cut by a crash": {"", model[:100], 8},
		"another prefix":      {".incomplete", bytes.Repeat([]byte{'x'}, 2500), 5 + 8},
		"too long":            {".incomplete", append(bytes.Clone(model), 0), 8},
		"another client's":    {".1a2b3c4d.incomplete", model[:10], 8},
	} {
		client, _ := h.client(t)
		blobs := filepath.Join(root(client), "blobs")
		if err := errors.Join(os.MkdirAll(blobs, 0o777), os.WriteFile(filepath.Join(blobs, hashOf(model)+c.file), c.data, 0o666)); err != nil {
			t.Fatal(err)
		}
		l := list(t, client)
		files := only(t, l, "model.safetensors")
		h.set(nil)
		if _, err := client.Fetch(t.Context(), l, files, nil); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if name == "another client's" {
			if err := os.Remove(filepath.Join(blobs, hashOf(model)+c.file)); err != nil {
				t.Errorf("%s was touched: %v", name, err)
			}
		}
		arrived(t, client, h, files)
		if n := h.count("store GET"); n != c.gets {
			t.Errorf("%s: %d parts were fetched, want %d", name, n, c.gets)
		}
	}
}

func TestFetchRefusesLies(t *testing.T) {
	model := someFiles()["model.safetensors"]
	honest := func(w http.ResponseWriter, data []byte, span string) {
		w.Header().Set("Content-Range", span)
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(data)
	}
	for name, c := range map[string]struct {
		lie  func(w http.ResponseWriter, r *http.Request) // of the store
		says string
	}{
		"other bytes": {
			func(w http.ResponseWriter, r *http.Request) {
				var first, last int
				_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last)
				honest(w, bytes.Repeat([]byte{'x'}, last-first+1), fmt.Sprintf("bytes %d-%d/7500", first, last))
			},
			"has the hash",
		},
		"longer by its length": {
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", "2000")
				honest(w, model[:2000], strings.Replace(r.Header.Get("Range"), "=", " ", 1)+"/7500")
			},
			"sends more than the",
		},
		"longer without a length": {
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Range", strings.Replace(r.Header.Get("Range"), "=", " ", 1)+"/7500")
				w.WriteHeader(http.StatusPartialContent)
				_ = http.NewResponseController(w).Flush()
				_, _ = w.Write(model[:2000])
			},
			"sends more than the",
		},
		"always too short": {
			func(w http.ResponseWriter, _ *http.Request) {
				cut(w, http.StatusPartialContent, 1000, nil)
			},
			"want \"bytes ",
		},
		"shorter than its length": {
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Range", strings.Replace(r.Header.Get("Range"), "=", " ", 1)+"/7500")
				cut(w, http.StatusPartialContent, 1000, nil)
			},
			"the connection broke",
		},
		"another file": {
			func(w http.ResponseWriter, r *http.Request) {
				honest(w, model[:1000], strings.Replace(r.Header.Get("Range"), "=", " ", 1)+"/9999")
			},
			`/9999", want "bytes `,
		},
		"another part": {
			func(w http.ResponseWriter, _ *http.Request) { honest(w, model[:1000], "bytes 1-1000/7500") },
			`sends "bytes 1-1000/7500", want`,
		},
		"no parts": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(model) },
			"answers 200 OK instead of the requested part",
		},
		"a circle": {
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) },
			"more than 10 redirects",
		},
		"another protocol": {
			func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
			},
			`redirects to "file:///etc/passwd"`,
		},
	} {
		h := newFakeHub(t, someFiles())
		h.set(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.URL.Path, "/"+hashOf(model)) {
				return false
			}
			c.lie(w, r)
			return true
		})
		client, _ := h.client(t)
		l := list(t, client)
		_, err := client.Fetch(t.Context(), l, only(t, l, "model.safetensors"), nil)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
			continue
		}
		if strings.Contains(err.Error(), "signature") {
			t.Errorf("%s: a signed address is shown: %v", name, err)
		}
		if left, _ := os.ReadFile(filepath.Join(root(client), "blobs", hashOf(model)+".incomplete")); len(left) > len(model) {
			t.Errorf("%s: %d bytes were written", name, len(left))
		}
		_ = os.Remove(filepath.Join(root(client), "blobs", hashOf(model)+".incomplete")) // there after some of them
		nothingOf(t, client)
	}
}

// The hub names another file than it listed: nothing of it is requested.
func TestFetchHoldsTheHubToItsList(t *testing.T) {
	for header, value := range map[string]string{"X-Linked-Size": "7501", "X-Linked-Etag": `"` + strings.Repeat("0", 64) + `"`} {
		h := newFakeHub(t, someFiles())
		h.set(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodHead {
				w.Header().Set(header, value)
				http.Redirect(w, r, h.store.URL, http.StatusFound)
			}
			return r.Method == http.MethodHead
		})
		c, _ := h.client(t)
		l := list(t, c)
		_, err := c.Fetch(t.Context(), l, only(t, l, "model.safetensors"), nil)
		if err == nil || !strings.Contains(err.Error(), "is listed with 7500 bytes") || h.count("store") > 0 {
			t.Errorf("%s: %v, requests %v", header, err, h.seen())
		}
	}
}

// A gated repository can be listed without access; its files cannot be fetched.
func TestFetchExplainsAGate(t *testing.T) {
	h := newFakeHub(t, someFiles())
	c, _ := h.client(t)
	l := list(t, c)
	h.set(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("X-Error-Code", "GatedRepo")
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	_, err := c.Fetch(t.Context(), l, only(t, l, "model.safetensors"), nil)
	if err == nil || !strings.Contains(err.Error(), "ask for access at") || h.count("store") > 0 || len(h.seen()) > 3 {
		t.Errorf("with a token: %v, requests %v", err, h.seen())
	}
	c.token = ""
	if _, err = c.Read(t.Context(), l, only(t, l, "config.json")[0], 100); err == nil || !strings.Contains(err.Error(), "then set HF_TOKEN") {
		t.Errorf("without: %v", err)
	}
}

func TestFetchAsksAgainWhenAnAddressExpires(t *testing.T) {
	h := newFakeHub(t, someFiles())
	h.set(func(w http.ResponseWriter, r *http.Request) bool {
		if s := r.URL.Query().Get("signature"); s == "1" || s == "2" && r.Header.Get("Range") == "bytes=7000-7499" {
			http.Error(w, "expired", http.StatusForbidden)
			return true
		}
		return false
	})
	c, _ := h.client(t)
	l := list(t, c)
	files := only(t, l, "model.safetensors")
	if _, err := c.Fetch(t.Context(), l, files, nil); err != nil {
		t.Fatal(err)
	}
	arrived(t, c, h, files)
	if h.signed != 3 {
		t.Errorf("%d addresses were asked for, want one for all parts and two after they had expired", h.signed)
	}
}

func TestFetchGivesUpAStalledConnection(t *testing.T) {
	h := newFakeHub(t, someFiles())
	var once sync.Once
	h.set(func(_ http.ResponseWriter, r *http.Request) (hung bool) {
		if r.Header.Get("Range") == "bytes=1000-1999" {
			once.Do(func() {
				<-r.Context().Done()
				hung = true
			})
		}
		return hung
	})
	c, _ := h.client(t)
	l := list(t, c)
	files := only(t, l, "model.safetensors")
	c.stall = time.Second // if a busy machine stalls longer, the request is only retried
	var seen []error
	if _, err := c.Fetch(t.Context(), l, files, func(e Event) {
		if e.State == Retrying {
			seen = append(seen, e.Err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	arrived(t, c, h, files)
	if len(seen) == 0 || !errors.Is(seen[0], errStalled) {
		t.Errorf("retried because of %v", seen)
	}
}

// Many at once, in this process and by different clients: each blob comes once.
func TestFetchOfManyFetchesOnce(t *testing.T) {
	h := newFakeHub(t, someFiles())
	first, _ := h.client(t)
	l := list(t, first)
	files, err := l.Choose(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 4 {
		c, err := New(Options{Cache: string(first.cache), Endpoint: h.main.URL, Token: testToken, Parallel: 2})
		if err != nil {
			t.Fatal(err)
		}
		c.chunk = testChunk
		c.sleep = func(ctx context.Context, _ time.Duration) error { return sleep(ctx, time.Millisecond) }
		group.Go(func() {
			if _, err := c.Fetch(t.Context(), l, files, nil); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	arrived(t, first, h, files)
	if n := h.count("store GET"); n != 8+2 {
		t.Errorf("%d parts were fetched, want 10", n)
	}
}

func TestFetchWaitsForAnotherProgram(t *testing.T) {
	h := newFakeHub(t, someFiles())
	c, clock := h.client(t)
	l := list(t, c)
	files := only(t, l, "config.json")
	path := filepath.Join(string(c.cache), ".locks", "models--Org--Tiny-1.5", files[0].Hash+".lock")
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	other, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if locked, err := tryLock(other); !locked || err != nil {
		t.Fatal(locked, err)
	}
	c.sleep = func(ctx context.Context, d time.Duration) error {
		if d != lockPoll {
			t.Errorf("waits for %v", d)
		}
		_ = os.Remove(path) // as some clients do: the next one must not lock a deleted file
		_ = other.Close()
		return clock.sleep(ctx, d)
	}
	var states []State
	if _, err := c.Fetch(t.Context(), l, files, func(e Event) { states = append(states, e.State) }); err != nil {
		t.Fatal(err)
	}
	arrived(t, c, h, files)
	if states[0] != Waiting || states[len(states)-1] != Finished || len(clock.list) != 1 {
		t.Errorf("states %v, waits %v", states, clock.list)
	}
}

func TestFetchWithoutLinks(t *testing.T) {
	h := newFakeHub(t, someFiles())
	c, _ := h.client(t)
	l := list(t, c)
	files := only(t, l, "model.safetensors")
	if _, err := c.Fetch(t.Context(), l, files, nil); err != nil {
		t.Fatal(err)
	}
	blob := filepath.Join(root(c), "blobs", files[0].Hash)
	c.symlink = func(string, string) error { return syscall.EPERM }
	pointer := filepath.Join(root(c), "snapshots", testCommit, "model.safetensors")
	for _, step := range []struct {
		name       string
		before     []string // what is removed
		blob       bool     // whether there is one after
		storeParts int
	}{
		{"of a blob that others lead to", []string{pointer}, true, 0},
		{"of a fresh blob", []string{pointer, blob}, false, 8},
		{"of nothing", nil, false, 0},
	} {
		for _, path := range step.before {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		h.set(nil)
		if _, err := c.Fetch(t.Context(), l, files, nil); err != nil {
			t.Fatal(err)
		}
		arrived(t, c, h, files)
		if info, err := os.Lstat(pointer); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s: %v, %v", step.name, info.Mode(), err)
		}
		if hasSize(blob, files[0].Size) != step.blob || h.count("store GET") != step.storeParts {
			t.Errorf("%s: blob is there: %v, parts fetched %d", step.name, !step.blob, h.count("store GET"))
		}
	}
}

func TestFetchNeedsRoom(t *testing.T) {
	h := newFakeHub(t, someFiles())
	c, _ := h.client(t)
	l := list(t, c)
	huge := []File{{Path: "huge", Size: 1 << 60, Hash: strings.Repeat("0", 64)}}
	_, err := c.Fetch(t.Context(), l, huge, nil)
	if err == nil || !strings.Contains(err.Error(), "needs 1152921504.61 GB more") || !strings.Contains(err.Error(), "HF_HUB_CACHE") {
		t.Errorf("2^60 bytes: %v", err)
	}
	for cause, says := range map[error]string{
		syscall.ENOSPC: "is full: free some space and fetch again",
		syscall.EACCES: "is not writable: change its permissions, or set HF_HUB_CACHE",
	} {
		if err := Cache("x").diskError(&os.PathError{Op: "write", Path: "y", Err: cause}); !strings.Contains(err.Error(), says) || !errors.Is(err, cause) {
			t.Errorf("%v: %v", cause, err)
		}
	}
}

func TestFetchWhereThereIsAFileInTheWay(t *testing.T) {
	h := newFakeHub(t, someFiles())
	c, _ := h.client(t)
	l := list(t, c)
	filetest.Write(t, root(c), "")
	if _, err := c.Fetch(t.Context(), l, l.Files, nil); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a file in place of the folder: %v", err)
	}
}

func TestReadVerifiesAndBounds(t *testing.T) {
	h := newFakeHub(t, someFiles())
	c, _ := h.client(t)
	l := list(t, c)
	config := only(t, l, "config.json")
	data, err := c.Read(t.Context(), l, config[0], 100)
	if err != nil || !bytes.Equal(data, h.files["config.json"]) {
		t.Errorf("config.json: %q, %v", data, err)
	}
	nothingOf(t, c)
	if _, err := c.Read(t.Context(), l, config[0], 5); err == nil || !strings.Contains(err.Error(), "want at most 5") {
		t.Errorf("more than the limit: %v", err)
	}
	config[0].Hash = strings.Repeat("0", 40)
	if _, err := c.Read(t.Context(), l, config[0], 100); err == nil || !strings.Contains(err.Error(), "has the hash") {
		t.Errorf("another hash: %v", err)
	}
}

// BenchmarkFetch is from a server in the same process, hash and disk included.
func BenchmarkFetch(b *testing.B) {
	data := pattern(64 << 20)
	h := newFakeHub(b, map[string][]byte{"model.safetensors": data})
	file := File{Path: "model.safetensors", Size: int64(len(data)), Hash: hashOf(data)}
	l := &Listing{Repo: testRepo, Revision: testCommit, Commit: testCommit, Files: []File{file}}
	for _, parallel := range []int{1, 8} {
		b.Run(fmt.Sprintf("parallel=%d", parallel), func(b *testing.B) {
			b.SetBytes(file.Size)
			for b.Loop() {
				c, err := New(Options{Cache: b.TempDir(), Endpoint: h.main.URL, Token: testToken, Parallel: parallel})
				if err == nil {
					_, err = c.Fetch(b.Context(), l, l.Files, nil)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
