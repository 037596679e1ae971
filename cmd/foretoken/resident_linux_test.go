package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/filetest"
)

// TestServeKeepsToItsMemory fills the KV memory of a real server, by requests of all
// kinds at once with prompts without common prefixes, and checks the peak memory of the
// process against the limit: weights, --kv-memory, and 150 MB for the rest.
func TestServeKeepsToItsMemory(t *testing.T) {
	const budget, rest = 64 << 20, 150_000_000
	cmd := exec.CommandContext(t.Context(), os.Args[0], "serve", "--port", "0", "--kv-memory", strconv.Itoa(budget), "--served-model-name", "gpt-4o")
	cmd.Env = append(slices.Clone(os.Environ()), asProgram+"=1", flags.KeyVariable+"=")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	url, more := listening(t, log)
	go func() { _, _ = io.Copy(io.Discard, more) }()
	metric := func(name string) float64 {
		t.Helper()
		for line := range strings.Lines(get(t, url+"/metrics")) {
			if value, ok := strings.CutPrefix(line, name+`{model_name="tiny"} `); ok {
				x, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
				if err != nil {
					t.Fatal(err)
				}
				return x
			}
		}
		return 0
	}
	var next sync.Mutex
	rng := rand.New(rand.NewPCG(5, 5))
	request := func() string {
		next.Lock()
		defer next.Unlock()
		var words strings.Builder
		length := 30 + rng.IntN(30)
		if rng.IntN(8) == 0 {
			length = 400
		}
		for range length {
			fmt.Fprintf(&words, "%d ", rng.IntN(1000))
		}
		extra := []string{
			``, `, "stream": true`, `, "n": 3`, `, "logprobs": true, "top_logprobs": 5`,
			fmt.Sprintf(`, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"p%d": {"type": "string"}}}}}`, rng.IntN(1000)),
		}[rng.IntN(5)]
		return fmt.Sprintf(`{"messages": [{"role": "user", "content": "%s"}], "max_tokens": %d, "chat_template_kwargs": {"enable_thinking": true}%s}`, words.String(), 4+rng.IntN(12), extra)
	}
	var users sync.WaitGroup
	for range 24 {
		users.Go(func() {
			for range 50 { // far more than it takes
				if metric("foretoken_kv_used_bytes") > 0.9*budget {
					return
				}
				a, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(request()))
				if err != nil {
					t.Error(err)
					return
				}
				if data, err := io.ReadAll(a.Body); err != nil || a.StatusCode != http.StatusOK {
					t.Errorf("%d %v %.200s", a.StatusCode, err, data)
				}
				_ = a.Body.Close()
			}
		})
	}
	users.Wait()
	// Garbage: a collector that counted the sequences as its own would let as much again pile up.
	large := `{"messages": [{"role": "absent", "content": "` + strings.Repeat("a long text ", 170_000) + `"}]}`
	for range 60 {
		a, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(large))
		if err != nil {
			t.Fatal(err)
		}
		if _ = a.Body.Close(); a.StatusCode != http.StatusBadRequest {
			t.Fatalf("status %d", a.StatusCode)
		}
	}
	if used := metric("foretoken_kv_used_bytes"); used < 0.85*budget {
		t.Errorf("only %.0f of %d bytes were filled", used, budget)
	}
	peak := peakMemory(t, cmd.Process.Pid)
	weights := float64(foretoken.Size(foretoken.Tiny, foretoken.Options{}))
	t.Logf("at most %.1f MB resident: weights %.1f MB, sequences %.1f MB, and %.1f MB", float64(peak)/1e6, weights/1e6, budget/1e6, (float64(peak)-weights-budget)/1e6)
	if float64(peak) > weights+budget+rest {
		t.Errorf("the process had %d bytes, want at most %.0f of weights + %d of sequences + %d", peak, weights, budget, rest)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// get is the body of a page.
func get(t *testing.T, url string) string {
	t.Helper()
	a, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	data, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// peakMemory is the maximum resident size of a process, in bytes.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	data := filetest.Read(t, fmt.Sprintf("/proc/%d/status", pid))
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("the system does not tell")
	return 0
}
