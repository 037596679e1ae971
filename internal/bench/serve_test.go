package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/plot"
)

// speaker is a server that streams as OpenAI's does: a piece with the role, pieces of text,
// one with the reason to end, one with the usage, and the end.
func speaker(t *testing.T, pieces int) (*Client, *atomic.Int64) {
	t.Helper()
	var peak, now atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for n := now.Add(1); ; {
			old := peak.Load()
			if n <= old || peak.CompareAndSwap(old, n) {
				break
			}
		}
		defer now.Add(-1)
		var q struct {
			Model    string
			Stream   bool
			Messages []struct{ Role, Content string }
			Options  struct {
				Usage bool `json:"include_usage"`
			} `json:"stream_options"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.Model != "m" || !q.Stream || !q.Options.Usage || len(q.Messages) != 1 || q.Messages[0].Content == "" {
			http.Error(w, fmt.Sprintf("request %+v, error %v", q, err), http.StatusBadRequest)
			return
		}
		if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error": {"message": "wrong key"}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		say := func(data string) {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
			w.(http.Flusher).Flush()
		}
		_, _ = io.WriteString(w, ": hello\n\n")
		say(`{"choices":[{"delta":{"role":"assistant"}}]}`)
		for range pieces {
			say(`{"choices":[{"delta":{"content":"word"}}]}`)
		}
		say(`{"choices":[{"delta":{},"finish_reason":"stop"}]}`)
		say(fmt.Sprintf(`{"choices":[],"usage":{"completion_tokens":%d}}`, 2*pieces))
		say("[DONE]")
	}))
	t.Cleanup(s.Close)
	return &Client{URL: s.URL + "/v1/", Model: "m", Key: "secret", HTTP: s.Client()}, &peak
}

func TestServeLoadsAServer(t *testing.T) {
	c, peak := speaker(t, 5)
	r, err := Serve(t.Context(), c, ServeOptions{
		Classes: Classes(), Concurrency: []int{1, 4}, Rates: []float64{1000}, Requests: 6, Repeats: 2, MaxTokens: 8, TTFTGoal: time.Hour, TPOTGoal: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Loads) != 3 || r.Failed() != 0 || peak.Load() > 12 {
		t.Fatalf("%+v, %d at a time", r, peak.Load())
	}
	for i := range r.Loads {
		l := &r.Loads[i]
		if l.Tokens != 12*10 || l.TTFT.P50 <= 0 || l.Latency.P50 < l.TTFT.P50 || l.GoodShare != 1 || math.Abs(l.TokensSec*l.Seconds-120) > 1e-6 {
			t.Errorf("%s: %+v", l.name(), l)
		}
	}
	text := r.Text(plot.Style{ASCII: true})
	if !strings.Contains(text, "4 at a time") || !strings.Contains(text, "1000 per second") || !strings.Contains(text, "100 %") {
		t.Errorf("text\n%s", text)
	}
}

func TestServeTellsFaults(t *testing.T) {
	c, _ := speaker(t, 5)
	c.Key = "wrong"
	if _, err := Serve(t.Context(), c, ServeOptions{Classes: Classes(), Concurrency: []int{1}, Requests: 1, Repeats: 1}); err == nil || !strings.Contains(err.Error(), "status 401: wrong key") {
		t.Errorf("error %v", err)
	}
	// The first request goes well, later ones do not.
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) {
		case 1:
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n")
		case 2:
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusTemporaryRedirect)
		case 3:
			_, _ = io.WriteString(w, "data: {\"error\":{\"message\":\"out of memory\"}}\n\n")
		default:
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")
		}
	}))
	defer s.Close()
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r, err := Serve(t.Context(), &Client{URL: s.URL, HTTP: s.Client()}, ServeOptions{Classes: Classes(), Concurrency: []int{1}, Requests: 4, Repeats: 1})
	if err != nil || r.Failed() != 4 {
		t.Fatalf("%v, %+v", err, r)
	}
	faults := strings.Join(r.faults(), "; ")
	for _, want := range []string{"2 × the stream ended before it was done", "1 × status 307", "1 × in the stream: out of memory"} {
		if !strings.Contains(faults, want) {
			t.Errorf("no %q in %s", want, faults)
		}
	}
	if !strings.Contains(r.Text(plot.Style{}), "out of memory") {
		t.Error("the text does not tell")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Serve(ended, c, ServeOptions{Classes: Classes(), Rates: []float64{0.001}, Requests: 3, Repeats: 1}); err == nil {
		t.Error("a canceled run gives a report")
	}
}

// TestClosedConnectionsAreNoFaults has a server that closes every connection when its second
// request comes, as one does that has just given up waiting for it.
func TestClosedConnectionsAreNoFaults(t *testing.T) {
	var mu sync.Mutex
	served, closed := map[string]bool{}, 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if served[r.RemoteAddr] {
			closed++
			panic(http.ErrAbortHandler)
		}
		served[r.RemoteAddr] = true
		const answer = "data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\ndata: [DONE]\n\n"
		w.Header().Set("Content-Length", strconv.Itoa(len(answer))) // so that the client sees its end at once
		_, _ = io.WriteString(w, answer)
	}))
	defer s.Close()
	c := &Client{URL: s.URL + "/v1", Model: "m", HTTP: s.Client()}
	for i := range 5 {
		if r := c.Ask(t.Context(), Question{Prompt: "?", MaxTokens: 1}); r.Fault != "" || r.Tokens != 1 {
			t.Errorf("request %d: %+v", i, r)
		}
	}
	if closed == 0 {
		t.Error("no connection was used twice")
	}
}

// All numbers wanted here were worked out by hand.
func TestLoadArithmeticOnRecordedReplies(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	l := newLoad([]Reply{
		{First: ms(100), Last: ms(500), Tokens: 5, Gaps: []time.Duration{ms(100), ms(100), ms(200)}}, // 100 ms per token
		{First: ms(300), Last: ms(500), Tokens: 11, Gaps: []time.Duration{ms(200)}},                  // 20 ms per token
		{First: ms(200), Last: ms(200), Tokens: 1},
		{Fault: "status 500"},
	}, 2*time.Second, ms(250), ms(100))
	if l.Requests != 4 || l.Failed != 1 || l.Faults["status 500"] != 1 || l.Tokens != 17 || !near(l.TokensSec, 8.5) || !near(l.Answers, 1.5) {
		t.Errorf("%+v", l)
	}
	if !near(l.TTFT.P50, 200) || !near(l.TTFT.P90, 280) || !near(l.TPOT.P50, 60) || !near(l.ITL.P50, 150) || !near(l.Latency.P50, 500) {
		t.Errorf("%+v", l)
	}
	if !near(l.Goodput, 1) || !near(l.GoodShare, 0.5) { // the second began too late
		t.Errorf("good %v per second, share %v", l.Goodput, l.GoodShare)
	}
}

func TestStreamTimes(t *testing.T) {
	stream := "event: x\r\ndata: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\n" +
		"data:{\"choices\":[{\"delta\":{\"reasoning_content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n" +
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{}]}}]}\n\ndata: [DONE]\n"
	now := time.Duration(0)
	var r Reply
	if err := readStream(strings.NewReader(stream), &r, func() time.Duration { now += time.Second; return now }); err != nil {
		t.Fatal(err)
	}
	if r.First != time.Second || r.Last != 3*time.Second || len(r.Gaps) != 2 || r.Tokens != 3 || r.perToken() != time.Second {
		t.Errorf("%+v", r)
	}
}

func TestArrivalsArePoisson(t *testing.T) {
	const n, rate = 4000, 8.0
	at := arrivals(n, rate, 3)
	mean := at[n-1].Seconds() / (n - 1)
	variance := 0.0
	for i := 1; i < n; i++ {
		d := (at[i] - at[i-1]).Seconds() - mean
		variance += d * d / (n - 1)
	}
	// Gaps of a Poisson process are as wide as they are long: with 4,000 of them within 5 %.
	if math.Abs(mean*rate-1) > 0.05 || math.Abs(math.Sqrt(variance)*rate-1) > 0.05 || at[0] != 0 {
		t.Errorf("mean gap %v, deviation %v", mean, math.Sqrt(variance))
	}
	if again := arrivals(n, rate, 3); again[n-1] != at[n-1] {
		t.Error("the same seed gives other moments")
	}
}

func FuzzReadStream(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n"))
	f.Add([]byte("data: {\"usage\":{\"completion_tokens\":-5}}\ndata: [DONE]"))
	f.Add([]byte(": x\n\ndata: null\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Reply
		now := time.Duration(0)
		err := readStream(bytes.NewReader(data), &r, func() time.Duration { now++; return now })
		if err == nil && r.Tokens <= 0 || r.Last < r.First || r.perToken() < 0 {
			t.Errorf("%+v, error %v", r, err)
		}
	})
}
