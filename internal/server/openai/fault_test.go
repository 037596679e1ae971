package openai

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
)

// A server that ends in the middle of answers reports it in their streams.
func TestStreamsTellOfFaults(t *testing.T) {
	h, server, _ := generatetest.ServeSlow(t, Register)
	const endless = `"model": "slow", "stream": true, "logit_bias": {"8183": -100, "8185": -100}`
	ask := map[string]string{
		chatPath:      `{"messages": [{"role": "user", "content": "Hello."}], ` + endless + `}`,
		textPath:      `{"prompt": "Once", "max_tokens": 1000, ` + endless + `}`,
		responsesPath: `{"input": "Hello.", ` + endless + `}`,
	}
	want := map[string]string{
		chatPath:      `data: {"error":{"message":"the server is shutting down","type":"server_error","param":null,"code":"unavailable"}}`,
		textPath:      `data: {"error":{"message":"the server is shutting down","type":"server_error","param":null,"code":"unavailable"}}`,
		responsesPath: `data: {"type":"response.failed",`,
	}
	readers := map[string]*bufio.Scanner{}
	for path, request := range ask {
		resp, err := http.Post(server.URL+path, "application/json", strings.NewReader(request))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		readers[path] = bufio.NewScanner(resp.Body)
		readers[path].Buffer(nil, 1<<20)
		for range 4 { // it has begun
			if !readers[path].Scan() {
				t.Fatalf("%s ended: %v", path, readers[path].Err())
			}
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Library.Drain(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Drain: %v", err)
	}
	for path, lines := range readers {
		last := ""
		for lines.Scan() {
			if lines.Text() != "" {
				last = lines.Text()
			}
		}
		if !strings.HasPrefix(last, want[path]) || lines.Err() != nil {
			t.Errorf("%s ends with %.200s, %v", path, last, lines.Err())
		}
	}
}
