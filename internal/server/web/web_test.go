package web

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// maxBytes is what the whole page may weigh before it is packed.
const maxBytes = 160_000

func ask(t *testing.T, method, target string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w.Result()
}

func read(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	reference = regexp.MustCompile(`(?:href|src)="([^"#]+)"`)
	imported  = regexp.MustCompile(`(?m)^(?:import|export) .*from "\./([^"]+)";$`)
)

// follow visits every file that the page leads to, by path.
func follow(t *testing.T) map[string]string {
	t.Helper()
	index := ask(t, http.MethodGet, "/")
	if index.StatusCode != http.StatusOK {
		t.Fatalf("/ answers %d", index.StatusCode)
	}
	found := map[string]string{"/": read(t, index)}
	var next []string
	for _, m := range reference.FindAllStringSubmatch(found["/"], -1) {
		next = append(next, "/"+m[1])
	}
	for len(next) > 0 {
		name := next[0]
		next = next[1:]
		if _, ok := found[name]; ok {
			continue
		}
		r := ask(t, http.MethodGet, name)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("%s answers %d", name, r.StatusCode)
		}
		found[name] = read(t, r)
		for _, m := range imported.FindAllStringSubmatch(found[name], -1) {
			next = append(next, path.Join(path.Dir(name), m[1]))
		}
	}
	return found
}

func TestHandlerServesAllThatThePageNeedsAndNothingElse(t *testing.T) {
	found := follow(t)
	assets, err := fs.Glob(files, "page/assets/*")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != len(assets)+1 {
		t.Errorf("the page leads to %d files and %d are embedded", len(found)-1, len(assets))
	}
	total := 0
	for name, content := range found {
		total += len(content)
		if kind := ask(t, http.MethodGet, name).Header.Get("Content-Type"); kind == "" {
			t.Errorf("%s has no content type", name)
		}
	}
	t.Logf("%d bytes of %d", total, maxBytes)
	if total > maxBytes {
		t.Errorf("the page has %d bytes, at most %d", total, maxBytes)
	}
	for target, status := range map[string]int{
		"/index.html": http.StatusNotFound, "/assets/": http.StatusNotFound, "/assets/app.js": http.StatusNotFound,
		"/../web.go": http.StatusNotFound, "/v1/models": http.StatusNotFound,
	} {
		if r := ask(t, http.MethodGet, target); r.StatusCode != status {
			t.Errorf("%s answers %d, not %d", target, r.StatusCode, status)
		}
	}
	if r := ask(t, http.MethodPost, "/"); r.StatusCode != http.StatusMethodNotAllowed || r.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST / answers %d and allows %q", r.StatusCode, r.Header.Get("Allow"))
	}
}

func TestHandlerLetsBrowsersKeepFiles(t *testing.T) {
	for name := range follow(t) {
		want := "public, max-age=31536000, immutable"
		if name == "/" {
			want = "no-cache"
		}
		for _, coding := range []string{"", "br, gzip;q=0.5", "gzip;q=0"} {
			first := ask(t, http.MethodGet, name, "Accept-Encoding", coding)
			etag := first.Header.Get("ETag")
			if got := first.Header.Get("Cache-Control"); got != want || etag == "" {
				t.Errorf("%s: Cache-Control %q, ETag %q", name, got, etag)
			}
			again := ask(t, http.MethodGet, name, "Accept-Encoding", coding, "If-None-Match", `"other", W/`+etag)
			if again.StatusCode != http.StatusNotModified || read(t, again) != "" {
				t.Errorf("%s: a known file answers %d", name, again.StatusCode)
			}
			if other := ask(t, http.MethodGet, name, "Accept-Encoding", coding, "If-None-Match", `"other"`); other.StatusCode != http.StatusOK {
				t.Errorf("%s: an unknown file answers %d", name, other.StatusCode)
			}
		}
	}
}

func TestHandlerPacksTheSameContent(t *testing.T) {
	for name, plain := range follow(t) {
		r := ask(t, http.MethodGet, name, "Accept-Encoding", "gzip")
		if r.Header.Get("Content-Encoding") != "gzip" || r.Header.Get("Vary") != "Accept-Encoding" {
			t.Fatalf("%s: encoding %q, vary %q", name, r.Header.Get("Content-Encoding"), r.Header.Get("Vary"))
		}
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(unpacked)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(content, []byte(plain)) {
			t.Errorf("%s: packed and plain differ", name)
		}
		if ask(t, http.MethodGet, name).Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: packed for a client that did not ask", name)
		}
		head := ask(t, http.MethodHead, name)
		if read(t, head) != "" || head.ContentLength != int64(len(plain)) {
			t.Errorf("%s: HEAD announces %d bytes of %d, or sends them", name, head.ContentLength, len(plain))
		}
	}
}

// What a model writes is text. The policy stops a browser that supports it; these rules hold
// for the others.
func TestPageMakesNoMarkupOfText(t *testing.T) {
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc|\beval\(|new Function|setHTMLUnsafe`)
	elsewhere := regexp.MustCompile(`(?:https?:)?//[a-z0-9-]+\.[a-z]{2,}`)
	for name, content := range follow(t) {
		if m := forbidden.FindString(content); m != "" && path.Ext(name) == ".js" {
			t.Errorf("%s uses %s", name, m)
		}
		for _, address := range elsewhere.FindAllString(content, -1) {
			if address != "http://www.w3" { // the name of SVG
				t.Errorf("%s names %s", name, address)
			}
		}
	}
	index := follow(t)["/"]
	if m := regexp.MustCompile(`<style|style="| on[a-z]+="|<script>|javascript:`).FindString(index); m != "" {
		t.Errorf("the page has %q, which the policy forbids", m)
	}
}

func TestHandlerConfinesThePage(t *testing.T) {
	for name := range follow(t) {
		h := ask(t, http.MethodGet, name).Header
		if h.Get("Content-Security-Policy") != policy || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s is not confined", name)
		}
	}
	// The browser tests must hold the page to the same policy.
	fake := filetest.Read(t, "test/fake.js")
	if !strings.Contains(string(fake), `"`+policy+`"`) {
		t.Error("test/fake.js serves the page with another policy")
	}
}
