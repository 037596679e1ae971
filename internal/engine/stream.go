package engine

import (
	"iter"
	"sync"
	"time"

	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/sample"
)

// Token is one generated token.
type Token struct {
	ID       int32
	LogProb  float32          // the model's, of this token; 0 unless requested
	Top      []sample.LogProb // the most likely alternatives, if requested
	Hash     uint64           // Result.LogitsHash after this token; 0 unless requested
	Draft    int              // its position among the round's drafts, from 1; 0: it was not drafted
	Forced   bool             // it was drafted because nothing else could come
	Rejected []int32          // rejected drafts of the round, with its last token, if requested
}

// Result is the result of an ended request.
type Result struct {
	Finish     Finish // empty if it did not end by itself
	Prompt     int    // tokens
	Tokens     int    // generated
	Seed       uint64
	LogitsHash uint64 // over the bits of every row of logits that a token was drawn from

	Queue   time.Duration // before it was started
	Prefill time.Duration // until the first token
	Decode  time.Duration // from the first token to the last

	Cached    int     // tokens of the prompt that were found in the prefix cache
	Preempted int     // times
	Batch     float64 // sequences in its rounds, on average, itself included

	Speculation spec.Stats
}

// Stream is the reader's side of a running request. Tokens wait in the stream until they
// are read: a slow reader stalls no other request.
type Stream struct {
	mu     sync.Mutex // protects what follows
	more   sync.Cond
	tokens []Token
	ended  bool
	err    error
	result Result

	ready int // tokens that Tokens has taken and not yielded; its reader's
}

func (s *Stream) init() { s.more.L = &s.mu }

// add makes a token ready. The reader is woken by wake, once for all that are.
func (s *Stream) add(t Token) {
	s.mu.Lock()
	s.tokens = append(s.tokens, t)
	s.mu.Unlock()
}

// wake wakes all waiting goroutines: besides the reader of tokens one may wait for the end.
func (s *Stream) wake() { s.more.Broadcast() }

func (s *Stream) close(r Result, err error) {
	s.mu.Lock()
	s.ended, s.err, s.result = true, err, r
	s.mu.Unlock()
	s.more.Broadcast()
}

// Tokens yields the tokens as they come, the end token included, and at last the error if
// the request did not end by itself. It may be ranged over once.
func (s *Stream) Tokens() iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		for {
			s.mu.Lock()
			for len(s.tokens) == 0 && !s.ended {
				s.more.Wait()
			}
			batch, ended, err := s.tokens, s.ended, s.err
			s.tokens = nil
			s.mu.Unlock()
			for i, t := range batch {
				s.ready = len(batch) - 1 - i
				if !yield(t, nil) {
					return
				}
			}
			if ended && len(batch) == 0 {
				if err != nil {
					yield(Token{}, err)
				}
				return
			}
		}
	}
}

// Ready is the number of tokens after the last yielded one that are available without waiting.
// It is for loops over Tokens: the tokens of one round come together.
func (s *Stream) Ready() int { return s.ready }

// Result waits for the end of the request and describes it.
func (s *Stream) Result() Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ended {
		s.more.Wait()
	}
	return s.result
}

// Finish is the reason for the end of a text.
type Finish string

// The reasons for a text to end.
const (
	FinishStop   Finish = "stop"   // an end token
	FinishLength Finish = "length" // the limit of tokens, or of the context
)

// finishPrefill ends a background prefill.
const finishPrefill Finish = "prefill"
