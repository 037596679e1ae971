package body

import (
	"time"

	"github.com/foretoken/foretoken/internal/rescue"
)

// Mark adds an event that is a word and no JSON, as some protocols end a stream.
func (s *Stream) Mark(word string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.WriteString("data: " + word + "\n\n")
}

// Comment adds a comment, which readers of events skip.
func (s *Stream) Comment(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.WriteString(": " + text + "\n\n")
}

// KeepAlive calls beat, which writes something, from time to time and flushes the stream:
// proxies close silent connections while a long prompt is read. The function it returns ends
// that, and must be called before the handler of the request returns. A panic of beat is raised
// there, where a request has its net.
func (s *Stream) KeepAlive(every time.Duration, beat func()) (stop func()) {
	ticker := time.NewTicker(every)
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- rescue.Do(func() error {
			for {
				select {
				case <-ticker.C:
					beat()
					s.Flush()
				case <-done:
					return nil
				}
			}
		})
	}()
	return func() {
		ticker.Stop()
		close(done)
		if err := <-ended; err != nil {
			panic(err)
		}
	}
}
