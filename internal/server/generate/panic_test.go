package generate_test

import (
	"errors"
	"iter"
	"net/http"
	"strings"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/rescue"
	"github.com/foretoken/foretoken/internal/server/generate"
)

// breaking is a service whose answers panic after some pieces; only those of one seed, unless it
// is 0.
func breaking(after int, seed uint64) *generate.Service {
	h := *service
	h.Read = func(a *foretoken.Answer) iter.Seq2[foretoken.Piece, error] {
		return func(yield func(foretoken.Piece, error) bool) {
			n := 0
			for p, err := range a.Pieces() {
				if n++; n > after && (seed == 0 || a.Seed == seed) {
					panic("of the test")
				}
				if !yield(p, err) {
					return
				}
			}
		}
	}
	return &h
}

// TestEventsSurvivePanics makes the reading of one answer panic, alone and among others, at once
// and later: the run ends with an internal error, and the log gets the stack.
func TestEventsSurvivePanics(t *testing.T) {
	seed := uint64(7)
	for _, choices := range []int{1, 3} {
		for _, after := range []int{0, 3} {
			request := &generate.Request{Text: "Once upon a time", Choices: choices, Sampling: generate.Sampling{Seed: &seed}, Request: foretoken.Request{MaxTokens: 40, IgnoreEnd: true}}
			run, err := breaking(after, seed+uint64(choices)-1).Start(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			var last *generate.Error
			pieces := 0
			for e, err := range run.Events() {
				if errors.As(err, &last) {
					break
				}
				if e.Choice == choices-1 {
					pieces++
				}
			}
			run.Close()
			if last == nil || last.Status != http.StatusInternalServerError || last.Kind != generate.Internal || last.Message != "panic: of the test" {
				t.Errorf("%d choices: ended with %v", choices, last)
			} else if !strings.Contains(rescue.Stack(last.Err), "panic_test.go:") {
				t.Errorf("no stack: %v", last.Err)
			}
			if pieces != after {
				t.Errorf("%d choices: %d pieces of the broken answer, want %d", choices, pieces, after)
			}
		}
	}
	// The model continues.
	if got := play(t, &generate.Request{Text: "Once upon a time", Request: foretoken.Request{MaxTokens: 5, IgnoreEnd: true}}); len(got.Answers[0].Tokens) != 5 {
		t.Errorf("%d tokens after the panics", len(got.Answers[0].Tokens))
	}
}

// TestEventsLeavePanicsOfReaders checks that a panic of the reader of events is not made an
// error of the answer: the reader has its own recovery.
func TestEventsLeavePanicsOfReaders(t *testing.T) {
	for _, choices := range []int{1, 2} {
		run, err := service.Start(t.Context(), &generate.Request{Text: "Once", Choices: choices, Request: foretoken.Request{MaxTokens: 3, IgnoreEnd: true}})
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if p := recover(); p != "of the reader" {
					t.Errorf("%d choices: %v", choices, p)
				}
			}()
			for range run.Events() { //nolint:errcheck // it does not get that far
				panic("of the reader")
			}
		}()
		run.Close()
	}
}
