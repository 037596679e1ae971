// Package generatetest gives tests of protocols real models: the embedded one, and the
// same with chat templates for tools and thinking, which its own does not have.
package generatetest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/library"
	"github.com/foretoken/foretoken/internal/models/tiny"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// The names of the models. Alias is another name of Tiny. Thinker is taught tool calls in
// JSON, Caller in XML, Lines and Tight as GLM-4.6 and GLM-4.7 are, Fenced as DeepSeek-V3 is, Marked as Gemma 4 is. Effort has the switches of
// reasoning. Slow is Tiny by portable code, which takes minutes to fill the context: tests can cut its answers off.
const (
	Tiny    = foretoken.Tiny
	Thinker = "thinker"
	Caller  = "caller"
	Lines   = "lines"
	Tight   = "tight"
	Fenced  = "fenced"
	Marked  = "marked"
	Effort  = "effort"
	Slow    = "slow"
	Alias   = "small"
)

// Context is the maximum tokens of a prompt and its answer, of all models.
const Context = 1024

//go:embed thinker.jinja
var thinker string

//go:embed caller.jinja
var caller string

//go:embed effort.jinja
var effort string

//go:embed lines.jinja
var lines string

//go:embed tight.jinja
var tight string

//go:embed fenced.jinja
var fenced string

//go:embed marked.jinja
var marked string

// Open returns a service with Tiny, Thinker and the named models, which are loaded at
// their first use. end must be called.
func Open(more ...string) (h *generate.Service, end func() error, err error) {
	dir, err := os.MkdirTemp("", "generatetest")
	if err != nil {
		return nil, nil, err
	}
	library := library.New(library.Options{
		Names: func() []string { return append([]string{Tiny, Thinker}, more...) },
		Load: func(ctx context.Context, name string) (*foretoken.Model, error) {
			o := foretoken.Options{Threads: 1, Context: Context, KVMemory: 256 << 20, MaxQueue: 64, Speculation: foretoken.Speculation{NoSelfTest: true}}
			switch name {
			case Tiny:
			case Slow:
				name, o.ISA = Tiny, "generic"
			default:
				var err error
				if name, err = write(dir, name); err != nil {
					return nil, fmt.Errorf("generatetest: %w", err)
				}
			}
			return foretoken.Open(ctx, name, o)
		},
	})
	end = func() error {
		ended, cancel := context.WithCancel(context.Background())
		cancel() // running answers are no longer needed
		err := library.Drain(ended)
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return errors.Join(err, os.RemoveAll(dir))
	}
	return &generate.Service{Library: library, Default: Tiny, Aliases: map[string]string{Alias: Tiny}}, end, nil
}

// Main runs the tests of a protocol with Tiny, Thinker and a site that serves it to clients of this
// machine, and exits.
func Main(m *testing.M, register func(body.Routes, *generate.Service), service **generate.Service, site **httptest.Server) {
	h, end, err := Open()
	code := 1
	if err == nil {
		mux := http.NewServeMux()
		register(body.On(mux, nil), h)
		*service, *site = h, httptest.NewServer(mux)
		code = m.Run()
		(*site).Close()
		err = end()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// Send makes a request and returns the status and the body.
func Send(t testing.TB, method, url, request string) (int, string) {
	t.Helper()
	status, _, text := SendWith(t, method, url, request, nil)
	return status, text
}

// SendWith is Send with a header of the request, and returns that of the response too.
func SendWith(t testing.TB, method, url, request string, header http.Header) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(request))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

// ServeSlow is a separate site with Slow beside the other models, until the test ends. end
// closes the models before that.
func ServeSlow(t testing.TB, register func(body.Routes, *generate.Service)) (h *generate.Service, site *httptest.Server, end func()) {
	t.Helper()
	h, closeAll, err := Open(Slow)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	register(body.On(mux, nil), h)
	site = httptest.NewServer(mux)
	end = sync.OnceFunc(func() {
		if err := closeAll(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		end() // running answers are cut off, which lets the site close
		site.Close()
	})
	return h, site, end
}

// AwaitCanceled waits until more answers of a model were canceled than before.
func AwaitCanceled(t testing.TB, m *foretoken.Model, before int64) {
	t.Helper()
	for {
		switch s := m.Stats(); {
		case s.Canceled > before:
			return
		case s.Running+s.Waiting == 0:
			t.Fatal("the answer came to its end")
		}
		time.Sleep(time.Millisecond)
	}
}

// write writes the files of the embedded model with another template, and returns their
// folder.
func write(dir, name string) (string, error) {
	files := tiny.Files()
	files["chat_template.jinja"] = map[string]string{Thinker: thinker, Caller: caller, Effort: effort, Lines: lines, Tight: tight, Fenced: fenced, Marked: marked}[name]
	if name == Marked { // its tags are control tokens
		const first = `"added_tokens":[`
		tags := ""
		for i, tag := range []string{`<|channel>`, `<channel|>`, `<|tool_call>`, `<tool_call|>`, `<|\"|>`} {
			tags += fmt.Sprintf(`{"id":%d,"content":"%s","special":true},`, 8196+i, tag)
		}
		files["tokenizer.json"] = strings.Replace(files["tokenizer.json"], first, first+tags, 1)
	}
	dir = filepath.Join(dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}
