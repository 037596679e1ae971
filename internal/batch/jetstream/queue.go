package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/foretoken/foretoken/internal/batch"
)

// Names in the servers. A subject is workSubject.<model>.<batch>.
const (
	workStream  = "FT_WORK"
	workSubject = "ft.work"
)

const (
	// A hint that was published within this time is left out.
	duplicates = 2 * time.Minute
	// Publications that wait for their acknowledgment at a time.
	inFlight = 256
	// How long one request for hints lasts. Another follows.
	pullWait = 5 * time.Second
	// A consumer without requests for this long is deleted, its hints are not.
	inactive = 24 * time.Hour
)

// work is the stream of hints. If it does not exist, it is created: the coordinator finds
// missing results and queues their lines again.
func (c *Conn) work(ctx context.Context) (js.Stream, error) {
	c.mu.Lock()
	known := c.stream
	c.mu.Unlock()
	if known != nil {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	s, err := c.js.Stream(ctx, workStream)
	if !c.settled || errors.Is(err, js.ErrStreamNotFound) { // the first time also with today's settings
		s, err = c.js.CreateOrUpdateStream(ctx, js.StreamConfig{
			Name: workStream, Subjects: []string{workSubject + ".*.*"},
			Retention: js.WorkQueuePolicy, Storage: js.FileStorage, Replicas: c.replicas,
			Discard: js.DiscardNew, MaxBytes: c.maxBytes, Duplicates: duplicates,
		})
	}
	if err != nil {
		return nil, explained(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream = s
	return s, nil
}

// consumer is the JetStream consumer of a model's hints. All workers share it.
func (c *Conn) consumer(ctx context.Context, model string) (js.Consumer, error) {
	c.mu.Lock()
	known := c.consumers[model]
	c.mu.Unlock()
	if known != nil {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	s, err := c.work(ctx)
	if err != nil {
		return nil, err
	}
	consumer, err := s.CreateOrUpdateConsumer(ctx, js.ConsumerConfig{
		Durable: token(model), FilterSubject: subject(model, ""),
		AckPolicy: js.AckExplicitPolicy, AckWait: c.ackWait, MaxDeliver: -1, MaxAckPending: -1,
		InactiveThreshold: inactive,
	})
	if err != nil {
		return nil, explained(err)
	}
	c.mu.Lock()
	c.consumers[model] = consumer
	c.mu.Unlock()
	return consumer, nil
}

// forget drops cached handles: an error says that they are stale.
func (c *Conn) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream = nil
	clear(c.consumers)
}

// again calls f, and once more if a cached handle was stale.
func (c *Conn) again(f func() error) error {
	err := f()
	if gone(err) {
		c.forget()
		err = f()
	}
	return explained(err)
}

// queue implements batch.Queue.
type queue Conn

var _ batch.Queue = (*queue)(nil)

func (q *queue) conn() *Conn { return (*Conn)(q) }

// Publish adds hints.
func (q *queue) Publish(ctx context.Context, hints []batch.Hint) error {
	for len(hints) > 0 {
		n := min(len(hints), inFlight)
		if err := q.conn().again(func() error { return q.publish(ctx, hints[:n]) }); err != nil {
			return err
		}
		hints = hints[n:]
	}
	return nil
}

// publish sends hints without waiting for each, and then waits for all.
func (q *queue) publish(ctx context.Context, hints []batch.Hint) error {
	if _, err := q.conn().work(ctx); err != nil {
		return err
	}
	sent := make([]js.PubAckFuture, 0, len(hints))
	var failed error
	for i := range hints {
		h := &hints[i]
		data, err := json.Marshal(h)
		if err != nil {
			return err
		}
		m := &nats.Msg{Subject: subject(h.Model, h.Batch), Data: data}
		// With the key of the model: the same line of a batch for another model is another hint.
		future, err := q.js.PublishMsgAsync(m, js.WithMsgID(token(h.Model)+"."+token(h.Batch)+"."+strconv.Itoa(h.Line)), js.WithExpectStream(workStream))
		if err != nil {
			failed = err
			break
		}
		sent = append(sent, future)
	}
	timeout := time.NewTimer(apiTimeout)
	defer timeout.Stop()
	for _, future := range sent {
		select {
		case <-future.Ok():
			timeout.Reset(apiTimeout)
		case err := <-future.Err():
			failed = errors.Join(failed, err)
		case <-timeout.C:
			return errors.Join(failed, fmt.Errorf("queue %s: no answer within %v", q.address, apiTimeout))
		case <-ctx.Done():
			return ctx.Err()
		}
		if failed != nil {
			return failed
		}
	}
	return failed
}

// Fetch waits for hints.
func (q *queue) Fetch(ctx context.Context, model string, n int) ([]batch.Delivery, error) {
	for {
		var got []batch.Delivery
		err := q.conn().again(func() (err error) {
			got, err = q.fetch(ctx, model, n)
			return err
		})
		if len(got) > 0 {
			return got, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
	}
}

// fetch returns available hints, or waits for one and returns those that came with it.
func (q *queue) fetch(ctx context.Context, model string, n int) (got []batch.Delivery, err error) {
	consumer, err := q.conn().consumer(ctx, model)
	if err != nil {
		return nil, err
	}
	got, err = q.take(consumer.FetchNoWait(n))
	if err != nil || len(got) > 0 {
		return got, err
	}
	wait, cancel := context.WithTimeout(ctx, pullWait)
	defer cancel()
	got, err = q.take(consumer.Fetch(1, js.FetchContext(wait)))
	if wait.Err() != nil && len(got) == 0 {
		return nil, nil // no hint came; the caller may try again
	}
	if err != nil || n == len(got) || len(got) == 0 {
		return got, err
	}
	more, err := q.take(consumer.FetchNoWait(n - len(got)))
	return append(got, more...), err
}

// take reads the messages of one request. Messages that are not hints are removed: they would be
// delivered forever.
func (q *queue) take(b js.MessageBatch, err error) (got []batch.Delivery, _ error) {
	if err != nil {
		return nil, err
	}
	for m := range b.Messages() {
		d := &delivery{q: q, msg: m, attempts: 1}
		meta, err := m.Metadata()
		if err == nil {
			var x message
			err = json.Unmarshal(m.Data(), &x)
			d.hint, d.attempts = x.Hint, int(min(meta.NumDelivered, 1<<30))+min(max(x.Tried, 0), 1<<30)
		}
		if err != nil {
			q.log.Warn("queue has a malformed message: it is removed", "subject", m.Subject(), "error", err)
			_ = m.Term() // if this fails, the message and the warning come again
			continue
		}
		got = append(got, d)
	}
	if len(got) > 0 {
		return got, nil // an error comes again
	}
	return nil, b.Error()
}

// Outstanding counts the messages of a batch: one that is delivered stays until it is done.
func (q *queue) Outstanding(ctx context.Context, model, name string) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	err = q.conn().again(func() error {
		s, err := q.conn().work(ctx)
		if err != nil {
			return err
		}
		info, err := s.Info(ctx, js.WithSubjectFilter(subject(model, name)))
		if err != nil {
			return err
		}
		n = 0
		for _, count := range info.State.Subjects {
			n += int(min(count, 1<<30))
		}
		return nil
	})
	return n, err
}

// Drop removes the messages of a batch.
func (q *queue) Drop(ctx context.Context, model, name string) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return q.conn().again(func() error {
		s, err := q.conn().work(ctx)
		if err != nil {
			return err
		}
		return s.Purge(ctx, js.WithPurgeSubject(subject(model, name)))
	})
}

// subject is that of a batch, or of all batches of a model.
func subject(model, name string) string {
	if name == "" {
		return workSubject + "." + token(model) + ".*"
	}
	return workSubject + "." + token(model) + "." + token(name)
}

// message is the encoding of a hint.
type message struct {
	batch.Hint
	Tried int `json:"tried,omitempty"` // how often it was delivered in messages before this one
}

// delivery implements batch.Delivery.
type delivery struct {
	q        *queue
	msg      js.Msg
	hint     batch.Hint
	attempts int
}

func (d *delivery) Hint() batch.Hint { return d.hint }
func (d *delivery) Attempts() int    { return d.attempts }
func (d *delivery) Working() error   { return d.msg.InProgress() }

// Done is not confirmed: where it is lost, another worker finds the result.
func (d *delivery) Done() error                     { return d.msg.Ack() }
func (d *delivery) Later(after time.Duration) error { return d.msg.NakWithDelay(after) }

// Return sends the hint again, because servers count every delivery of a message, and then ends this one.
// If the end is lost the hint comes twice.
func (d *delivery) Return() error {
	data, err := json.Marshal(message{d.hint, d.attempts - 1})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), apiTimeout)
	defer cancel()
	if _, err := d.q.js.Publish(ctx, subject(d.hint.Model, d.hint.Batch), data, js.WithExpectStream(workStream)); err != nil {
		return errors.Join(explained(err), d.msg.Nak())
	}
	return d.msg.Ack()
}
