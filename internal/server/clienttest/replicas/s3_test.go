// Package replicas_test runs several processes of the program that share their prefixes through a
// real S3 server.
package replicas_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// gateway is an S3 server that is a Go module and keeps objects in a folder.
const gateway = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

const (
	accessKey = "AKREPLICA"
	secretKey = "secret-of-replicas"
	bucket    = "prefixes"
)

// build makes a program with Go, in the root of the repository.
func build(t *testing.T, dir string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", args...)
	c.Dir = "../../../.."
	c.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-buildvcs=false")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// bucketServer is the S3 server.
type bucketServer struct {
	t       *testing.T
	program string
	folder  string
	address string
	cmd     *exec.Cmd
}

func newBucketServer(t *testing.T, dir string) *bucketServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &bucketServer{t: t, program: filepath.Join(dir, "versitygw"), folder: t.TempDir(), address: l.Addr().String()}
	_ = l.Close()
	for _, d := range []string{"data/" + bucket, "meta"} {
		if err := os.MkdirAll(filepath.Join(s.folder, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *bucketServer) url() string { return "http://" + s.address }

// start runs the server, and returns when it answers.
func (s *bucketServer) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.program, "--access", accessKey, "--secret", secretKey, "--port", s.address, "--quiet",
		"posix", "--sidecar", filepath.Join(s.folder, "meta"), filepath.Join(s.folder, "data"))
	var said bytes.Buffer
	s.cmd.Stdout, s.cmd.Stderr = &said, &said
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	wait(s.t, "the S3 server", func() bool {
		r, err := http.Get(s.url())
		if err == nil {
			_ = r.Body.Close()
		}
		return err == nil
	})
}

func (s *bucketServer) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// objects are the files of the bucket.
func (s *bucketServer) objects() (list []string) {
	s.t.Helper()
	err := filepath.WalkDir(filepath.Join(s.folder, "data", bucket), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && (strings.HasSuffix(path, ".page") || strings.HasSuffix(path, ".end")) {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

// wait waits for a condition.
func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited two minutes for %s", what)
		}
	}
}

// replica is a server that shares its prefixes.
type replica struct {
	t    *testing.T
	url  string
	cmd  *exec.Cmd
	mu   sync.Mutex
	said []string
	done chan struct{} // closed at the end of its output
}

func environment(s *bucketServer, key string) []string {
	return append(os.Environ(), "AWS_ENDPOINT_URL="+s.url(), "AWS_ACCESS_KEY_ID="+key, "AWS_SECRET_ACCESS_KEY="+secretKey, "AWS_REGION=us-east-1")
}

// serve starts a replica, and returns when it is ready.
func serve(t *testing.T, program string, s *bucketServer, args ...string) *replica {
	t.Helper()
	r := &replica{t: t, done: make(chan struct{})}
	r.cmd = exec.Command(program, append([]string{"serve", "--port", "0", "--log-format", "json", "--context", "4096", "--kv-memory", "512MiB"}, args...)...)
	r.cmd.Env = environment(s, accessKey)
	out, err := r.cmd.StderrPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.stop)
	ready := make(chan string, 1)
	go func() {
		defer close(r.done)
		url := ""
		for lines := bufio.NewScanner(out); lines.Scan(); {
			r.mu.Lock()
			r.said = append(r.said, lines.Text())
			r.mu.Unlock()
			var x struct{ Msg, URL string }
			if json.Unmarshal(lines.Bytes(), &x) != nil {
				continue
			}
			if x.Msg == "listening" {
				url = x.URL
			}
			if x.Msg == "ready" {
				ready <- url
			}
		}
	}()
	select {
	case r.url = <-ready:
	case <-r.done:
		t.Fatalf("it ended: %s", strings.Join(r.said, "\n"))
	}
	return r
}

// stop ends the replica, which writes queued data.
func (r *replica) stop() {
	if r.cmd != nil {
		_ = r.cmd.Process.Signal(os.Interrupt)
		<-r.done
		_ = r.cmd.Wait()
		r.cmd = nil
	}
}

// count counts the lines of the log with a text.
func (r *replica) count(text string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.said {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// shared is the status of the store.
func (r *replica) shared() (x struct {
	Up                         bool
	Fetched, Refused, Failures int64
	Written                    int64
	Latency                    float64 `json:"latency_ms"`
	Rate                       float64 `json:"bytes_per_second"`
	Prefill                    float64 `json:"prefill_tokens_per_second"`
},
) {
	r.t.Helper()
	answer, err := http.Get(r.url + "/v1/status")
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	all := struct {
		Models []struct {
			Shared any `json:"shared_prefixes"`
		}
	}{}
	all.Models = append(all.Models, struct {
		Shared any `json:"shared_prefixes"`
	}{&x})
	if err := json.NewDecoder(answer.Body).Decode(&all); err != nil {
		r.t.Fatal(err)
	}
	return x
}

// reply is an answer.
type reply struct {
	first    time.Duration // until the first token
	cached   int
	text     string
	logprobs string // of the tokens and of the alternatives, with all digits that were sent
}

// ask sends a prompt of tokens tokens, which differs from those of other kinds.
func (r *replica) ask(kind, tokens int) (x reply) {
	r.t.Helper()
	ids := make([]int, tokens)
	for i := range ids {
		ids[i] = 300 + (kind*131+i*7+i*i*3)%900
	}
	body, err := json.Marshal(map[string]any{
		"model": "tiny", "prompt": ids, "max_tokens": 16, "seed": 5, "temperature": 0.7, "logprobs": 3, "stream": true,
		"stream_options": map[string]any{"include_usage": true},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	start := time.Now()
	answer, err := http.Post(r.url+"/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		r.t.Fatalf("status %d: %s", answer.StatusCode, text)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var event struct {
			Choices []struct {
				Text     string
				Logprobs struct {
					Tokens []json.RawMessage `json:"token_logprobs"`
					Top    []json.RawMessage `json:"top_logprobs"`
				}
			}
			Usage *struct {
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			r.t.Fatalf("%s: %v", data, err)
		}
		if x.first == 0 {
			x.first = time.Since(start)
		}
		for _, c := range event.Choices {
			x.text += c.Text
			for i, p := range c.Logprobs.Tokens {
				x.logprobs += fmt.Sprintf("%s %s\n", p, c.Logprobs.Top[i])
			}
		}
		if event.Usage != nil {
			x.cached = event.Usage.Details.Cached
		}
	}
	if err := lines.Err(); err != nil || x.text == "" || x.logprobs == "" {
		r.t.Fatalf("%+v, %v", x, err)
	}
	return x
}

// TestReplicas builds the programs once.
func TestReplicas(t *testing.T) {
	dir := t.TempDir()
	build(t, dir, "install", gateway)
	build(t, dir, "build", "-o", filepath.Join(dir, "foretoken"), "./cmd/foretoken")
	t.Run("ShareABucket", func(t *testing.T) { testShare(t, dir) })
	t.Run("WrongBucketsAreOneLine", func(t *testing.T) { testWrongBuckets(t, dir) })
}

// testShare has one replica compute a prompt of 3,000 tokens and another take it
// from the bucket: same text, same digits of all probabilities. Then the S3 server dies and comes
// back.
func testShare(t *testing.T, dir string) {
	t.Helper()
	const tokens = 3000
	program := filepath.Join(dir, "foretoken")
	s := newBucketServer(t, dir)
	shared := []string{"--prefix-cache-dir", "s3://" + bucket + "/replicas", "--prefix-cache-uses", "1"}

	a := serve(t, program, s, shared...)
	computed := a.ask(1, tokens)
	memory := a.ask(1, tokens)
	a.stop()
	if computed.cached != 0 || memory.cached == 0 || len(s.objects()) < tokens/64 {
		t.Fatalf("%d and %d tokens cached, %d objects", computed.cached, memory.cached, len(s.objects()))
	}

	b := serve(t, program, s, shared...)
	fetched := b.ask(1, tokens)
	if fetched.cached < tokens-64-1 {
		t.Errorf("%d tokens from the bucket: %+v\n%s", fetched.cached, b.shared(), strings.Join(b.said, "\n"))
	}
	for what, x := range map[string]reply{"memory": memory, "bucket": fetched} {
		if x.text != computed.text || x.logprobs != computed.logprobs {
			t.Errorf("from %s: %q %s, computed %q %s", what, x.text, x.logprobs, computed.text, computed.logprobs)
		}
	}
	var times [3][]time.Duration // computed, from the bucket, from memory
	for range 5 {
		c := serve(t, program, s, shared...)
		x, y := c.ask(1, tokens), c.ask(1, tokens)
		c.stop()
		c = serve(t, program, s)
		z := c.ask(1, tokens)
		c.stop()
		for i, d := range []time.Duration{z.first, x.first, y.first} {
			times[i] = append(times[i], d)
		}
	}
	for i := range times {
		slices.Sort(times[i])
	}
	t.Logf("time to the first token of %d, of new processes, median of 5: computed %v, from the bucket %v, from memory %v; %+v", tokens, times[0][2], times[1][2], times[2][2], b.shared())

	s.stop()
	for kind := 2; kind < 6; kind++ {
		if x := b.ask(kind, 400); x.cached != 0 {
			t.Errorf("%d tokens of a new prompt", x.cached)
		}
	}
	wait(t, "the failure to be seen", func() bool { return !b.shared().Up })
	if n := b.count("the shared store fails"); n != 1 {
		t.Errorf("%d warnings", n)
	}
	s.start()
	kind := 10
	wait(t, "the replica to use the bucket again", func() bool {
		kind++
		b.ask(kind, 100) // checks whether it is back
		return b.shared().Up
	})
	if n := b.count("works again"); n == 0 {
		t.Error("no warning")
	}
}

// testWrongBuckets starts replicas that cannot use theirs.
func testWrongBuckets(t *testing.T, dir string) {
	t.Helper()
	s := newBucketServer(t, dir)
	for _, c := range []struct{ address, key, want string }{
		{"s3://nothing/x", accessKey, "there is no bucket nothing"},
		{"s3://" + bucket, "another", "check AWS_ACCESS_KEY_ID"},
	} {
		refused(t, filepath.Join(dir, "foretoken"), environment(s, c.key), c.address, c.want)
	}
	s.stop()
	refused(t, filepath.Join(dir, "foretoken"), environment(s, accessKey), "s3://"+bucket, "cannot be reached")
}

func refused(t *testing.T, program string, env []string, address, want string) {
	t.Helper()
	c := exec.Command(program, "serve", "--port", "0", "--prefix-cache-dir", address)
	c.Env = env
	out, err := c.CombinedOutput()
	lines := 0
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, want) {
			lines++
		}
	}
	if err == nil || lines != 1 || strings.Contains(string(out), "goroutine") {
		t.Errorf("%s: %v, want one line with %q:\n%s", address, err, want, fmt.Sprintf("%.2000s", out))
	}
}
