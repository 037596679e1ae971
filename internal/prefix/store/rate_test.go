package store

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestWorthIsMonotone draws stores, models and prefixes at random. More bytes, more requests, a
// slower store or a faster model never make fetching pay that did not; more tokens never stop it.
// What it says is what the times say.
func TestWorthIsMonotone(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	yes, no := 0, 0
	for range 20000 {
		r := rates{latency: rng.Float64() / 4, bytes: 1e5 + rng.Float64()*1e9}
		token := rng.Float64() / 1000
		tokens, requests, bytes := rng.IntN(100_000), 1+rng.IntN(1000), rng.Int64N(1<<31)
		if !worth(r, token, tokens, requests, bytes) {
			no++
			if worth(r, token, tokens, requests, bytes+rng.Int64N(1<<31)) || worth(r, token, tokens, requests+rng.IntN(1000), bytes) ||
				worth(rates{r.latency * (1 + rng.Float64()), r.bytes / (1 + rng.Float64())}, token, tokens, requests, bytes) ||
				worth(r, token/(1+rng.Float64()), tokens, requests, bytes) && token > 0 {
				t.Fatalf("%+v, %v s a token: %d tokens in %d requests of %d bytes do not pay, but more do", r, token, tokens, requests, bytes)
			}
			if spent := r.takes(requests, bytes); spent < token*float64(tokens) {
				t.Fatalf("%v s to fetch what takes %v s", spent, token*float64(tokens))
			}
		} else {
			yes++
			if !worth(r, token, tokens+rng.IntN(1000), requests, bytes) {
				t.Fatalf("%+v: %d tokens pay, more do not", r, tokens)
			}
		}
		if !worth(rates{}, token, tokens, requests, bytes) || !worth(r, 0, tokens, requests, bytes) {
			t.Fatal("what is not known is not tried")
		}
	}
	if yes < 1000 || no < 1000 {
		t.Errorf("%d pay and %d do not: the test is about nothing", yes, no)
	}
}

// TestSpeedFollowsAStore measures stores whose latency and rate are known.
func TestSpeedFollowsAStore(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	now := time.Unix(1e9, 0)
	for range 200 {
		var s speed
		want := rates{latency: 1e-4 + rng.Float64()/10, bytes: 1e6 + rng.Float64()*1e9}
		for range 40 {
			now = now.Add(time.Second)
			s.small(now, time.Duration(want.latency*1e9))
			requests, bytes := 1+rng.IntN(50), 1e6+rng.Int64N(1e9)
			s.fetched(now, requests, bytes, time.Duration(want.takes(requests, bytes)*1e9))
		}
		got := s.now(now)
		if got.latency < 0.99*want.latency || got.latency > 1.01*want.latency || got.bytes < 0.5*want.bytes || got.bytes > 12*want.bytes {
			t.Fatalf("%+v was measured as %+v", want, got)
		}
		if got := s.now(now.Add(speedForgotten + 1)); got != (rates{}) {
			t.Fatalf("%+v is still believed", got)
		}
	}
}

// TestHealthWaitsLongerAndWarnsOnce follows a store that fails again and again.
func TestHealthWaitsLongerAndWarnsOnce(t *testing.T) {
	var h health
	now := time.Unix(1e9, 0)
	warned, last := 0, time.Duration(0)
	for range 100 {
		if h.fail(now) {
			warned++
		}
		if h.due(now) || !h.due(now.Add(longWait)) || h.wait < last {
			t.Fatalf("%+v at %v", h, now)
		}
		last = h.wait
		now = now.Add(time.Millisecond)
	}
	if warned != 1 || h.wait != longWait {
		t.Errorf("%d warnings, then %v between attempts", warned, h.wait)
	}
	// It answers, but fails as soon as it is used.
	for range 10 {
		if !h.answered(false) {
			t.Error("that it works again is not told")
		}
		now = now.Add(time.Second)
		if h.fail(now) {
			warned++
		}
	}
	if warned != 1 || h.wait != longWait {
		t.Errorf("%d warnings, then %v between attempts", warned, h.wait)
	}
	h.answered(true)
	if h.fail(now.Add(time.Hour)); h.wait != firstWait {
		t.Errorf("after it was good for something: %v", h.wait)
	}
}
