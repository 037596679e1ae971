package generate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/server/fetch"
)

// remote is a request for n images of a site, each with its number in the path.
func remote(t *testing.T, site string, n int) (*Request, [][]byte) {
	t.Helper()
	r, files := &Request{}, make([][]byte, n)
	for i := range n {
		u, err := url.Parse(fmt.Sprintf("%s/%d", site, i))
		if err != nil {
			t.Fatal(err)
		}
		r.Remote = append(r.Remote, Remote{Param: fmt.Sprintf("images[%d]", i), URL: u, To: &files[i]})
	}
	return r, files
}

func TestPicturesAreFetchedToTheirPlaces(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/7" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("GIF89a of " + r.URL.Path))
	}))
	t.Cleanup(site.Close)
	images, err := fetch.New([]string{strings.TrimPrefix(site.URL, "http://")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{Images: images}
	r, files := remote(t, site.URL, 7)
	if err := s.fetchAll(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for i, data := range files {
		if want := fmt.Sprintf("GIF89a of /%d", i); string(data) != want {
			t.Errorf("%q, want %q", data, want)
		}
	}
	r, _ = remote(t, site.URL, 9)
	if e := r.locate(s.fetchAll(t.Context(), r)); e.Status != 400 || e.Param != "images[7]" || !strings.Contains(e.Message, "status 404") {
		t.Errorf("one of them is missing: %+v", e)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if e := r.locate(s.fetchAll(gone, r)); e.Kind != Canceled {
		t.Errorf("the client has left: %+v", e)
	}
}

func TestURLsAreCheckedBeforeModelsAreLoaded(t *testing.T) {
	images, err := fetch.New([]string{"example.org"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		images      *fetch.Client
		site        string
		n           int
		param, says string
	}{
		{nil, "https://example.org", 1, "images[0]", "this server does not fetch images: send the image as a data: URL, or see foretoken serve --allow-image-urls"},
		{images, "https://elsewhere.org", 1, "images[0]", `this server does not fetch images from "elsewhere.org": send the image as a data: URL, or see foretoken serve --allow-image-urls`},
		{images, "https://example.org", maxRemote + 1, "images[64]", "the request has 65 images to fetch, at most 64 are allowed: send other images as data: URLs"},
	} {
		r, _ := remote(t, x.site, x.n)
		_, err := (&Service{Images: x.images}).Start(t.Context(), r) // without a library
		_, counted := (&Service{Images: x.images}).Count(t.Context(), r)
		for _, err := range []error{err, counted} {
			if e := Wrap(err); e.Status != 400 || e.Param != x.param || e.Message != x.says {
				t.Errorf("%d images of %s: %+v", x.n, x.site, e)
			}
		}
	}
}

func TestErrorsOfPicturesHaveTheirFields(t *testing.T) {
	r := &Request{Media: []string{"a", "b"}}
	for _, x := range []struct {
		err               error
		param, kind, says string
	}{
		{fmt.Errorf("model x: %w: why", foretoken.ErrNoVision), "a", "unsupported", "model x: this model does not accept images: why"},
		{&foretoken.MediaError{Index: 1, Err: errors.New("broken\nat x.go:5")}, "b", "invalid_request", "image or video 2: broken"},
		{&foretoken.MediaError{Index: 2, Err: errors.New("broken")}, "messages", "invalid_request", "image or video 3: broken"},
		{errors.New("no image"), "", "internal", "no image"},
	} {
		if e := r.locate(x.err); e.Param != x.param || string(e.Kind) != x.kind || e.Message != x.says || (e.Status == 400) != (x.kind != "internal") {
			t.Errorf("%v: %+v", x.err, e)
		}
	}
}
