package kvevents

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

const size = 4 // tokens of a block

// open starts a publisher with both sockets.
func open(t *testing.T) (p *Publisher, pub, replay string) {
	t.Helper()
	p = New(Options{Pod: "10.0.0.7:8080", BlockTokens: size})
	t.Cleanup(p.Close)
	listen := func(serve func(net.Listener)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		serve(l)
		return l.Addr().String()
	}
	return p, listen(p.Publish), listen(p.Replay)
}

// index is a picker's state: for each model the prefixes whose blocks are known, as
// texts.
type index struct {
	t      *testing.T
	models map[string]map[uint64]string // ids to prefixes
	next   uint64
	resets int
}

func newIndex(t *testing.T) *index { return &index{t: t, models: map[string]map[uint64]string{}} }

// take applies a message.
func (x *index) take(frames [][]byte) {
	x.t.Helper()
	if len(frames) != 3 || len(frames[1]) != 8 {
		x.t.Fatalf("a message of %d frames", len(frames))
	}
	if seq := binary.BigEndian.Uint64(frames[1]); seq == 0 && x.next > 0 {
		x.resets++
		x.next = 1
	} else if seq != x.next {
		x.t.Fatalf("batch %d, want %d", seq, x.next)
	} else {
		x.next++
	}
	topic := strings.Split(string(frames[0]), "@")
	if len(topic) != 3 || topic[0] != "kv" || topic[1] != "10.0.0.7:8080" {
		x.t.Fatalf("topic %q", frames[0])
	}
	v, rest, err := decode(frames[2])
	if err != nil || len(rest) > 0 {
		x.t.Fatalf("%d bytes left, error %v", len(rest), err)
	}
	list := v.([]any)
	if now := float64(time.Now().Unix()); len(list) != 3 || list[2] != uint64(0) || list[0].(float64) > now+2 || list[0].(float64) < now-600 {
		x.t.Fatalf("a batch of %v", list)
	}
	for _, e := range list[1].([]any) {
		x.event(topic[2], e.(map[string]any))
	}
}

func (x *index) event(name string, e map[string]any) {
	x.t.Helper()
	m := x.models[name]
	if m == nil {
		m = map[uint64]string{}
		x.models[name] = m
	}
	switch e["type"] {
	case "AllBlocksCleared":
		clear(x.models)
	case "BlockRemoved":
		for _, id := range e["block_hashes"].([]any) {
			if _, ok := m[id.(uint64)]; !ok {
				x.t.Fatalf("model %s: block %x removed that is not known", name, id)
			}
			delete(m, id.(uint64))
		}
	case "BlockStored":
		ids, tokens := e["block_hashes"].([]any), e["token_ids"].([]any)
		if len(ids) == 0 || len(tokens) != len(ids)*size || e["block_size"] != uint64(size) {
			x.t.Fatalf("%d blocks of %d tokens, %d of each", len(ids), len(tokens), e["block_size"])
		}
		text := ""
		if parent, ok := e["parent_block_hash"].(uint64); ok {
			if text, ok = m[parent]; !ok {
				x.t.Fatalf("model %s: blocks behind %x, which is not known", name, parent)
			}
		}
		keys, keyed := e["extra_keys"].([]any)
		if keyed && len(keys) != len(ids) {
			x.t.Fatalf("%d keys for %d blocks", len(keys), len(ids))
		}
		for i, id := range ids {
			for _, token := range tokens[i*size : (i+1)*size] {
				text += fmt.Sprint(token, " ")
			}
			if keyed && keys[i] != nil {
				text += fmt.Sprint(keys[i])
			}
			if old, ok := m[id.(uint64)]; ok {
				x.t.Fatalf("model %s: block %x of %q stored, which is known for %q", name, id, text, old)
			}
			m[id.(uint64)] = text
		}
	default:
		x.t.Fatalf("event %v", e)
	}
}

// texts are the prefixes of a model that a picker knows.
func (x *index) texts(name string) []string { return slices.Sorted(maps.Values(x.models[name])) }

// caches are the boundaries of models in their caches, and their reports.
type caches struct {
	p     *Publisher
	has   map[string]map[string]told
	story []told
}

// told is a text with the contents of its places.
type told struct {
	tokens []int32
	places []Place
}

func newCaches(p *Publisher, rng *rand.Rand) *caches {
	c := &caches{p: p, has: map[string]map[string]told{"a": {}, "org/b": {}}}
	for range 4 { // that have their beginnings in common
		tokens := make([]int32, 10*size)
		for i := range tokens {
			tokens[i] = int32(rng.IntN(1 << rng.IntN(18)))
		}
		c.story = append(c.story, told{tokens: tokens})
	}
	for i := range c.story[1:] {
		copy(c.story[i+1].tokens, c.story[0].tokens[:(3+2*i)*size])
	}
	// Two images in one place, one over several blocks, and two in one block.
	c.story[1].places = []Place{{size + 1, 2, strings.Repeat("a", 64)}, {2*size + 1, 2*size + 1, "b"}}
	c.story[2].places = []Place{{size + 1, 2, strings.Repeat("c", 64)}, {5 * size, 1, "d"}, {5*size + 2, 1, "b"}}
	return c
}

// step stores or removes a boundary, or clears a model.
func (c *caches) step(rng *rand.Rand) {
	name := slices.Sorted(maps.Keys(c.has))[rng.IntN(2)]
	m, has := c.p.Model(name), c.has[name]
	if rng.IntN(60) == 0 {
		m.Cleared()
		clear(has)
		return
	}
	x := c.story[rng.IntN(len(c.story))]
	x.tokens = slices.Clone(x.tokens[:size*(1+rng.IntN(10))])
	x.places = slices.DeleteFunc(slices.Clone(x.places), func(p Place) bool { return p.At >= len(x.tokens) })
	if k := fmt.Sprint(x); has[k].tokens == nil {
		has[k] = x
		m.Stored(x.tokens, x.places...)
	} else {
		delete(has, k)
		m.Removed(x.tokens, x.places...)
	}
}

// texts are the prefixes of whole blocks up to boundaries of a model.
func (c *caches) texts(name string) []string {
	set := map[string]bool{}
	for _, x := range c.has[name] {
		text := ""
		for i, id := range x.tokens {
			if text += fmt.Sprint(id, " "); i%size < size-1 {
				continue
			}
			var keys []string
			for _, p := range x.places {
				if p.At <= i && p.At+p.N > i+1-size {
					keys = append(keys, p.Key)
				}
			}
			if keys != nil {
				text += fmt.Sprint(keys)
			}
			set[text] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// catchUp reads published messages.
func (x *index) catchUp(c *client, p *Publisher) {
	x.t.Helper()
	p.Sync()
	for x.behind(p) {
		x.take(c.message())
	}
}

// behind reports whether there is more of the epoch to come.
func (x *index) behind(p *Publisher) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return uint64(x.resets)+1 < p.epochs || x.next < uint64(len(p.buffer))
}

// subscribed connects a subscriber, and waits until the publisher knows.
func subscribed(t *testing.T, p *Publisher, addr string, command bool) *client {
	t.Helper()
	before := topics(p)
	c := dial(t, addr, "SUB")
	c.subscribe("kv@", command)
	for end := time.Now().Add(patience); topics(p) == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the subscription did not come")
		}
	}
	return c
}

// topics is how many subscriptions there are.
func topics(p *Publisher) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.peers {
		s.mu.Lock()
		n += len(s.topics)
		s.mu.Unlock()
	}
	return n
}

// TestSubscribersKnowTheBlocks adds and removes boundaries, and compares a subscriber's state by
// events with the truth, and that of a later subscriber, by a replay.
func TestSubscribersKnowTheBlocks(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			p, pub, replay := open(t)
			if seed%2 == 1 {
				p.most = 12 // batches of an epoch
			}
			c := subscribed(t, p, pub, seed%3 == 0)
			x, there := newIndex(t), newCaches(p, rng)
			first := dial(t, replay, "DEALER").ask(0) // as a picker does, for earlier messages
			for _, frames := range first {
				x.take(frames)
			}
			for range 15 {
				for range rng.IntN(20) {
					there.step(rng)
					if rng.IntN(3) == 0 {
						p.Sync() // and so a batch ends here
					}
				}
				x.catchUp(c, p)
				late := newIndex(t)
				for _, frames := range dial(t, replay, []string{"DEALER", "REQ"}[rng.IntN(2)]).ask(0) {
					late.take(frames)
				}
				for name := range there.has {
					if want := there.texts(name); !slices.Equal(x.texts(name), want) || !slices.Equal(late.texts(name), want) {
						t.Fatalf("model %s: %d blocks are there, a subscriber knows %d, a later one %d", name, len(want), len(x.texts(name)), len(late.texts(name)))
					}
				}
			}
			if s := p.Stats(); s.Batches < 30 || seed%2 == 1 && s.Epochs < 3 {
				t.Errorf("%+v: nothing was tried", s)
			}
		})
	}
}

// TestReplayStartsWhereAsked requests all batches, the last ones, and future ones.
func TestReplayStartsWhereAsked(t *testing.T) {
	p, _, replay := open(t)
	m := p.Model("a")
	for i := range int32(5) {
		m.Stored([]int32{i, 2, 3, 4})
		p.Sync()
	}
	c := dial(t, replay, "DEALER")
	for from, want := range map[uint64]int{0: 6, 4: 2, 5: 1, 6: 0, 1 << 63: 0} {
		if got := c.ask(from); len(got) != want {
			t.Errorf("from %d: %d batches, want %d", from, len(got), want)
		}
	}
	if got := p.Stats().Replayed; got != 9 {
		t.Errorf("%d batches replayed, want 9", got)
	}
}

// TestClearedIsForAllModels clears one of two models, then the other.
func TestClearedIsForAllModels(t *testing.T) {
	p, _, replay := open(t)
	a, b := p.Model("a"), p.Model("b")
	a.Stored([]int32{1, 2, 3, 4})
	b.Stored([]int32{1, 2, 3, 4})
	a.Cleared()
	b.Cleared()
	p.Sync()
	var types []string
	for _, frames := range dial(t, replay, "DEALER").ask(0) {
		v, _, err := decode(frames[2])
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range v.([]any)[1].([]any) {
			types = append(types, string(frames[0][len("kv@10.0.0.7:8080@"):])+" "+e.(map[string]any)["type"].(string))
		}
	}
	want := []string{" AllBlocksCleared", "a BlockStored", "b BlockStored", "a BlockRemoved", "b AllBlocksCleared"}
	if !slices.Equal(types, want) {
		t.Errorf("events %q, want %q", types, want)
	}
}
