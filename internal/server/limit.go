package server

import (
	"net"
	"sync"
)

// perKey counts the requests that run for each key.
type perKey struct {
	max int // requests per key; 0: unlimited

	mu      sync.Mutex // protects what follows
	running map[string]int
}

func newPerKey(max int) *perKey { return &perKey{max: max, running: map[string]int{}} }

// enter takes a place for a key, if there is one. leave returns it.
func (p *perKey) enter(key string) bool {
	if p.max == 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[key] >= p.max {
		return false
	}
	p.running[key]++
	return true
}

func (p *perKey) leave(key string) {
	if p.max == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[key]--; p.running[key] == 0 {
		delete(p.running, key) // addresses come and go
	}
}

// limitedListener accepts a connection when there is a place for it. Until then it waits in the
// system's queue.
type limitedListener struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newLimitedListener(l net.Listener, max int) *limitedListener {
	return &limitedListener{Listener: l, places: make(chan struct{}, max), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &limitedConn{Conn: c, leave: sync.OnceFunc(func() { <-l.places })}, nil
}

// Close implements net.Listener.
func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// limitedConn returns its place when it is closed.
type limitedConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}
