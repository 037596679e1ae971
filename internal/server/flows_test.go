package server

import (
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestClientsHaveTheirOwnFlow has one client fill the queue: its next request is refused, and that
// of another client waits. A client is a key, or without keys an address.
func TestClientsHaveTheirOwnFlow(t *testing.T) {
	for name, c := range map[string]struct {
		keys            *Keys
		one, same, next [2]string // key and address
	}{
		"keys":      {keysOf(t, "anna", "bert"), [2]string{"anna", "192.0.2.1:1"}, [2]string{"anna", "192.0.2.2:2"}, [2]string{"bert", "192.0.2.1:3"}},
		"addresses": {nil, [2]string{"", "192.0.2.1:1"}, [2]string{"", "192.0.2.1:2"}, [2]string{"", "192.0.2.2:3"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, func(o *Options) {
				o.Keys, o.Models[0].Options.MaxBatch, o.Models[0].Options.MaxQueue = c.keys, 1, 1
			})
			// The first round waits for this lock when it is counted, and everything after it.
			counting := &r.entry("tiny").rate.mu
			counting.Lock()
			send := func(client [2]string) int {
				q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+chatPath, strings.NewReader(hello))
				if err != nil {
					t.Error(err)
					return 0
				}
				q.Header.Set("X-Api-Key", client[0])
				q.RemoteAddr = client[1]
				w := newAnswer()
				r.Handler().ServeHTTP(w, q)
				return w.status
			}
			var all sync.WaitGroup
			for i, client := range [][2]string{c.one, c.same, c.next} {
				if i == 2 {
					if status := send(c.same); status != http.StatusTooManyRequests {
						t.Errorf("the client that fills the queue: status %d", status)
					}
				}
				ended := make(chan int, 1)
				all.Go(func() {
					status := send(client)
					if ended <- status; status != http.StatusOK {
						t.Errorf("request %d: status %d", i, status)
					}
				})
				until(t, "the request waits or is refused", func() bool {
					s := r.stats()
					return s.Running == 1 && s.Waiting == i || len(ended) > 0
				})
			}
			counting.Unlock()
			all.Wait()
		})
	}
}
