package body

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestKeepAliveBeatsUntilItIsStopped(t *testing.T) {
	w := httptest.NewRecorder()
	s := Events(w)
	beats := make(chan struct{})
	stop := s.KeepAlive(time.Microsecond, func() {
		s.Comment("beat")
		select {
		case beats <- struct{}{}:
		default:
		}
	})
	<-beats
	<-beats
	stop()
	s.Send("", 1)
	s.Mark("[DONE]")
	s.Flush()
	text := w.Body.String()
	if rest := strings.TrimLeft(text, ": beat\n"); rest != "data: 1\n\ndata: [DONE]\n\n" || !w.Flushed {
		t.Errorf("%q, flushed %v", text, w.Flushed)
	}
}

// TestKeepAliveRaisesPanics has the beat panic: it is raised where the handler ends it.
func TestKeepAliveRaisesPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Events(httptest.NewRecorder())
		stop := s.KeepAlive(time.Second, func() { panic("of the test") })
		time.Sleep(3 * time.Second)
		defer func() {
			if err, ok := recover().(error); !ok || err.Error() != "panic: of the test" {
				t.Errorf("%v, want the panic", err)
			}
		}()
		stop()
	})
}
