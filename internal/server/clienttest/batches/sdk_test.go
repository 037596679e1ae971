// Package batches_test runs batches with the Go client of the protocol's makers.
package batches_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/server"
)

// serve starts a server with batches; ahead is how far its clock is ahead of time.
func serve(t *testing.T) (c client.Client, ahead *atomic.Int64) {
	t.Helper()
	folder, err := batch.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ahead = &atomic.Int64{}
	s, err := server.New(server.Options{
		Models: []server.Model{{Name: "tiny", Path: foretoken.Tiny, Options: foretoken.Options{Threads: 1, KVMemory: 256 << 20}}},
		Log:    slog.New(slog.DiscardHandler),
		Batches: &server.Batches{
			Store: folder, Queue: batch.NewMemory(), Lines: 1, Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Shutdown(context.Background()), <-ended, folder.Close()); err != nil {
			t.Error(err)
		}
	})
	return client.NewClient(option.WithBaseURL("http://"+l.Addr().String()+"/v1/"), option.WithAPIKey("none"), option.WithMaxRetries(0)), ahead
}

// begin uploads a file and begins a batch.
func begin(t *testing.T, c client.Client, content string) *client.Batch {
	t.Helper()
	f, err := c.Files.New(t.Context(), client.FileNewParams{File: client.File(strings.NewReader(content), "in.jsonl", "application/jsonl"), Purpose: client.FilePurposeBatch})
	if err != nil {
		t.Fatal(err)
	}
	if f.Bytes != int64(len(content)) || f.Filename != "in.jsonl" || f.Purpose != "batch" {
		t.Errorf("file %s", f.RawJSON())
	}
	b, err := c.Batches.New(t.Context(), client.BatchNewParams{
		InputFileID: f.ID, Endpoint: client.BatchNewParamsEndpointV1ChatCompletions, CompletionWindow: client.BatchNewParamsCompletionWindow24h,
		Metadata: map[string]string{"night": "first"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// wait polls a batch until it has a status.
func wait(t *testing.T, c client.Client, id string, status client.BatchStatus) *client.Batch {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		b, err := c.Batches.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if b.Status == status {
			return b
		}
		if time.Now().After(deadline) {
			t.Fatalf("want %s: %s", status, b.RawJSON())
		}
	}
}

// content downloads a file.
func content(t *testing.T, c client.Client, id string) string {
	t.Helper()
	a, err := c.Files.Content(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(a.Body)
	if err = errors.Join(err, a.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return string(data)
}

const short = `{"custom_id":"short","method":"POST","url":"/v1/chat/completions","body":{"model":"tiny","messages":[{"role":"user","content":"Hi."}],"max_tokens":4,"ignore_eos":true}}` + "\n"

// endless is a file that takes minutes, one line at a time.
func endless() string {
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, `{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":{"model":"tiny","messages":[{"role":"user","content":"Hi."}],"max_tokens":4000,"ignore_eos":true}}`+"\n", i)
	}
	return b.String()
}

func TestSDKBatch(t *testing.T) {
	c, ahead := serve(t)
	done := wait(t, c, begin(t, c, short+"{\n").ID, client.BatchStatusCompleted)
	if done.RequestCounts.Completed != 1 || done.RequestCounts.Failed != 1 || done.Metadata["night"] != "first" || done.Usage.OutputTokens != 4 {
		t.Errorf("got %s", done.RawJSON())
	}
	if out := content(t, c, done.OutputFileID); !strings.Contains(out, `"custom_id":"short"`) {
		t.Errorf("output %s", out)
	}
	if out := content(t, c, done.ErrorFileID); !strings.Contains(out, "line 2") {
		t.Errorf("errors %s", out)
	}
	failed := wait(t, c, begin(t, c, short+short).ID, client.BatchStatusFailed)
	if e := failed.Errors.Data; len(e) != 1 || e[0].Line != 2 || e[0].Code != "duplicate_custom_id" {
		t.Errorf("got %s", failed.RawJSON())
	}
	canceled := begin(t, c, endless())
	wait(t, c, canceled.ID, client.BatchStatusInProgress)
	if b, err := c.Batches.Cancel(t.Context(), canceled.ID); err != nil || b.Status != client.BatchStatusCancelling {
		t.Errorf("%v, %v", b, err)
	}
	wait(t, c, canceled.ID, client.BatchStatusCancelled)
	expired := begin(t, c, endless())
	wait(t, c, expired.ID, client.BatchStatusInProgress)
	ahead.Store(int64(24 * time.Hour))
	expired = wait(t, c, expired.ID, client.BatchStatusExpired)
	if out := content(t, c, expired.ErrorFileID); !strings.Contains(out, "batch_expired") {
		t.Errorf("errors %s", out)
	}
	var listed []string
	pages := c.Batches.ListAutoPaging(t.Context(), client.BatchListParams{Limit: client.Int(1)})
	for pages.Next() {
		listed = append(listed, pages.Current().ID)
	}
	if err := pages.Err(); err != nil || strings.Join(listed, " ") != strings.Join([]string{expired.ID, canceled.ID, failed.ID, done.ID}, " ") {
		t.Errorf("listed %q: %v", listed, err)
	}
	if d, err := c.Files.Delete(t.Context(), done.OutputFileID); err != nil || !d.Deleted {
		t.Errorf("deleted: %v", err)
	}
	var e *client.Error
	if _, err := c.Files.Get(t.Context(), done.OutputFileID); !errors.As(err, &e) || e.StatusCode != http.StatusNotFound {
		t.Errorf("a file that is gone: %v", err)
	}
}
