package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/filetest"
)

// requests writes a file of n requests and returns its path.
func requests(t *testing.T, n int, more string) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"Count to %d."}],"max_tokens":6}}`+"\n", i, i)
	}
	return filetest.Write(t, filepath.Join(t.TempDir(), "in.jsonl"), b.String()+more)
}

func TestBatchRunAnswersAFile(t *testing.T) {
	in, dir, n := requests(t, 3, "{\n"), t.TempDir(), &place{}
	node := n.node(t)
	var outputs []string
	for _, more := range [][]string{nil, {"--node", n.at}} {
		out := filepath.Join(dir, fmt.Sprint(len(more), ".jsonl"))
		r := runIn(t, nil, append([]string{"batch", "run", in, out, "--threads", "1"}, more...)...)
		if r.code != 1 || !strings.Contains(r.err, "1 line without an answer") {
			t.Fatalf("%+v", r)
		}
		data := filetest.Read(t, out)
		failed, err := os.ReadFile(strings.TrimSuffix(out, ".jsonl") + ".errors.jsonl")
		if err != nil || !strings.Contains(string(failed), "line 4: ") {
			t.Errorf("%v: %s", err, failed)
		}
		if _, err := os.Stat(out + ".partial"); err == nil {
			t.Error("the folder of what is done is still there")
		}
		answers := []string{}
		for line := range strings.Lines(string(data)) {
			_, line, _ = strings.Cut(line, `"choices"`)
			answers = append(answers, line)
		}
		outputs = append(outputs, strings.Join(answers, "\n"))
		if len(answers) != 3 {
			t.Errorf("%d answers: %s", len(answers), data)
		}
	}
	if outputs[0] != outputs[1] || node.gauge(t, "own_weight_bytes_total") == 0 {
		t.Errorf("without and with a node:\n%s\n%s\n%s", outputs[0], outputs[1], &node.log)
	}
}

// TestBatchRunTakesTheEndpointFromTheFile runs completions without --endpoint, and with one that is wrong.
func TestBatchRunTakesTheEndpointFromTheFile(t *testing.T) {
	var lines strings.Builder
	for i := range 2 {
		fmt.Fprintf(&lines, `{"custom_id":"%d","method":"POST","url":"/v1/completions","body":{"prompt":"Once","max_tokens":2}}`+"\n", i)
	}
	in, dir := requests(t, 0, "{\n"+lines.String()), t.TempDir() // the first line has no endpoint
	if r := runIn(t, nil, "batch", "run", in, filepath.Join(dir, "wrong.jsonl"), "--endpoint", "/v1/responses"); r.code != 2 ||
		!strings.Contains(r.err, "--endpoint /v1/responses: line 2 of "+in+" is for /v1/completions: leave out --endpoint") {
		t.Errorf("with another endpoint: %+v", r)
	}
	for _, more := range [][]string{nil, {"--endpoint", "/v1/completions"}} {
		out := filepath.Join(dir, fmt.Sprint(len(more), ".jsonl"))
		r := runIn(t, nil, append([]string{"batch", "run", in, out, "--threads", "1"}, more...)...)
		if r.code != 1 || !strings.Contains(r.err, "1 line without an answer") {
			t.Fatalf("%q: %+v", more, r)
		}
		if data, err := os.ReadFile(out); err != nil || strings.Count(string(data), `"object":"text_completion"`) != 2 {
			t.Errorf("%q: %v: %s", more, err, data)
		}
	}
	none := requests(t, 0, strings.ReplaceAll(lines.String(), "/v1/completions", "/v1/embeddings"))
	if r := runIn(t, nil, "batch", "run", none, filepath.Join(dir, "none.jsonl")); r.code != 1 || !strings.Contains(r.err, `line 1 is for "/v1/embeddings": want one of /v1/chat/completions`) {
		t.Errorf("an endpoint that no batch has: %+v", r)
	}
}

// TestBatchRunShowsFiveErrors has files whose lines are for another endpoint than the first.
func TestBatchRunShowsFiveErrors(t *testing.T) {
	for _, c := range []struct {
		wrong int
		last  string
	}{{6, "and 1 more error"}, {150, "and at least 95 more errors"}} {
		var lines strings.Builder
		for i := range c.wrong {
			fmt.Fprintf(&lines, `{"custom_id":"wrong-%d","method":"POST","url":"/v1/completions","body":{"prompt":"Once"}}`+"\n", i)
		}
		r := runIn(t, nil, "batch", "run", requests(t, 1, lines.String()), filepath.Join(t.TempDir(), "out.jsonl"), "--threads", "1")
		said := strings.Split(strings.TrimSpace(r.err), "\n")
		if r.code != 1 || len(said) > 6 || strings.Count(r.err, ": the line is for") != 5 || !strings.Contains(said[len(said)-1], c.last) {
			t.Errorf("%d lines for another endpoint: code %d, %d lines of errors, the last %q, want %q", c.wrong, r.code, len(said), said[len(said)-1], c.last)
		}
	}
}

func TestBatchRunGoesOn(t *testing.T) {
	const lines = 60
	in, other, out := requests(t, lines, ""), requests(t, 3, ""), filepath.Join(t.TempDir(), "out.jsonl")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := exec.CommandContext(t.Context(), self, "batch", "run", in, out, "--threads", "1")
	program.Env = append(os.Environ(), asProgram+"=1")
	var log bytes.Buffer
	program.Stderr = &log
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) { // until it has begun
		if list, err := filepath.Glob(filepath.Join(out+".partial", "results", "*", "*")); err == nil && len(list) > 0 {
			break
		}
		if _, err := os.Stat(out); err == nil {
			break
		}
	}
	if r := runIn(t, nil, "batch", "run", in, out, "--threads", "1"); r.code == 0 || strings.Contains(r.err, "--state-dir") {
		t.Errorf("beside another: %+v", r)
	}
	if program.Process.Signal(os.Interrupt) != nil { // not on every system
		_ = program.Process.Kill() // it may have ended
	}
	_ = program.Wait()
	if program.ProcessState.ExitCode() == 130 && !strings.Contains(log.String(), fmt.Sprintf(" of %d lines done and kept in %s.partial: run the same command to continue", lines, out)) {
		t.Errorf("after Ctrl-C: %s", &log)
	}
	if _, err := os.Stat(out); err != nil {
		if r := runIn(t, nil, "batch", "run", other, out, "--threads", "1"); r.code != 2 || !strings.Contains(r.err, "another input") {
			t.Errorf("with other requests: %+v", r)
		}
		if r := runIn(t, nil, "batch", "run", in, out, "--threads", "1"); r.code != 0 {
			t.Errorf("%+v", r)
		}
	}
	if data, err := os.ReadFile(out); err != nil || strings.Count(string(data), "\n") != lines {
		t.Errorf("%v: %s", err, data)
	}
	if r := runIn(t, nil, "batch", "run", in, out); r.code != 2 {
		t.Errorf("over an output: %+v", r)
	}
}

func TestBatchRunRefusesWhatIsNone(t *testing.T) {
	in, dir := requests(t, 0, "hello\n"), t.TempDir()
	filetest.Write(t, filepath.Join(dir, "mine.errors.jsonl"), "")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{in}, 2, "arguments"},
		{[]string{in, filepath.Join(t.TempDir(), "out.jsonl")}, 1, "line 1: "},
		{[]string{"none.jsonl", filepath.Join(t.TempDir(), "out.jsonl")}, 1, "none.jsonl"},
		{[]string{requests(t, 0, "\n"), filepath.Join(t.TempDir(), "out.jsonl")}, 1, "foretoken: the file has no lines"},
		{[]string{in, filepath.Join(dir, "out.jsonl"), "--endpoint", "/v1/embeddings"}, 2, "--endpoint /v1/embeddings: want one of /v1/chat/completions"},
		{[]string{in, filepath.Join(dir, "out.jsonl"), "--mtp=off", "--draft", "mtp"}, 2, "--mtp=off and --draft mtp cannot be combined"},
		{[]string{in, filepath.Join(dir, "out.jsonl"), "--model", "nope"}, 1, "model nope"},
		{[]string{in, filepath.Join(dir, "mine.jsonl")}, 2, "mine.errors.jsonl exists already"},
	} {
		if r := runIn(t, nil, append([]string{"batch", "run"}, c.args...)...); r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%q: %+v", c.args, r)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("mistakes have left %v, %v", left, err)
	}
}

func TestBatchRunReportsWhenAsked(t *testing.T) {
	in := requests(t, 1, "")
	for _, c := range []struct {
		flags []string
		loads bool
	}{{nil, false}, {[]string{"--verbose"}, true}} {
		args := append([]string{"batch", "run", in, filepath.Join(t.TempDir(), "out.jsonl"), "--threads", "1"}, c.flags...)
		if r := runIn(t, nil, args...); r.code != 0 || strings.Contains(r.err, "loaded") != c.loads {
			t.Errorf("%q: %+v", c.flags, r)
		}
	}
}

// The commands that ask a server; and a second server, which cannot use the same folder.
func TestBatchCommandsAskAServer(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv(flags.KeyVariable, "")
	p := start(t, "serve", "--port", "0")
	done := p.submit(t, 2).ID
	p.answers(t, done, 2)
	var b standing
	p.ask(t, "POST", "/v1/batches", "application/json", strings.NewReader(`{"input_file_id":"`+p.submit(t, 1).Input+`","endpoint":"/v1/completions","completion_window":"24h"}`), &b)
	for deadline := time.Now().Add(patience); b.Status != "failed"; time.Sleep(time.Millisecond) { // it has another endpoint
		if p.ask(t, "GET", "/v1/batches/"+b.ID, "", nil, &b); time.Now().After(deadline) {
			t.Fatalf("%+v", b)
		}
	}
	lines := filetest.Read(t, requests(t, 500, ""))
	// It takes minutes, and has not ended when it is canceled.
	long := p.begin(t, bytes.ReplaceAll(lines, []byte(`"max_tokens":6`), []byte(`"ignore_eos":true,"max_tokens":4000`))).ID
	url := []string{"--url", p.url + "/v1"}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"show", done}, 0, done + "  completed    2/2 done, 0 failed  file-"},
		{[]string{"show", b.ID}, 0, b.ID + "  failed       0/0 done, 0 failed  \n  line 1: the line is for"},
		{[]string{"show", "batch_none"}, 1, "\"batch_none\" does not exist"},
		{[]string{"show"}, 2, "0 arguments, want 1"},
		{[]string{"cancel", long}, 0, long + "  cancelling "},
		{[]string{"cancel", done}, 1, "the batch has ended: it is completed"},
		{[]string{"list"}, 0, done + "  completed "},
		{[]string{"list"}, 0, long + "  cancell"},
	} {
		if r := runIn(t, nil, append(append([]string{"batch"}, c.args...), url...)...); r.code != c.code || !strings.Contains(r.out+r.err, c.says) {
			t.Errorf("%q: %+v, want %s", c.args, r, c.says)
		}
	}
	for url, says := range map[string]string{"http://127.0.0.1:1/v1": "check that the server runs and that --url is its address, such as http://", p.url: "there is no endpoint GET /batches"} {
		if r := runIn(t, nil, "batch", "list", "--url", url); r.code != 1 || !strings.Contains(r.err, says) {
			t.Errorf("%s: %+v, want %s", url, r, says)
		}
	}
	dir := filepath.Join(os.Getenv("XDG_STATE_HOME"), "foretoken", "batches")
	if r := runIn(t, nil, "serve", "--port", "0", "--state-dir", dir); r.code != 1 || !strings.Contains(r.err, "--state-dir: "+dir+": another process uses it") {
		t.Errorf("a second server with the same folder: %+v", r)
	}
	second := start(t, "serve", "--port", "0") // without a folder
	if r := runIn(t, nil, "batch", "list", "--url", second.url+"/v1"); r.code != 1 {
		t.Errorf("a second server has batches: %+v", r)
	}
}

// A server lists its batches in pages; the command lists all of them.
func TestBatchListHasAllPages(t *testing.T) {
	t.Setenv(flags.KeyVariable, "")
	pages := map[string]string{
		"":  `{"data":[{"id":"c"},{"id":"b"}],"has_more":true}`,
		"b": `{"data":[{"id":"a"}],"has_more":false}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, pages[r.URL.Query().Get("after")]) // the client reads it
	}))
	defer s.Close()
	r := runIn(t, nil, "batch", "list", "--url", s.URL)
	var ids []string
	for line := range strings.Lines(r.out) {
		ids = append(ids, strings.Fields(line)[0])
	}
	if r.code != 0 || strings.Join(ids, "") != "cba" {
		t.Errorf("%q: %+v", ids, r)
	}
}

// Another kind of server may report an error only in its status.
func TestBatchCommandsReadTheStatus(t *testing.T) {
	t.Setenv(flags.KeyVariable, "")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"detail":"Not Found"}`) // the client reads it
	}))
	defer s.Close()
	for _, args := range [][]string{{"list"}, {"show", "batch_1"}, {"cancel", "batch_1"}} {
		r := runIn(t, nil, append(append([]string{"batch"}, args...), "--url", s.URL)...)
		if r.code != 1 || !strings.Contains(r.err, "status 404") {
			t.Errorf("%q: %+v", args, r)
		}
	}
}
