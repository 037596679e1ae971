package foretoken

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/prefix"
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
	talk    Conversation
	media   []preparedMedia
	message chat.Message
	ids     []int32 // prompt and answer
	key     string
	salt    prefix.Salt
}

// remember prefills the prefix of the next turn's prompt in the background, once the answer has
// been delivered. It renders and encodes the whole conversation, and so is not for the
// goroutine that somebody waits for.
func (m *Model) remember(a *Answer) {
	talk := a.req.Prompt.talk
	if !m.cached || talk == nil {
		return
	}
	x := said{talk: *talk, media: a.req.Prompt.media, message: a.Message(), ids: slices.Clone(a.req.Prompt.IDs), salt: m.salt(a.req.CacheSalt)}
	x.key = m.conversation(a.req.Prompt, x.salt)
	x.talk.Messages = slices.Clone(talk.Messages) // what the caller changes from now on is for the next turn
	x.talk.Variables = maps.Clone(talk.Variables)
	for _, t := range a.Tokens {
		x.ids = append(x.ids, t.ID)
	}
	sent := a.req.sent
	m.warming.start(func() {
		defer func() {
			if p := recover(); p != nil {
				m.log.Error("preparing the next turn of a conversation", "error", p, "stack", string(debug.Stack()))
			}
		}()
		if sent != nil {
			select {
			case <-sent:
			case <-m.warming.closing:
				return
			}
		}
		m.prepare(&x)
	})
}

// prepare prefills the prefix of the next turn's prompt if that is not the prompt and answer of
// this one, as where templates leave out what was thought: then the next turn finds it in the
// prefix cache.
func (m *Model) prepare(x *said) {
	if m.preparing != nil {
		m.preparing()
	}
	next := m.next(&x.talk, x.media, x.message)
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
	ids, inputs := next.inputs(n)
	done, err := m.engine.Prefill(engine.Prefill{
		Conversation: x.key, Prompt: ids, Inputs: inputs, Boundaries: m.boundaries(next), Salt: x.salt, Depth: m.draft.depth,
	})
	if err == nil { // otherwise the engine is closed or full
		<-done
	}
}

// conversation names what a prompt is a turn of, by its prefix up to the assistant's first
// turn: instructions, tools and the first question, which all of its turns have in common. It is
// "" for texts that are no conversation. Two with the same prefix share a name; then the one
// that spoke last is prefilled. Other salts have other names.
func (m *Model) conversation(p *Prompt, salt prefix.Salt) string {
	if len(m.turns()) == 0 || p.talk == nil {
		return ""
	}
	var answers [][]int32
	for _, text := range m.family.Dialogue.Answers {
		answers = append(answers, m.tok.Encode(text))
	}
	h := fnv.New128a()
	h.Write(salt[:])
	var b [4]byte
	places := p.places
	for i, id := range p.IDs {
		rest := p.IDs[i:]
		if slices.ContainsFunc(answers, func(a []int32) bool { return len(rest) >= len(a) && slices.Equal(rest[:len(a)], a) }) {
			break
		}
		if len(places) > 0 && places[0].at == i {
			sum := places[0].hash()
			h.Write(sum[:])
			places = places[1:]
		}
		binary.LittleEndian.PutUint32(b[:], uint32(id))
		h.Write(b[:])
	}
	return string(h.Sum(nil))
}
