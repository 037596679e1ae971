//go:build noqueue

package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/foretoken/foretoken/internal/batch"
)

// memoryLink is a queue in memory: what it has is lost when the process ends, and queued again when
// the next one finds that results are missing.
type memoryLink struct{ queue *batch.Memory }

func (l memoryLink) Queue() batch.Queue { return l.queue }
func (l memoryLink) Address() string    { return "memory" }
func (l memoryLink) Connected() bool    { return true }
func (l memoryLink) Close()             {}

func embedQueue(context.Context, string, *slog.Logger) (queueLink, error) {
	return memoryLink{batch.NewMemory()}, nil
}

func (f *queueFlags) dial(context.Context, string, *slog.Logger) (queueLink, batch.Store, error) {
	return nil, nil, errors.New("this program was built without NATS support: build it without the tag noqueue")
}
