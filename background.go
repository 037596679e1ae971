package foretoken

import "sync"

// background is work of a model that no request waits for.
type background struct {
	closing chan struct{} // closed when there shall be no more of it
	tasks   sync.WaitGroup

	mu     sync.Mutex // protects what follows
	closed bool
}

func newBackground() *background { return &background{closing: make(chan struct{})} }

// start runs a task, unless b is closed.
func (b *background) start(task func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.tasks.Go(task)
	}
}

// close starts no more tasks, and cancels those that run.
func (b *background) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		close(b.closing)
	}
}

// Wait returns when no task runs.
func (b *background) Wait() { b.tasks.Wait() }
