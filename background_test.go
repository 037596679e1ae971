package foretoken

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/sample"
)

// thoughtful is a request whose answer has a think block, so that the next turn's prompt differs from
// the prompt and the answer of this one.
func thoughtful(p *Prompt) Request {
	return Request{Prompt: p, MaxTokens: 30, MaxThinking: 10, Sampling: &sample.Options{Seed: 1, Temperature: 0.8}}
}

// TestBackgroundPrefillLeavesTheQueueAlone has a thinking answer end while the only place is
// taken by another, and the only place to wait is free: a request may wait there.
func TestBackgroundPrefillLeavesTheQueueAlone(t *testing.T) {
	m := openThinking(t, Options{KVMemory: 1 << 30, MaxBatch: 1, MaxQueue: 1})
	first, err := m.Generate(t.Context(), thoughtful(ask(t, m, say("Tell me a story about a cat.", true))))
	if err != nil {
		t.Fatal(err)
	}
	endless, cancel := context.WithCancel(t.Context())
	defer cancel()
	var second *Answer
	for _, err := range first.Pieces() {
		if err == nil && second == nil { // the first runs: one may wait
			second, err = m.Generate(endless, Request{Prompt: m.TextPrompt("Once"), IgnoreEnd: true, Sampling: &sample.Options{}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range second.Pieces() { // it runs, and takes the only place
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Generate(endless, Request{Prompt: m.TextPrompt("Once"), Sampling: &sample.Options{}}); err != nil {
			t.Errorf("no request waits, and yet: %v", err)
		}
		break
	}
}

// TestNextTurnIsPreparedAfterTheLastEvent holds the order: all pieces, the end of what the
// caller sends, and then the preparation.
func TestNextTurnIsPreparedAfterTheLastEvent(t *testing.T) {
	for _, sends := range []bool{false, true} {
		m := openThinking(t, Options{KVMemory: 1 << 30})
		var mu sync.Mutex // protects what follows
		var events []string
		event := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, name)
		}
		m.preparing = func() { event("prepared") }
		r := thoughtful(ask(t, m, say("Tell me a story about a cat.", true)))
		sent := make(chan struct{})
		if sends {
			r.sent = sent
		}
		a, err := m.Generate(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range a.Pieces() {
			if err != nil {
				t.Fatal(err)
			}
			event("piece")
		}
		if sends {
			event("sent")
			close(sent)
		}
		m.warming.Wait()
		at := slices.Index(events, "prepared")
		if at != len(events)-1 || sends && events[at-1] != "sent" {
			t.Errorf("sends %v: %q", sends, events)
		}
		if s := m.engine.Stats().Background; s.Completed != 1 {
			t.Errorf("sends %v: %+v", sends, s)
		}
	}
}

// TestCloseDropsPreparation closes a model whose answer was never delivered.
func TestCloseDropsPreparation(t *testing.T) {
	m := openThinking(t, Options{KVMemory: 1 << 30})
	m.preparing = func() { t.Error("the next turn is prepared for") }
	r := thoughtful(ask(t, m, say("Tell me a story about a cat.", true)))
	r.sent = make(chan struct{})
	collect(t, m, r)
	if err := m.engine.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	// The cleanup closes it.
}

// TestPreparationThatPanicsEndsNothing has the preparation of a turn fail, as a template
// could make it.
func TestPreparationThatPanicsEndsNothing(t *testing.T) {
	m := openThinking(t, Options{KVMemory: 1 << 30})
	var log bytes.Buffer
	m.log = slog.New(slog.NewTextHandler(&log, nil))
	m.preparing = func() { panic("blown") }
	r := thoughtful(ask(t, m, say("Tell me a story about a cat.", true)))
	first := collect(t, m, r)
	m.warming.Wait()
	if n := strings.Count(log.String(), "stack=\"goroutine"); n != 1 {
		t.Errorf("%d stacks in the log: %s", n, log.String())
	}
	m.preparing = nil
	if second := collect(t, m, r); second.Text() != first.Text() {
		t.Errorf("%q, then %q", first.Text(), second.Text())
	}
}

// TestConversationIsKnownByItsBeginning compares the names of turns.
func TestConversationIsKnownByItsBeginning(t *testing.T) {
	m := openThinking(t, Options{})
	c := say("Tell me a story about a cat.", true)
	first := ask(t, m, c)
	c.Messages = append(c.Messages,
		chat.Message{Role: "assistant", Content: chat.Text("There was a cat.")}, chat.Message{Role: "user", Content: chat.Text("And then?")})
	second, other := ask(t, m, c), ask(t, m, say("Tell me a story about a dog.", true))
	var none prefix.Salt
	key := m.text.Key(first.inner(), none)
	if key == "" || m.text.Key(second.inner(), none) != key || m.text.Key(other.inner(), none) == key || m.text.Key(first.inner(), prefix.Salt{1}) == key {
		t.Errorf("%x, then %x; another %x, with a salt %x", key, m.text.Key(second.inner(), none), m.text.Key(other.inner(), none), m.text.Key(first.inner(), prefix.Salt{1}))
	}
	if key := m.text.Key(m.TextPrompt("Once").inner(), none); key != "" {
		t.Errorf("a text is the conversation %x", key)
	}
}
