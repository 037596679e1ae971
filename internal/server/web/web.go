// Package web serves the page that people chat with: one HTML file, style sheets, scripts and an
// icon, all of them in the binary. It knows files and how browsers cache and confine them; it knows
// nothing of models or of the interface that the page calls.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed page/index.html page/assets/*
var files embed.FS

// policy lets the page load and call only its own server, and create no markup from text:
// the output of a model can neither run nor send requests.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// kinds by extension; a machine's own list may say something else.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// file is a response that is ready to be sent.
type file struct {
	kind   string // Content-Type
	cache  string // Cache-Control
	etag   string // of the plain form; that of the packed one has "-gzip" before the closing quote
	plain  []byte
	packed []byte // gzip
}

// load makes the responses, by path. The name of the assets' folder carries a hash of what is in
// it, so that browsers may keep it for ever, and scripts find each other by relative paths.
var load = sync.OnceValues(func() (map[string]*file, error) {
	assets, err := fs.Glob(files, "page/assets/*")
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{}
	hash := sha256.New()
	for _, name := range assets { // sorted
		if data[name], err = files.ReadFile(name); err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(hash, "%s %d\n%s", name, len(data[name]), data[name]) // a hash takes everything
	}
	folder := "assets/" + hex.EncodeToString(hash.Sum(nil)[:8]) + "/"
	index, err := files.ReadFile("page/index.html")
	if err != nil {
		return nil, err
	}
	served := map[string]*file{}
	served["/"], err = newFile("index.html", bytes.ReplaceAll(index, []byte(`"assets/`), []byte(`"`+folder)), "no-cache")
	errs := []error{err}
	for name, content := range data {
		served["/"+folder+path.Base(name)], err = newFile(name, content, "public, max-age=31536000, immutable")
		errs = append(errs, err)
	}
	return served, errors.Join(errs...)
})

func newFile(name string, content []byte, cache string) (*file, error) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	return &file{
		kind: kinds[path.Ext(name)], cache: cache, etag: `"` + hex.EncodeToString(sum[:8]) + `"`,
		plain: content, packed: packed.Bytes(),
	}, nil
}

// Handler serves the page: GET and HEAD of / and of what lies below /assets/. Every other path is
// a 404 without words, so a server that has its own should send only these two here. The page
// needs no key; what it calls may.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served, err := load()
		if err != nil {
			http.Error(w, "the page is damaged: "+err.Error(), http.StatusInternalServerError)
			return
		}
		f := served[r.URL.Path]
		switch {
		case f == nil:
			w.WriteHeader(http.StatusNotFound)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			w.WriteHeader(http.StatusMethodNotAllowed)
		default:
			f.serve(w, r)
		}
	})
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", f.cache)
	h.Set("Vary", "Accept-Encoding")
	etag, content := f.etag, f.plain
	if takesGzip(r.Header.Get("Accept-Encoding")) {
		etag, content = strings.TrimSuffix(etag, `"`)+`-gzip"`, f.packed
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", etag)
	if known(r.Header.Get("If-None-Match"), etag) {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", f.kind)
	h.Set("Content-Length", strconv.Itoa(len(content)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(content) // the client may have gone
	}
}

// takesGzip reads an Accept-Encoding field.
func takesGzip(field string) bool {
	for coding := range strings.SplitSeq(field, ",") {
		name, weight, _ := strings.Cut(coding, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(weight), "q="), 64)
			return err != nil || q > 0
		}
	}
	return false
}

// known reads an If-None-Match field.
func known(field, etag string) bool {
	for one := range strings.SplitSeq(field, ",") {
		if one = strings.TrimPrefix(strings.TrimSpace(one), "W/"); one == etag || one == "*" {
			return true
		}
	}
	return false
}
