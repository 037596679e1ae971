package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/filetest"
)

func TestServeMistakesAreExplained(t *testing.T) {
	t.Setenv(flags.KeyVariable, "")
	empty := filetest.Write(t, filepath.Join(t.TempDir(), "keys"), "# none\n\n")
	explained(t, []mistake{
		{"serve now", "-", 2, `takes no argument, but there is "now"`},
		{"serve --host 0.0.0.0", "-", 2, "--host 0.0.0.0 can be reached from other machines: set a key with --api-key or FORETOKEN_API_KEY, or add --insecure"},
		{"serve --host example.com", "-", 2, "can be reached from other machines"},
		{"serve --port 70000", "-", 2, "want a whole number from 0 to 65535"},
		{"serve --tls-cert a.pem", "-", 2, "--tls-cert and --tls-key must be set together"},
		{"serve --tls-cert none.pem --tls-key none.pem", "-", 1, "--tls-cert none.pem, --tls-key none.pem: open none.pem"},
		{"serve --no-prefix-cache --prefix-cache-dir x", "-", 2, "cannot be combined"},
		{"serve --no-prefix-cache --share-prefix-cache", "-", 2, "cannot be combined"},
		{"serve --prefix-cache-disk 1GB", "-", 2, "--prefix-cache-disk needs --prefix-cache-dir"},
		{"serve --prefix-cache-disk 1GB --prefix-cache-dir s3://b", "-", 2, "--prefix-cache-disk needs --prefix-cache-dir"},
		{"serve --prefix-cache-uses 1 --prefix-cache-dir x", "-", 2, "needs --prefix-cache-dir s3://"},
		{"serve --prefix-cache-dir x --prefix-cache-dir y", "-", 2, "at most one folder and one bucket"},
		{"serve --prefix-cache-dir s3:///x", "-", 2, "want s3://BUCKET"},
		{"serve --prefix-cache-dir gs://b/x", "-", 2, "want a folder or s3://"},
		{"serve --kv-events tcp://127.0.0.1:0 --no-prefix-cache", "-", 2, "cannot be combined"},
		{"serve --kv-events-replay tcp://127.0.0.1:0", "-", 2, "--kv-events-replay and --kv-events-name need --kv-events"},
		{"serve --kv-events tcp://127.0.0.1:0 --port 0", "-", 2, "set its name in events with --kv-events-name"},
		{"serve --kv-events tcp://127.0.0.1:0 --kv-events-name a@b", "-", 2, "want a name without @ and spaces"},
		{"serve --port 0 --kv-events 127.0.0.1:0 --kv-events-name a", "-", 2, "--kv-events 127.0.0.1:0: want tcp://HOST:PORT"},
		{"serve --port 0 --metrics-addr 9090", "-", 2, "--metrics-addr 9090: want HOST:PORT"},
		{"serve --kv-memory much", "-", 2, "want a size"},
		{"serve --kv-bits 5", "-", 2, "want 4, 8, 16 or 32"},
		{"serve --log-format xml", "-", 2, "want text or json"},
		{"serve --log-level loud", "-", 2, "want debug, info, warn or error"},
		{"serve --idle-timeout 0s", "-", 2, "want a time above 0"},
		{"serve --drain-timeout -1s", "-", 2, "want a time, 0 or more"},
		{"serve --api-key @" + empty, "-", 2, "the file has no key"},
		{"serve --api-key @none", "-", 1, "--api-key: open none"},
		{"serve --cors example.com", "-", 2, `origin "example.com": want a scheme and a host`},
		{"serve --allow-image-urls https://example.com", "-", 2, `hosts of images: "https://example.com", want HOST, HOST:PORT, *.DOMAIN or *`},
		{"serve --allow-image-urls example.com --no-vision", "-", 2, "--allow-image-urls and --no-vision cannot be combined"},
		{"serve --model tiny --model tiny", "-", 2, "another model has the name tiny"},
		{"serve --model nowhere/at-all", "-", 1, "foretoken pull nowhere/at-all fetches it"},
		{"serve --served-model-name a=b", "-", 2, "want ALIAS, or ALIAS=MODEL"},
		{"serve --drafter a=b", "-", 2, "want DRAFTER, or MODEL=DRAFTER with MODEL as in --model"},
		{"serve --pin other", "-", 2, "--pin other: it is not a model of --model"},
		{"serve --mtp=off --draft mtp", "-", 2, "--mtp=off and --draft mtp cannot be combined"},
	})
}

// listening is the address in the server's log, and what follows there.
func listening(t *testing.T, log io.Reader) (url string, rest *bufio.Reader) {
	t.Helper()
	rest = bufio.NewReader(log)
	for {
		line, err := rest.ReadString('\n')
		if err != nil {
			t.Fatalf("the server does not listen: %v %s", err, line)
		}
		if m := regexp.MustCompile(`url=(\S+)`).FindStringSubmatch(line); m != nil {
			url = m[1]
		} else if m := regexp.MustCompile(`--metrics-addr address=(\S+)`).FindStringSubmatch(line); m != nil {
			url = "http://" + m[1] // all that a worker has
		}
		if strings.Contains(line, "msg=ready") {
			return url, rest
		}
	}
}

// patience is how long tests wait for what must come. Only a fault takes that long, however
// busy the machine is.
const patience = 5 * time.Minute

// ask sends a request for tokens tokens, as a stream.
func ask(t *testing.T, url, tokens string) *http.Response {
	t.Helper()
	body := `{"prompt": "Once upon a time", "stream": true, "ignore_eos": true, "model": "gpt-4o", "max_tokens": ` + tokens + `}`
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	if a.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(a.Body)
		t.Fatalf("%d %s", a.StatusCode, data)
	}
	return a
}

// The server tells systemd when it is ready and when it ends, and ends well when it is told
// to.
func TestServeNotifiesAndDrains(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_ = l.SetReadDeadline(time.Now().Add(patience))
	t.Setenv("NOTIFY_SOCKET", socket)
	told := func() string {
		var b [64]byte
		n, err := l.Read(b[:])
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	log, stderr := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	root := newRootCommand()
	root.SetArgs(strings.Fields("serve --port 0 --threads 1 --kv-memory 64MiB --served-model-name gpt-4o"))
	root.SetErr(stderr)
	code := make(chan int, 1)
	go func() {
		code <- execute(ctx, root, stderr)
		_ = stderr.Close()
	}()
	url, rest := listening(t, log)
	var last bytes.Buffer
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		_, _ = io.Copy(&last, rest)
	}()
	if got := told(); got != "READY=1" {
		t.Errorf("told %q", got)
	}
	a := ask(t, url, "5")
	if data, err := io.ReadAll(a.Body); err != nil || !strings.HasSuffix(string(data), "data: [DONE]\n\n") {
		t.Errorf("%v %s", err, data)
	}
	cancel()
	if got := told(); got != "STOPPING=1" {
		t.Errorf("told %q", got)
	}
	if c := <-code; c != exitOK {
		t.Errorf("exit code %d", c)
	}
	<-logged
	if text := last.String(); !strings.Contains(text, "msg=request") || !strings.Contains(text, "msg=draining") {
		t.Errorf("log: %s", text)
	}
}

// One signal lets answers end; a second one ends at once. Portable code takes minutes for the
// answer that is not to end.
func TestServeSignals(t *testing.T) {
	for _, x := range []struct {
		signals int
		flags   string
		tokens  string
		whole   bool
		code    int
	}{{1, "", "200", true, exitOK}, {2, " --isa generic", "4000", false, exitInterrupted}} {
		args := strings.Fields("serve --port 0 --threads 1 --kv-memory 64MiB --served-model-name gpt-4o --drain-timeout 1h" + x.flags)
		cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
		cmd.Env = append(slices.Clone(os.Environ()), asProgram+"=1", flags.KeyVariable+"=")
		log, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		url, rest := listening(t, log)
		a := ask(t, url, x.tokens)
		for n := range x.signals {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			for n == 0 { // the second must not come before the first was heard
				line, err := rest.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(line, "msg=draining") {
					break
				}
			}
		}
		data, _ := io.ReadAll(a.Body)
		_, _ = io.Copy(io.Discard, rest)
		_ = cmd.Wait() // its exit code is looked at
		if whole := strings.HasSuffix(string(data), "data: [DONE]\n\n"); whole != x.whole || cmd.ProcessState.ExitCode() != x.code {
			t.Errorf("%d signals: the answer is whole: %v, exit code %d; want %v and %d", x.signals, whole, cmd.ProcessState.ExitCode(), x.whole, x.code)
		}
	}
}
