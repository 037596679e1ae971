// Package kvevents publishes which prefixes a server's caches can resume: events
// over ZeroMQ in vLLM's format, which endpoint pickers read. It knows blocks of tokens,
// MessagePack and ZMTP, but neither the caches, which call it, nor the subscribers.
package kvevents

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/foretoken/foretoken/internal/rescue"
)

// Limits of the replay buffer. Beyond them a new epoch begins: its numbers start at 0 again, and
// its first batches have the whole current state. A subscriber treats that as a restart and requests a
// replay, so that a replay is always complete.
const (
	maxBatches = 10_000
	maxBytes   = 64 << 20
	batchBytes = 1 << 20 // of a batch, about: the state is sent in several
)

// Options configure a Publisher.
type Options struct {
	Pod         string       // the subscribers' name of this server, such as 10.0.0.7:8080
	BlockTokens int          // tokens of a block
	Log         *slog.Logger // nil: silent
}

// Publisher publishes the resumable prefixes of all models. Its methods may be called
// from several goroutines.
type Publisher struct {
	o     Options
	wake  chan struct{}
	quit  chan struct{}
	tasks sync.WaitGroup
	queue int // messages that wait for a subscriber

	// Of the publishing goroutine.
	models map[string]*model
	most   int // batches of an epoch
	limit  int // bytes of one

	mu       sync.Mutex // protects what follows
	heard    []heard
	buffer   []*message // of this epoch: message i has number i
	bytes    int        // of these
	peers    map[*peer]struct{}
	sockets  map[io.Closer]struct{} // listeners and connections
	closed   bool
	batches  uint64
	epochs   uint64
	slow     uint64
	replayed uint64
}

// Stats are the counts of a publisher.
type Stats struct {
	Subscribers int
	Batches     uint64 // published
	Epochs      uint64 // begun
	Slow        uint64 // subscribers that were disconnected because they did not read
	Replayed    uint64 // batches
}

// message is an encoded batch: topic, number, payload.
type message struct {
	topic   []byte
	payload []byte
	seq     uint64
}

// heard is a report of a cache.
type heard struct {
	model  string
	kind   kind
	tokens []int32
	places []Place
	done   chan struct{} // of kindSync
}

// Place is a range of tokens with content that the tokens do not identify, such as an image.
type Place struct {
	At, N int
	Key   string // of the content, as in the render endpoints
}

type kind uint8

const (
	kindStored kind = iota
	kindRemoved
	kindCleared
	kindSync
)

// New starts a publisher, which is to be closed.
func New(o Options) *Publisher {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Publisher{
		o: o, wake: make(chan struct{}, 1), quit: make(chan struct{}), models: map[string]*model{}, most: maxBatches, queue: queueMessages,
		peers: map[*peer]struct{}{}, sockets: map[io.Closer]struct{}{},
	}
	p.begin()
	p.tasks.Go(func() {
		for {
			select {
			case <-p.wake:
				if err := rescue.Do(func() error { p.publish(); return nil }); err != nil {
					o.Log.Error("kv events", "error", err)
				}
			case <-p.quit:
				return
			}
		}
	})
	return p
}

// Close ends the publisher with its sockets. Pending reports are dropped.
func (p *Publisher) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.quit)
		for s := range p.sockets {
			_ = s.Close()
		}
	}
	p.mu.Unlock()
	p.tasks.Wait()
}

// Stats is the account at this moment.
func (p *Publisher) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Subscribers: len(p.peers), Batches: p.batches, Epochs: p.epochs, Slow: p.slow, Replayed: p.replayed}
}

// Sync returns when all that was heard before has been published.
func (p *Publisher) Sync() {
	done := make(chan struct{})
	p.hear(heard{kind: kindSync, done: done})
	select {
	case <-done:
	case <-p.quit:
	}
}

// Model is an observer of the cache of a model.
func (p *Publisher) Model(name string) *Model { return &Model{p, name} }

// Model receives the reports of one model's cache.
type Model struct {
	p    *Publisher
	name string
}

// Stored reports that texts which begin with these tokens, with the same content in places, can be
// resumed after them. Places ascend.
func (m *Model) Stored(tokens []int32, places ...Place) {
	m.p.hear(heard{m.name, kindStored, tokens, places, nil})
}

// Removed reports that they no longer can.
func (m *Model) Removed(tokens []int32, places ...Place) {
	m.p.hear(heard{m.name, kindRemoved, tokens, places, nil})
}

// Cleared reports that no text of the model can be resumed.
func (m *Model) Cleared() { m.p.hear(heard{m.name, kindCleared, nil, nil, nil}) }

// hear queues a report. It never waits for subscribers.
func (p *Publisher) hear(x heard) {
	p.mu.Lock()
	p.heard = append(p.heard, x)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default: // it will run anyway
	}
}

// publish makes batches of the queued reports: one for each sequence of reports about one model.
func (p *Publisher) publish() {
	p.mu.Lock()
	list := p.heard
	p.heard = nil
	p.mu.Unlock()
	for len(list) > 0 {
		name, n := list[0].model, 0
		var b batch
		for n < len(list) && list[n].model == name && len(b.events) < batchBytes {
			if x := &list[n]; x.kind == kindSync {
				close(x.done)
			} else {
				p.apply(&b, x)
			}
			n++
		}
		list = list[n:]
		p.send(name, &b)
	}
}

// apply makes events of a report.
func (p *Publisher) apply(b *batch, x *heard) {
	m := p.models[x.model]
	if m == nil {
		m = newModel(x.model, p.o.BlockTokens)
		p.models[x.model] = m
	}
	switch x.kind {
	case kindStored:
		m.store(b, x.tokens, x.places)
	case kindRemoved:
		m.remove(b, x.tokens, x.places)
	case kindCleared:
		delete(p.models, x.model)
		alone := true // the event is about all models of a server
		for _, other := range p.models {
			alone = alone && len(other.blocks) == 0
		}
		switch {
		case len(m.blocks) == 0:
		case alone:
			b.cleared()
		default:
			b.removed(slices.Collect(m.ids()))
		}
	}
}

// send publishes a batch, if there is anything in it. An epoch that is full ends with it.
func (p *Publisher) send(name string, b *batch) {
	if b.n == 0 {
		return
	}
	p.mu.Lock()
	full := len(p.buffer) >= p.most || p.bytes >= p.limit
	p.mu.Unlock()
	if full {
		p.begin() // the new epoch includes the batch
		return
	}
	p.put(name, b)
}

// put numbers a batch and queues it for the subscribers. One whose queue is full is disconnected: it
// will reconnect, and request a replay.
func (p *Publisher) put(name string, b *batch) int {
	m := &message{topic: []byte("kv@" + p.o.Pod + "@" + name), payload: b.bytes(time.Now())}
	p.mu.Lock()
	m.seq = uint64(len(p.buffer))
	p.buffer = append(p.buffer, m)
	p.bytes += len(m.payload)
	p.batches++
	var slow []*peer
	for s := range p.peers {
		if !s.offer(m) {
			p.slow++
			delete(p.peers, s)
			slow = append(slow, s)
		}
	}
	p.mu.Unlock()
	for _, s := range slow {
		s.abandon()
		p.o.Log.Warn("kv events: a subscriber is too slow and is disconnected", "peer", s.name)
	}
	return len(m.payload)
}

// begin starts an epoch: the buffer is cleared, and the current state is published.
func (p *Publisher) begin() {
	p.mu.Lock()
	p.buffer, p.bytes = nil, 0
	p.epochs++
	p.mu.Unlock()
	var b batch
	b.cleared()
	size := p.put("", &b)
	for name, m := range p.models {
		b = batch{}
		for run := range m.runs() {
			m.tell(&b, run)
			if len(b.events) >= batchBytes {
				size += p.put(name, &b)
				b = batch{}
			}
		}
		if b.n > 0 {
			size += p.put(name, &b)
		}
	}
	p.limit = max(maxBytes, 4*size)
}

// track remembers a listener or a connection, which Close closes. It reports false, and has closed
// it, if the publisher is closed.
func (p *Publisher) track(s io.Closer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = s.Close()
		return false
	}
	p.sockets[s] = struct{}{}
	return true
}

func (p *Publisher) untrack(s io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sockets, s)
	_ = s.Close()
}

// since is a copy of the list of this epoch's messages from a number on.
func (p *Publisher) since(seq uint64) []*message {
	p.mu.Lock()
	defer p.mu.Unlock()
	if seq >= uint64(len(p.buffer)) {
		return nil
	}
	list := slices.Clone(p.buffer[seq:])
	p.replayed += uint64(len(list))
	return list
}

// hashOf continues the hash of a prefix by a block with the keys of its contents.
func hashOf(parent [sha256.Size]byte, tokens []int32, keys []string) [sha256.Size]byte {
	data := make([]byte, 0, sha256.Size+4*len(tokens))
	data = append(data, parent[:]...)
	for _, id := range tokens {
		data = binary.LittleEndian.AppendUint32(data, uint32(id))
	}
	for _, k := range keys {
		data = append(binary.LittleEndian.AppendUint32(data, uint32(len(k))), k...)
	}
	return sha256.Sum256(data)
}
