//go:build !noqueue

package main

import (
	"context"
	"log/slog"

	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/batch/jetstream"
)

// embedQueue is a queue of this process, in a folder.
func embedQueue(ctx context.Context, dir string, log *slog.Logger) (queueLink, error) {
	return jetstream.Embed(ctx, dir, jetstream.Options{Log: log})
}

// dial connects to the servers of --queue.
func (f *queueFlags) dial(ctx context.Context, cache string, log *slog.Logger) (queueLink, batch.Store, error) {
	c, err := jetstream.Dial(ctx, jetstream.Options{Log: log, Servers: f.list(), CA: f.ca, Cert: f.cert, Key: f.key, Credentials: f.credentials})
	if err != nil {
		return nil, nil, err
	}
	s, err := c.Store(ctx, cache, 0)
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return c, s, nil
}
