package engine

import (
	"testing"
	"testing/synctest"
)

// TestStreamWakesTheReaderOfTokens has one goroutine wait for the end of a request, and then one for its tokens: a token
// wakes the second.
func TestStreamWakesTheReaderOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Stream
		s.init()
		ended := make(chan Result, 1)
		go func() { ended <- s.Result() }()
		synctest.Wait() // it waits first, and is the first to be woken
		read := make(chan int32, 2)
		go func() {
			for token := range s.Tokens() { //nolint:errcheck // it has no fault
				read <- token.ID
			}
			close(read)
		}()
		synctest.Wait()
		s.add(Token{ID: 7})
		s.wake()
		synctest.Wait()
		select {
		case id := <-read:
			if id != 7 {
				t.Errorf("read %d, want 7", id)
			}
		default:
			t.Error("the token is there and its reader sleeps")
		}
		s.close(Result{Tokens: 1}, nil)
		if r := <-ended; r.Tokens != 1 {
			t.Errorf("%+v", r)
		}
		synctest.Wait()
	})
}
