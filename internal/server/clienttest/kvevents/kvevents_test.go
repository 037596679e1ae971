// Package kvevents_test reads our events with third-party libraries: those that endpoint pickers
// use.
package kvevents_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/private"
	"github.com/foretoken/foretoken/internal/server/kvevents"
)

// batch is how pickers have a batch decoded.
type batch struct {
	_      struct{} `msgpack:",array"`
	TS     float64
	Events []msgpack.RawMessage
	Rank   *int `msgpack:",omitempty"`
}

// index is the blocks that a picker knows: their last tokens, and their parents.
type index map[uint64]block

type block struct {
	parent uint64
	tokens []int64
}

// number is an integer of a message, of any size.
func number(t *testing.T, v any) int64 {
	t.Helper()
	switch v := v.(type) {
	case int8:
		return int64(v)
	case uint8:
		return int64(v)
	case uint16:
		return int64(v)
	case uint32:
		return int64(v)
	case int64:
		return v
	case uint64:
		return int64(v)
	}
	t.Fatalf("%T is no number that pickers know", v)
	return 0
}

// take applies the three frames of a message.
func (x index) take(t *testing.T, frames [][]byte) {
	t.Helper()
	if len(frames) != 3 || len(frames[1]) != 8 {
		t.Fatalf("%d frames", len(frames))
	}
	var b batch
	if err := msgpack.Unmarshal(frames[2], &b); err != nil {
		t.Fatal(err)
	}
	for _, raw := range b.Events {
		var e map[string]any
		if err := msgpack.Unmarshal(raw, &e); err != nil {
			t.Fatal(err)
		}
		switch e["type"] {
		case "AllBlocksCleared":
			clear(x)
		case "BlockRemoved":
			for _, id := range e["block_hashes"].([]any) {
				delete(x, id.(uint64)) // pickers take ids in this form only
			}
		case "BlockStored":
			parent, _ := e["parent_block_hash"].(uint64)
			if _, known := x[parent]; !known && parent != 0 {
				t.Fatalf("a block behind %x, which is not known", parent)
			}
			size, tokens := int(number(t, e["block_size"])), e["token_ids"].([]any)
			if size != foretoken.PageTokens || e["medium"] != "GPU" || e["lora_id"] != nil {
				t.Fatalf("event %v", e)
			}
			for i, id := range e["block_hashes"].([]any) {
				one := block{parent: parent}
				for _, token := range tokens[i*size : (i+1)*size] {
					one.tokens = append(one.tokens, number(t, token))
				}
				parent = id.(uint64)
				x[parent] = one
			}
		default:
			t.Fatalf("event %v", e)
		}
	}
}

// texts are the tokens up to the end of each block.
func (x index) texts() (list []string) {
	for id := range x {
		var parts [][]int64
		for ; id != 0; id = x[id].parent {
			parts = append(parts, x[id].tokens)
		}
		slices.Reverse(parts)
		list = append(list, fmt.Sprint(slices.Concat(parts...)))
	}
	slices.Sort(list)
	return list
}

func listen(t *testing.T, serve func(net.Listener)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(l)
	return "tcp://" + l.Addr().String()
}

// replay asks for all batches from a number on, as pickers do.
func replay(t *testing.T, addr string, from uint64) (list [][][]byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dealer := zmq4.NewDealer(ctx)
	defer func() { _ = dealer.Close() }()
	if err := dealer.Dial(addr); err != nil {
		t.Fatal(err)
	}
	if err := dealer.SendMulti(zmq4.NewMsgFrom([]byte{}, binary.BigEndian.AppendUint64(nil, from))); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := dealer.Recv()
		if err != nil {
			t.Fatal(err)
		}
		frames := m.Frames
		if len(frames[0]) == 0 {
			frames = frames[1:]
		}
		if len(frames) == 3 && len(frames[2]) == 0 {
			if binary.BigEndian.Uint64(frames[1]) != math.MaxUint64 {
				t.Errorf("the last number is %x", frames[1])
			}
			return list
		}
		if n := binary.BigEndian.Uint64(frames[1]); n != from+uint64(len(list)) {
			t.Fatalf("batch %d, want %d", n, from+uint64(len(list)))
		}
		list = append(list, frames)
	}
}

// subscribe connects a subscriber, and returns it when it receives messages.
func subscribe(t *testing.T, p *kvevents.Publisher, addr string) (next func() [][]byte) {
	t.Helper()
	sub := zmq4.NewSub(t.Context())
	t.Cleanup(func() { _ = sub.Close() })
	if err := sub.Dial(addr); err != nil {
		t.Fatal(err)
	}
	if err := sub.SetOption(zmq4.OptionSubscribe, "kv@"); err != nil {
		t.Fatal(err)
	}
	messages := make(chan zmq4.Msg, 10_000)
	go func() {
		for {
			m, err := sub.Recv()
			if err != nil {
				return // the end of the test
			}
			messages <- m
		}
	}()
	probe := make([]int32, foretoken.PageTokens)
	for end := time.Now().Add(5 * time.Minute); len(messages) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing was received")
		}
		p.Model("probe").Stored(probe)
		p.Model("probe").Removed(probe)
		p.Sync()
	}
	return func() [][]byte {
		select {
		case m := <-messages:
			return m.Frames
		case <-time.After(5 * time.Minute):
			t.Fatal("no more messages")
			return nil
		}
	}
}

// observer reports texts to a publisher; there are no images.
type observer struct{ *kvevents.Model }

func (o observer) Stored(tokens []int32, _ []prefix.Rows)  { o.Model.Stored(tokens) }
func (o observer) Removed(tokens []int32, _ []prefix.Rows) { o.Model.Removed(tokens) }

// TestPickersReadOurEvents has the embedded model answer, and compares the blocks of a subscriber and a
// replay with the prompt.
func TestPickersReadOurEvents(t *testing.T) {
	p := kvevents.New(kvevents.Options{Pod: "127.0.0.1:8080", BlockTokens: foretoken.PageTokens})
	defer p.Close()
	pub, again := listen(t, p.Publish), listen(t, p.Replay)
	next := subscribe(t, p, pub)
	silent := slog.New(slog.NewTextHandler(io.Discard, nil))
	o := foretoken.Options{Threads: 1, Log: silent}
	private.SetObserver(&o, observer{p.Model(foretoken.Tiny)})
	m, err := foretoken.Open(t.Context(), foretoken.Tiny, o)
	if err != nil {
		t.Fatal(err)
	}
	var story string
	for i := range 60 {
		story += fmt.Sprintf("Lily has %d cats. ", i)
	}
	prompt, err := m.ChatPrompt(t.Context(), foretoken.Conversation{Messages: []chat.Message{{Role: "user", Content: chat.Text(story)}}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := m.Generate(t.Context(), foretoken.Request{Prompt: prompt, MaxTokens: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range a.Pieces() {
		if err != nil {
			t.Fatal(err)
		}
	}
	p.Sync()
	var want []string
	for n := foretoken.PageTokens; n < len(prompt.IDs); n += foretoken.PageTokens {
		want = append(want, fmt.Sprint(prompt.IDs[:n]))
	}
	if slices.Sort(want); len(want) < 4 {
		t.Fatalf("the prompt has %d tokens", len(prompt.IDs))
	}
	late, topics := index{}, map[string]bool{}
	list := replay(t, again, 0)
	for _, frames := range list {
		late.take(t, frames)
		topics[string(frames[0])] = true
	}
	if got := late.texts(); !slices.Equal(got, want) || !topics["kv@127.0.0.1:8080@tiny"] {
		t.Errorf("by replay, topics %v, %d blocks: %v, want %v", topics, len(got), got, want)
	}
	live := index{}
	for last := uint64(len(list) - 1); ; {
		frames := next()
		live.take(t, frames)
		if binary.BigEndian.Uint64(frames[1]) == last {
			break
		}
	}
	if got := live.texts(); !slices.Equal(got, want) {
		t.Errorf("live, %d blocks: %v, want %v", len(got), got, want)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if live.take(t, next()); len(live) != 0 {
		t.Errorf("%d blocks after the end of the model", len(live))
	}
}
