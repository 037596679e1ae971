package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/bench"
)

// runBench runs a bench command and returns its output.
func runBench(args ...string) (string, error) {
	var out bytes.Buffer
	root := newRootCommand()
	root.SetOut(&out)
	root.SetErr(new(bytes.Buffer))
	root.SetArgs(append([]string{"bench"}, args...))
	err := root.Execute()
	return out.String(), err
}

func TestBenchRefusesWhatItCannotMeasure(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"kernels --types q9", "--types q9"},
		{"kernels --rows 0", "--rows 0"},
		{"kernels --isa mmx", "isa"},
		{"kernels extra", "extra"},
		{"model --shape 3b", "shape"},
		{"model --bits 7", "bits"},
		{"model --rows 5000", "--rows 5000"},
		{"model --prompts 512,0", "--prompts 0: want numbers from 1"},
		{"model --prompts=-1", "--prompts -1"},
		{"model --images 640", `--images: "640" is not a valid size, want WIDTHxHEIGHT in pixels`},
		{"model --images 640x0", `--images: "640x0" is not a valid size`},
		{"model --gpu-layers some", "want auto or a whole number"},
		{"model --device cpu --gpu-layers 3", "no other device is available for a part of the model"},
		{"model --device cpu --cpu-experts", "no other device is available"},
		{"model --format q9_k", "format \"q9_k\" is unknown; known: affine"},
		{"model --format affine:7", "affine matrix of 7 bits"},
		{"model --bits 4 --format q3_k", "--bits 4: q3_k has 3 bits"},
		{"kernels --types paro:x", "--types paro:x: want some of q2"},
		{"nothing", "unknown command"},
		{"decode --classes poems", "--classes poems: want some of math"},
		{"decode --temps -1", "--temps -1"},
		{"decode --temps hot", "--temps hot: want numbers from 0 to 100, or recommended"},
		{"decode --contexts 4096", "--contexts 4096: want numbers from 0 to 4000: a context of 4096 tokens has 96 for the answer"},
		{"decode --contexts=-1", "--contexts -1"},
		{"decode --depths 9", "--depths 9: want auto, or numbers from 1 to 8"},
		{"decode --depths 0", "plain decoding is always measured"},
		{"decode --batches 0", "--batches 0"},
		{"decode --rules always", "--rules always: want exact, ratio"},
		{"decode --classes=", "--classes: the list is empty"},
		{"decode --max-tokens 3", "want a whole number from 8"},
		{"decode --html /nowhere/at/all.html", "--html: "},
		{"decode --plots /dev/null/x", "--plots: "},
		{"serve --model m --url ftp://127.0.0.1", "want an address such as"},
		{"serve --model m --url http://192.0.2.7/v1", "--allow-remote"},
		{"serve --model m --url http://localhost.example/v1", "--allow-remote"},
		{"serve", "--model is missing: give the server's name of the model"},
		{"serve --model m --concurrency 0", "--concurrency 0"},
		{"serve --model m --rates 0", "--rates 0"},
		{"serve --model m --limit 0s", "--limit"},
		{"serve --model m --classes x", "--classes x"},
		{"compare", "--peer-cmd is missing: give the peer's benchmark program"},
		{"compare --peer-cmd no-such-program", "--peer-cmd no-such-program"},
		{"compare --peer-cmd go --model tiny", "want a GGUF file"},
		{"compare --peer-cmd go --model x.gguf --prompts 512,-1", "not -1"},
		{"compare --peer-cmd go --model x.gguf --prompts 0 --generates 0", "nothing to measure"},
	} {
		if _, err := runBench(strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("bench %s: error %v, want %q", c.args, err, c.want)
		}
	}
}

func TestBenchKernelsPrintsJSON(t *testing.T) {
	if testing.Short() {
		t.Skip("reads gigabytes of memory")
	}
	text, err := runBench("kernels", "--types", "q4", "--rows", "1,2", "--repeats", "1", "--json")
	var report struct {
		Kernels []struct {
			Type   string
			Passes []struct{ Rows int }
		}
	}
	if err != nil || json.Unmarshal([]byte(text), &report) != nil || len(report.Kernels) != 1 || report.Kernels[0].Type != "q4" || len(report.Kernels[0].Passes) != 2 || report.Kernels[0].Passes[1].Rows != 2 {
		t.Errorf("error %v, JSON:\n%s", err, text)
	}
}

func TestBenchDecodeReportsInAllForms(t *testing.T) {
	dir := t.TempDir()
	page, plots := filepath.Join(dir, "report.html"), filepath.Join(dir, "plots")
	few := []string{"bench", "decode", "--classes", "story", "--temps", "0", "--depths", "1,auto", "--repeats", "1", "--prompts", "1", "--max-tokens", "12", "--context", "256"}
	o := runIn(t, nil, append(few, "--html", page, "--plots", plots)...)
	if o.code != exitOK || !strings.Contains(o.out, "tiny on cpu") || !strings.Contains(o.out, "Every answer under the rule exact was that of plain decoding") || !strings.Contains(o.err, "story, temperature 0, rule exact, batch 1 (1 of 1) …\n") {
		t.Errorf("exit code %d\n%s%s", o.code, o.out, o.err)
	}
	if text, err := os.ReadFile(page); err != nil || strings.Count(string(text), "<svg") < 6 {
		t.Errorf("%v, %.80s", err, text)
	}
	if files, err := filepath.Glob(filepath.Join(plots, "decode-*.svg")); err != nil || len(files) < 6 {
		t.Errorf("%v, plots %v", err, files)
	}
	o = runIn(t, nil, append(few, "--json", "--batches", "2", "--contexts", "0,200", "--temps", "recommended")...)
	var r struct {
		Model, Sampling string
		Cells           []struct {
			Batch, Depth, Context int
			Temperature           float64
			Repeats               []struct{ Tokens int }
		}
		Totals []struct {
			Context int
			Lowest  string
		}
	}
	if err := json.Unmarshal([]byte(o.out), &r); err != nil || r.Model != "tiny" || r.Sampling != "top-k 20, top-p 0.95" || len(r.Cells) != 12 || len(r.Totals) != 12 {
		t.Fatalf("%v, %+v, %s", err, r, o.err)
	}
	if c := r.Cells[11]; c.Depth != bench.AutoDepth || c.Batch != 2 || c.Context != 200 || c.Temperature != 0.8 || c.Repeats[0].Tokens == 0 || r.Totals[11].Context != 200 || r.Totals[11].Lowest != "story" {
		t.Errorf("%+v", r)
	}
}

// A checkpoint without a head has nothing to compare; the error suggests a remedy.
func TestBenchDecodeWantsAHead(t *testing.T) {
	none := rewriteTiny(t, asIs, func(string, []byte) bool { return false })
	o := runIn(t, nil, "bench", "decode", "--model", none)
	if o.code != exitError || !strings.Contains(o.err, "--draft ngram") {
		t.Errorf("exit code %d, %s", o.code, o.err)
	}
}

func TestBenchServeTellsThatNoServerListens(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	o := runIn(t, nil, "bench", "serve", "--url", s.URL, "--model", "m", "--requests", "1", "--concurrency", "1")
	if o.code != exitError || !strings.Contains(o.err, "check that the server runs") {
		t.Errorf("exit code %d, %s", o.code, o.err)
	}
}

// The key comes from the environment, and requests that fail are an error.
func TestBenchServeSendsTheKey(t *testing.T) {
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sesame" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if n++; n == 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n")
	}))
	defer s.Close()
	t.Setenv("THE_KEY", "sesame")
	args := []string{"bench", "serve", "--url", s.URL, "--model", "m", "--requests", "2", "--repeats", "1", "--concurrency", "1", "--api-key-env", "THE_KEY"}
	o := runIn(t, nil, args...)
	if o.code != exitError || !strings.Contains(o.out, "1 × status 503") || !strings.Contains(o.err, "1 request failed") {
		t.Errorf("exit code %d\n%s%s", o.code, o.out, o.err)
	}
	if o = runIn(t, nil, args...); o.code != exitOK || !strings.Contains(o.out, "1 at a time") {
		t.Errorf("exit code %d\n%s%s", o.code, o.out, o.err)
	}
}

// That the file is not there is said before the peer is run.
func TestBenchCompareWantsTheFile(t *testing.T) {
	o := runIn(t, nil, "bench", "compare", "--peer-cmd", "go", "--model", filepath.Join(t.TempDir(), "none.gguf"))
	if o.code != exitError || !strings.Contains(o.err, "none.gguf") {
		t.Errorf("exit code %d, %s", o.code, o.err)
	}
}

func TestBenchCompletionKnowsTheChoices(t *testing.T) {
	for flag, want := range map[string]string{"--classes": "math\nstory\n", "--rules": "exact\nratio\n", "--depths": "auto\n", "--temps": "recommended\n", "--draft": "auto\nmtp\nblock\nngram\n"} {
		if o := runIn(t, nil, "__complete", "bench", "decode", flag, ""); !strings.Contains(o.out, want) {
			t.Errorf("completion of %s: %q", flag, o.out)
		}
	}
}
