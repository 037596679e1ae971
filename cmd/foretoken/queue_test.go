package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/batch/jetstream"
	"github.com/foretoken/foretoken/internal/batch/jetstream/natstest"
	"github.com/foretoken/foretoken/internal/filetest"
)

func TestQueueMistakesAreExplained(t *testing.T) {
	explained(t, []mistake{
		{"worker", "-", 2, "--queue is missing"},
		{"worker --queue nats://127.0.0.1:1", "-", 1, "--queue: queue nats://127.0.0.1:1: nats: no servers available"},
		{"serve --queue nats://user:secret@127.0.0.1:1", "-", 1, "--queue: queue nats://127.0.0.1:1: nats: no servers available"},
		{"serve --queue http://127.0.0.1:1", "-", 1, "want nats://HOST:PORT or tls://HOST:PORT"},
		{"serve --queue nats://a --no-batches", "-", 2, "leave one out"},
		{"serve --queue-credentials x", "-", 2, "need --queue"},
		{"serve --queue nats://a --queue-cert x", "-", 2, "--queue-cert and --queue-key must be set together"},
		{"serve --queue nats://a --queue-ca none", "-", 1, "--queue-ca: stat none"},
	})
}

// program is a process of the program under test.
type program struct {
	cmd *exec.Cmd
	url string // of a server

	mu  sync.Mutex
	log bytes.Buffer // after it was ready
	end chan struct{}
}

// Write implements io.Writer.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// start starts a process, and returns when it is ready.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{end: make(chan struct{})}
	p.cmd = exec.CommandContext(t.Context(), os.Args[0], append(args, "--threads", "1", "--kv-memory", "64MiB")...)
	p.cmd.Env = append(os.Environ(), asProgram+"=1", flags.KeyVariable+"=")
	log, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.end
		_ = p.cmd.Wait()
	})
	url, rest := listening(t, log)
	p.url = url
	go func() {
		defer close(p.end)
		_, _ = io.Copy(p, rest) // until it ends
	}()
	return p
}

// kill ends a process without a word.
func (p *program) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.end
	_ = p.cmd.Wait() // it was killed
}

// ask sends a request and reads its answer into v, or returns the text.
func (p *program) ask(t *testing.T, method, path, kind string, body io.Reader, v any) string {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, p.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", kind)
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(a.Body)
	if err != nil || a.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %d %s, %v", method, path, a.StatusCode, data, err)
	}
	if v != nil {
		filetest.Decode(t, data, v)
	}
	return string(data)
}

// standing is a batch as the server describes it.
type standing struct {
	ID     string
	Status string
	Input  string                                 `json:"input_file_id"`
	Output string                                 `json:"output_file_id"`
	Counts struct{ Total, Completed, Failed int } `json:"request_counts"`
}

// submit begins a batch of requests.
func (p *program) submit(t *testing.T, lines int) standing {
	t.Helper()
	data := filetest.Read(t, requests(t, lines, ""))
	// With its own seed, a line has the same answer in every batch.
	return p.begin(t, bytes.ReplaceAll(data, []byte(`"max_tokens"`), []byte(`"seed":7,"max_tokens"`)))
}

// begin uploads the lines of a batch and begins it.
func (p *program) begin(t *testing.T, data []byte) standing {
	t.Helper()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	_ = w.WriteField("purpose", "batch") // a buffer does not fail
	part, _ := w.CreateFormFile("file", "in.jsonl")
	_, _ = part.Write(data)
	_ = w.Close()
	var b standing
	p.ask(t, "POST", "/v1/files", w.FormDataContentType(), &form, &b)
	p.ask(t, "POST", "/v1/batches", "application/json", strings.NewReader(`{"input_file_id":"`+b.ID+`","endpoint":"/v1/chat/completions","completion_window":"24h"}`), &b)
	return b
}

// until waits for a batch.
func (p *program) until(t *testing.T, id string, ready func(standing) bool) (b standing) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		p.ask(t, "GET", "/v1/batches/"+id, "", nil, &b)
		if ready(b) || b.Status == "completed" {
			return b
		}
		if b.Status == "failed" || b.Status == "expired" || time.Since(began) > patience {
			t.Fatalf("%+v", b)
		}
	}
}

// answers are those of a batch that is completed, by the id of their line. Each has one.
func (p *program) answers(t *testing.T, id string, lines int) map[string]string {
	t.Helper()
	b := p.until(t, id, func(standing) bool { return false })
	if b.Counts.Completed != lines || b.Counts.Failed != 0 || b.Counts.Total != lines {
		t.Errorf("%+v, want %d", b, lines)
	}
	found := map[string]string{}
	for line := range strings.Lines(p.ask(t, "GET", "/v1/files/"+b.Output+"/content", "", nil, nil)) {
		var x struct {
			ID       string `json:"custom_id"`
			Response struct {
				Body struct{ Choices, Usage json.RawMessage }
			}
		}
		filetest.Decode(t, line, &x)
		if found[x.ID] != "" {
			t.Errorf("line %s has two results", x.ID)
		}
		found[x.ID] = string(x.Response.Body.Choices) + string(x.Response.Body.Usage)
	}
	return found
}

// same compares two runs.
func same(t *testing.T, got, want map[string]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d results, want %d", len(got), len(want))
	}
	for id, text := range want {
		if got[id] != text {
			t.Errorf("line %s: %s, want %s", id, got[id], text)
		}
	}
}

// counted is a counter of lines of a server.
func (p *program) counted(t *testing.T, outcome string) int {
	t.Helper()
	m := regexp.MustCompile(`foretoken_batch_lines_total\{outcome="` + outcome + `"\} (\d+)`).FindStringSubmatch(p.ask(t, "GET", "/metrics", "", nil, nil))
	if m == nil {
		t.Fatal("there is no such counter")
	}
	n, _ := strconv.Atoi(m[1]) // digits
	return n
}

// stored counts the results of a batch in a state folder: all of them when it has ended, because they are
// in one file then.
func stored(dir, id string) int {
	record, _ := os.ReadFile(filepath.Join(dir, "batches", id)) // none: it has not begun
	if bytes.Contains(record, []byte(`"status":"completed"`)) {
		return faultLines
	}
	entries, _ := os.ReadDir(filepath.Join(dir, "results", id)) // none: nothing is stored
	return len(entries)
}

// A server, with its coordinator, its queue and its worker, is killed in the middle of a batch, again
// and again, and once its record of attempts is deleted. Each line has one result, that of an undisturbed run, and
// no line with a result is computed again.
func TestKilledServerLosesNoLine(t *testing.T) {
	dir := t.TempDir()
	args := []string{"serve", "--port", "0", "--state-dir", dir}
	p := start(t, args...)
	want := p.answers(t, p.submit(t, faultLines).ID, faultLines)
	id := p.submit(t, faultLines).ID
	r := rand.New(rand.NewPCG(19, 2))
	before := 0
	for kill := range faultKills {
		// A part of the rest, except for lines that may be running.
		target := min(faultLines, before+1+r.IntN(max(1, (faultLines-16-before)/(faultKills-kill))))
		for began := time.Now(); stored(dir, id) < target; time.Sleep(time.Millisecond) {
			if time.Since(began) > patience {
				t.Fatalf("kill %d: %d results, want %d", kill, stored(dir, id), target)
			}
		}
		p.kill(t)
		before = stored(dir, id)
		if kill == faultKills/2 {
			if err := os.Remove(filepath.Join(dir, "attempts")); err != nil {
				t.Fatal(err)
			}
		}
		p = start(t, args...)
	}
	same(t, p.answers(t, id, faultLines), want)
	if n := p.counted(t, "completed"); n != faultLines-before { // none, where the last kill came too late
		t.Errorf("after the last kill %d lines were computed, and %d were missing", n, faultLines-before)
	}
}

// A server and a worker elsewhere share a batch.
func TestWorkersShareABatch(t *testing.T) {
	_, servers := natstest.Cluster(t, 1)
	reach(t, servers[0])
	w := start(t, "worker", "--queue", servers[0], "--state-dir", t.TempDir(), "--metrics-addr", "127.0.0.1:0", "tiny")
	p := start(t, "serve", "--port", "0", "--queue", servers[0], "--state-dir", t.TempDir())
	got := p.answers(t, p.submit(t, faultLines).ID, faultLines)
	if len(got) != faultLines {
		t.Errorf("%d results, want %d", len(got), faultLines)
	}
	if r := w.ask(t, "GET", "/readyz", "", nil, nil); !strings.Contains(r, `"state":"ready"`) {
		t.Error(r)
	}
	if m := w.ask(t, "GET", "/metrics", "", nil, nil); !strings.Contains(m, "foretoken_batch_queue_connected 1") || !strings.Contains(m, "foretoken_ready 1") || strings.Contains(m, "foretoken_batch_lines_waiting") {
		t.Errorf("the worker's metrics: %s", m)
	}
	done := w.counted(t, "completed")
	if a, err := http.Get(w.url + "/v1/models"); err != nil || a.StatusCode != http.StatusNotFound {
		t.Errorf("a worker has an API: %+v, %v", a, err)
	} else {
		_ = a.Body.Close()
	}
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-w.end
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("the worker ended with %v: %s", err, &w.log)
	}
	m := regexp.MustCompile(`msg=lines diverged=0 completed=(\d+) failed=0`).FindStringSubmatch(w.log.String())
	if m == nil {
		t.Fatalf("the worker's log: %s", &w.log)
	}
	theirs, _ := strconv.Atoi(m[1]) // digits
	if theirs != done {
		t.Errorf("the worker's log has %d lines, and its metrics %d", theirs, done)
	}
	if ours := p.counted(t, "completed"); ours+theirs != faultLines {
		t.Errorf("the server computed %d lines and the worker %d, of %d", ours, theirs, faultLines)
	}
	t.Logf("the server computed %d lines, the worker %d", p.counted(t, "completed"), theirs)
}

// reach waits until a server of NATS can be reached.
func reach(t *testing.T, server string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		link, err := jetstream.Dial(context.Background(), jetstream.Options{Log: slog.New(slog.DiscardHandler), Servers: []string{server}})
		if err == nil {
			_, err = link.Store(context.Background(), t.TempDir(), 0)
			link.Close()
		}
		if err == nil {
			return
		}
		if time.Since(began) > patience {
			t.Fatal(fmt.Errorf("%s: %w", server, err))
		}
	}
}
