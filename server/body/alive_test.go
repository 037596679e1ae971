package body

import (
	"net/http/httptest"
	"strings"
	"testing"
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
