package foretoken

import (
	"maps"
	"slices"
	"sync"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/prompt"
	"github.com/foretoken/foretoken/internal/rescue"
)

// background is work of a model that no request waits for.
type background struct {
	closing chan struct{} // closed when there shall be no more of it
	tasks   sync.WaitGroup

	mu     sync.Mutex // protects what follows
	closed bool
}

func newBackground() *background { return &background{closing: make(chan struct{})} }

// start runs a task, unless there shall be none.
func (b *background) start(task func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.tasks.Go(task)
	}
}

// close starts no more tasks, and tells those that run.
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

// said is an answer with what it was an answer to, as it was when it ended.
type said struct {
	talk    prompt.Conversation
	media   []prompt.Media
	message chat.Message
	ids     []int32 // prompt and answer
	key     string
	salt    prefix.Salt
}

// remember prefills the prefix of the next turn's prompt in the background, once the answer has
// been delivered. It renders and encodes the whole conversation, and so is not for the
// goroutine that somebody waits for.
func (m *Model) remember(a *Answer) {
	talk := a.prompt.Talk
	if !m.cached || talk == nil {
		return
	}
	x := said{talk: *talk, media: a.prompt.Media, message: a.Message(), ids: slices.Clone(a.prompt.IDs), salt: m.salt(a.req.CacheSalt)}
	x.key = m.text.Key(a.prompt, x.salt)
	x.talk.Messages = slices.Clone(talk.Messages) // what the caller changes from now on is for the next turn
	x.talk.Variables = maps.Clone(talk.Variables)
	for _, t := range a.Tokens {
		x.ids = append(x.ids, t.ID)
	}
	sent := a.req.sent
	m.warming.start(func() {
		if sent != nil {
			select {
			case <-sent:
			case <-m.warming.closing:
				return
			}
		}
		if err := rescue.Do(func() error { m.prepare(&x); return nil }); err != nil {
			m.log.Error("preparing the next turn of a conversation", "error", err.Error(), "stack", rescue.Stack(err))
		}
	})
}

// prepare prefills the prefix of the next turn's prompt if that is not the prompt and answer of
// this one, as where templates leave out what was thought: then the next turn finds it in the
// prefix cache.
func (m *Model) prepare(x *said) {
	if m.preparing != nil {
		m.preparing()
	}
	next := m.text.Next(&x.talk, x.media, x.message)
	if next == nil {
		return
	}
	common, n := 0, len(next.IDs)
	for common < min(n, len(x.ids)) && next.IDs[common] == x.ids[common] {
		common++
	}
	if n == 0 || common >= len(x.ids)-1 || n >= m.context {
		return
	}
	ids, inputs := next.Inputs(n)
	done, err := m.engine.Prefill(engine.Prefill{
		Conversation: x.key, Prompt: ids, Inputs: inputs, Boundaries: m.text.Boundaries(next), Salt: x.salt, Depth: m.draft.depth,
	})
	if err == nil { // otherwise the engine is closed or full
		<-done
	}
}
