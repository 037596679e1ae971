package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// prefillNow prefills a prompt in the background and waits for it.
func prefillNow(t *testing.T, e *Engine, p Prefill) {
	t.Helper()
	before := e.Stats().Background.Completed
	<-prefill(t, e, p)
	if e.Stats().Background.Completed != before+1 {
		t.Fatalf("%d tokens were not read to their end: %+v", len(p.Prompt), e.Stats().Background)
	}
}

func prefill(t *testing.T, e *Engine, p Prefill) <-chan struct{} {
	t.Helper()
	done, err := e.Prefill(p)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// recorder is a gated model that records the tokens of its rounds, as text.
type recorder struct {
	*gated
	rounds []string
}

func (m *recorder) Forward(batch []model.Span) (model.Output, error) {
	round := ""
	for _, s := range batch {
		round += fmt.Sprint(s.Tokens, s.Drafts, " ")
	}
	m.rounds = append(m.rounds, round)
	return m.gated.Forward(batch)
}

// backgroundEngine is an engine with a cache on a real model. Its rounds wait for the test.
func backgroundEngine(t *testing.T, o Options) (*Engine, *recorder) {
	t.Helper()
	m, pool := openModel(t, golden.Dir(t, "dense"), model.Options{})
	r := &recorder{gated: &gated{m, make(chan int32), make(chan struct{})}}
	o.Cache, o.Drafter, o.Log = true, m.Drafter(), quiet
	e, err := New(r, pool, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			e.Close()
			close(closed)
		}()
		r.passUntil(closed)
		if s := pool.Stats(); s.Used != 0 || s.States != 0 {
			t.Errorf("left behind %+v", s)
		}
	})
	return e, r
}

func begin(t *testing.T, e *Engine, r Request) *Stream {
	t.Helper()
	r.IgnoreEnd = true
	s, err := e.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ended is closed when a request has ended.
func ended(list ...*Stream) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		for _, s := range list {
			s.Result()
		}
		close(done)
	}()
	return done
}

// TestPrefillIsNoRequest has a hundred background prefills wait while the only place is taken: they do not count as waiting
// requests, and their number is limited.
func TestPrefillIsNoRequest(t *testing.T) {
	e, m := backgroundEngine(t, Options{MaxBatch: 1, MaxQueue: 2})
	streams := []*Stream{begin(t, e, Request{Prompt: prompt(20, 1), MaxTokens: 2})}
	<-m.begun
	var waits []<-chan struct{}
	for i := range 100 {
		waits = append(waits, prefill(t, e, Prefill{Conversation: fmt.Sprint(i), Prompt: prompt(30, i)}))
	}
	for i := range 2 {
		streams = append(streams, begin(t, e, Request{Prompt: prompt(20, 2+i), MaxTokens: 2}))
	}
	if _, err := e.Generate(t.Context(), Request{Prompt: prompt(3, 9)}); !errors.Is(err, ErrBusy) {
		t.Errorf("a third that waits: %v", err)
	}
	if s := e.Stats(); s.Waiting != 2 || s.Background.Waiting != maxBackground || s.Background.Dropped != 100-maxBackground {
		t.Errorf("%d requests wait, %+v", s.Waiting, s.Background)
	}
	for i, done := range waits[:100-maxBackground] {
		if !over(done) {
			t.Errorf("prompt %d has not been dropped", i)
		}
	}
	m.let <- struct{}{}
	m.passUntil(ended(streams...))
	for i, done := range waits[100-maxBackground:] {
		m.passUntil(done)
		if read := e.Stats().Background.Completed; read < int64(i+1) {
			t.Errorf("%d prompts were read after %d", read, i+1)
		}
	}
	s := e.Stats()
	if s.Rounds != 6 || s.PromptTokens != 60 || s.Finished[FinishLength] != 3 || len(s.Finished) != 1 || s.Background.Tokens == 0 || s.Preemptions != 0 {
		t.Errorf("%+v", s)
	}
}

// TestPrefillIsInNoRoundOfOthers compares the rounds of a request with and without a waiting background prefill: they have
// the same tokens.
func TestPrefillIsInNoRoundOfOthers(t *testing.T) {
	var plain []string
	for _, pending := range []bool{false, true} {
		e, m := backgroundEngine(t, Options{})
		s := begin(t, e, Request{Prompt: prompt(100, 1), MaxTokens: 20, Depth: 3})
		<-m.begun
		var done <-chan struct{}
		if pending {
			done = prefill(t, e, Prefill{Conversation: "a", Prompt: prompt(90, 2)})
		}
		m.let <- struct{}{}
		m.passUntil(ended(s))
		if !pending {
			plain = m.rounds
			continue
		}
		m.passUntil(done)
		if len(m.rounds) <= len(plain) || !slices.Equal(m.rounds[:len(plain)], plain) {
			t.Errorf("rounds with a background prefill:\n%s\nwithout:\n%s", m.rounds, plain)
		}
	}
}

// TestPrefillGivesWay has a request of another conversation arrive during a background prefill, and later one of the same
// conversation.
func TestPrefillGivesWay(t *testing.T) {
	e, m := backgroundEngine(t, Options{RoundTokens: 64}) // so that no prefill is a single chunk, whatever rounds take
	text := prompt(80, 2)
	done := prefill(t, e, Prefill{Conversation: "a", Prompt: text})
	<-m.begun
	other := begin(t, e, Request{Prompt: prompt(70, 1), MaxTokens: 4, Conversation: "b"})
	m.let <- struct{}{}
	for range 5 { // its prompt up to the last whole page, the rest of it, three tokens
		m.pass()
	}
	<-m.begun
	page := prompt(70, 1)[:64]
	for i, round := range m.rounds {
		ours := strings.HasPrefix(fmt.Sprint(text), strings.Split(round, "]")[0])
		if want := i == 0; i < 6 && (ours != want || i == 1 && round != fmt.Sprint(page, 0, " ")) {
			t.Errorf("round %d is %s", i, round)
		}
	}
	if other.Result().Finish != FinishLength {
		t.Error("the request has not ended")
	}
	m.let <- struct{}{}
	// The prefill continues where it stopped: no token is fed twice.
	m.passUntil(done)
	if s := e.Stats().Background; s.Tokens != int64(len(text)) || s.Completed != 1 {
		t.Errorf("%+v, want %d tokens", s, len(text))
	}
	rest := slices.Concat(text, prompt(90, 5))
	done = prefill(t, e, Prefill{Conversation: "a", Prompt: rest})
	<-m.begun
	same := begin(t, e, Request{Prompt: append(rest, 1), MaxTokens: 2, Conversation: "a"})
	late := prefill(t, e, Prefill{Conversation: "a", Prompt: rest})
	if !over(late) {
		t.Error("the conversation's next turn is here, and yet its prompt is to be prefilled in the background")
	}
	m.let <- struct{}{}
	m.pass() // the request's first round: the other has been dropped before it
	if !over(done) {
		t.Error("the prompt is still to be prefilled in the background")
	}
	m.passUntil(ended(same))
	if r := same.Result(); r.Cached < len(text) {
		t.Errorf("%d tokens known of the %d that had been read", r.Cached, len(text))
	}
	if s := e.Stats().Background; s.Waiting != 0 || s.Dropped != 2 {
		t.Errorf("%+v", s)
	}
}

// TestPrefillIsReplacedByTheNextTurn has two prefills of a conversation arrive while a request runs, and a third while the
// second runs.
func TestPrefillIsReplacedByTheNextTurn(t *testing.T) {
	e, m := backgroundEngine(t, Options{RoundTokens: 32}) // so that no prefill is a single chunk, whatever rounds take
	begin(t, e, Request{Prompt: prompt(20, 1), MaxTokens: 3})
	<-m.begun
	first := prefill(t, e, Prefill{Conversation: "a", Prompt: prompt(70, 2)})
	second := prefill(t, e, Prefill{Conversation: "a", Prompt: prompt(70, 3)})
	if !over(first) || over(second) || e.Stats().Background.Waiting != 1 {
		t.Errorf("first over %v, second over %v, %+v", over(first), over(second), e.Stats().Background)
	}
	m.let <- struct{}{}
	for range 2 {
		m.pass()
	}
	<-m.begun // of the second
	third := prefill(t, e, Prefill{Conversation: "a", Prompt: prompt(70, 4)})
	m.let <- struct{}{}
	m.pass()
	if !over(second) {
		t.Error("the second is still being read")
	}
	m.passUntil(third)
	if x := e.Stats().Background; x.Completed != 1 || x.Dropped != 2 || x.Waiting != 0 {
		t.Errorf("%+v", x)
	}
}

// TestDrainDropsPrefill drains an engine with a running and with waiting background prefills.
func TestDrainDropsPrefill(t *testing.T) {
	e, m := backgroundEngine(t, Options{})
	list := []<-chan struct{}{
		prefill(t, e, Prefill{Conversation: "a", Prompt: prompt(200, 2)}), prefill(t, e, Prefill{Conversation: "b", Prompt: prompt(200, 3)}),
	}
	<-m.begun
	drained := make(chan error)
	go func() { drained <- e.Drain(t.Context()) }()
	for draining := false; !draining; {
		e.locked(func() { draining = e.draining })
	}
	m.let <- struct{}{} // there is no further round
	if err := <-drained; err != nil {
		t.Error(err)
	}
	for i, done := range list {
		if !over(done) {
			t.Errorf("prompt %d is still to be read", i)
		}
	}
	if _, err := e.Prefill(Prefill{Prompt: prompt(3, 1)}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Drain: %v", err)
	}
}

// TestPrefillTakesNoMemoryOfNewer fills the cache while a background prefill waits: it evicts entries that were last used
// before it was created, and no others.
func TestPrefillTakesNoMemoryOfNewer(t *testing.T) {
	m, b := openOn(t, golden.Dir(t, "dense"), model.Options{})
	probe := &Engine{model: m}
	known := func(e *Engine, seed int) int {
		t.Helper()
		_, r, err := collect(e, Request{Prompt: prompt(150, seed), MaxTokens: 1})
		if err != nil {
			t.Fatal(err)
		}
		return r.Cached
	}
	ample := state.NewPool(b, 1<<30)
	e, err := New(m, ample, Options{Cache: true})
	if err != nil {
		t.Fatal(err)
	}
	known(e, 1)
	known(e, 1)
	entries := ample.Used()
	e.Close()
	for _, newer := range []bool{false, true} {
		pool := state.NewPool(b, entries+probe.bytes(250)-1) // one of them has to go
		e, err := New(m, pool, Options{Cache: true, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if known(e, 1) != 0 || known(e, 1) != 128 {
			t.Fatal("the cache does not have what it should")
		}
		if newer { // than something that came before anything was cached
			e.locked(func() {
				s, err := newSequence(Request{Prompt: prompt(250, 2), Conversation: "a"}, m.Info(), 300)
				if err != nil {
					t.Error(err)
					return
				}
				s.background, s.prefixAsked = &job{done: make(chan struct{})}, true // age 0: before everything
				e.background.waiting = append(e.background.waiting, s)
				e.signal()
			})
			for e.Stats().Background.Waiting > 0 {
				e.signal()
			}
		} else {
			<-prefill(t, e, Prefill{Conversation: "a", Prompt: prompt(250, 2)})
		}
		s := e.Stats().Background
		if newer && (s.Dropped != 1 || known(e, 1) != 128) || !newer && (s.Completed != 1 || known(e, 1) == 128) {
			t.Errorf("newer %v: %+v", newer, s)
		}
		e.Close()
		if s := pool.Stats(); s.Used != 0 || s.States != 0 {
			t.Errorf("left behind %+v", s)
		}
	}
}

// whole counts the spans of which all rows are to be computed to the end.
type whole struct {
	*headed
	n int
}

func (m *whole) Forward(batch []model.Span) (model.Output, error) {
	for i := range batch {
		if !batch[i].Short {
			m.n++
		}
	}
	return m.headed.Forward(batch)
}

// TestPrefillComputesRowsInShort prefills a prompt in the background, and then runs it, without a drafter and with one that is fed all
// rows.
func TestPrefillComputesRowsInShort(t *testing.T) {
	for _, drafts := range []bool{false, true} {
		h, pool := openModel(t, golden.Dir(t, "dense"), model.Options{})
		m, o := &whole{headed: h}, Options{Cache: true, Log: quiet}
		if drafts {
			o.Drafter = h.Drafter()
		}
		e, err := New(m, pool, o)
		if err != nil {
			t.Fatal(err)
		}
		<-prefill(t, e, Prefill{Conversation: "a", Prompt: prompt(100, 2)})
		if _, r, err := collect(e, Request{Prompt: prompt(150, 2), MaxTokens: 2}); err != nil || r.Cached < 64 {
			t.Errorf("%d tokens from the cache, %v", r.Cached, err)
		}
		e.Close()
		if m.n > 0 != drafts {
			t.Errorf("drafter %v: %d spans are computed to the end in all rows", drafts, m.n)
		}
	}
}
