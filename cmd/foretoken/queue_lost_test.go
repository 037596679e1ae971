package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/batch/jetstream"
	"github.com/foretoken/foretoken/internal/batch/jetstream/natstest"
)

// logged waits for a line in the log of a process.
func (p *program) logged(t *testing.T, text string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		p.mu.Lock()
		log := p.log.String()
		p.mu.Unlock()
		if strings.Contains(log, text) {
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("no %q in the log: %s", text, log)
		}
	}
}

// A server talks to its queue by TLS, as a user. When the queue is lost, in the middle of a batch,
// requests are answered and batches wait; when it is back, they go on, and each line has one result,
// that of an undisturbed run.
func TestLostQueueIsAWarning(t *testing.T) {
	const lines = faultLines / 3
	node, server := natstest.Secure(t)
	s := node.Security
	args := []string{"--queue-ca", s.CA(), "--queue-cert", s.Cert(), "--queue-key", s.Key()}
	link, err := jetstream.Dial(context.Background(), jetstream.Options{Log: slog.New(slog.DiscardHandler), Servers: []string{server}, CA: s.CA(), Cert: s.Cert(), Key: s.Key(), Credentials: s.Credentials()})
	if err != nil {
		t.Fatal(err)
	}
	link.Close()
	args = append([]string{"serve", "--port", "0", "--state-dir", t.TempDir(), "--queue", server, "--batch-lines", "2"}, args...)
	if r := runIn(t, nil, append(args, "--queue-credentials", s.Strangers())...); r.code != 1 || !strings.Contains(r.err, "--queue-credentials") {
		t.Errorf("a stranger: %+v", r)
	}
	p := start(t, append(args, "--queue-credentials", s.Credentials())...)
	want := p.answers(t, p.submit(t, lines).ID, lines)
	id := ""
	for under, end := false, time.Now().Add(patience); !under; {
		before := p.counted(t, "completed")
		id = p.submit(t, lines).ID
		for p.counted(t, "completed") == before && time.Now().Before(end) {
			time.Sleep(time.Millisecond)
		}
		node.Kill(t)
		if under = p.counted(t, "completed") < before+lines; !under { // all were faster
			node.Start(t)
			p.answers(t, id, lines)
			if time.Now().After(end) {
				t.Fatal("no batch was under way")
			}
		}
	}
	p.logged(t, "queue disconnected: requests are answered, batches wait until it is back")
	const request = `{"messages":[{"role":"user","content":"Hi."}],"max_tokens":2}`
	if a := p.ask(t, "POST", "/v1/chat/completions", "application/json", strings.NewReader(request), nil); !strings.Contains(a, "choices") {
		t.Error(a)
	}
	if m := p.ask(t, "GET", "/metrics", "", nil, nil); !strings.Contains(m, "foretoken_batch_queue_connected 0") {
		t.Error("the queue is said to be connected")
	}
	node.Start(t)
	p.logged(t, "queue reconnected")
	same(t, p.answers(t, id, lines), want)
	same(t, p.answers(t, p.submit(t, lines).ID, lines), want)
}
