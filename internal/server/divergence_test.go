package server

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/batch"
)

// foreign is a store where another worker is always a moment faster, with its own answer.
type foreign struct {
	batch.Store
	change func(result string) string // the other worker's result; the same: it is right
}

// Create implements batch.Store.
func (s foreign) Create(ctx context.Context, key string, r io.Reader) error {
	if !strings.HasPrefix(key, "results/") {
		return s.Store.Create(ctx, key, r)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := s.Store.Create(ctx, key, strings.NewReader(s.change(string(data)))); err != nil {
		return err
	}
	return s.Store.Create(ctx, key, strings.NewReader(string(data)))
}

// A result that is there with other bits raises the metric, and one with the same does not.
func TestBatchDivergenceIsCounted(t *testing.T) {
	for _, x := range []struct {
		change func(string) string
		metric string
	}{
		{func(s string) string { return s }, "foretoken_batch_divergence_total 0"},
		{func(s string) string { return strings.Replace(s, `"content":"`, `"content":"other `, 1) }, "foretoken_batch_divergence_total 1"},
	} {
		r, _ := startBatches(t, t.TempDir(), func(o *Options) { o.Batches.Store = foreign{o.Batches.Store, x.change} })
		b := r.begin(line("a", `{"messages":[{"role":"user","content":"Hello."}],"max_tokens":4,"seed":1}`))
		r.wait(b.ID, batch.Completed)
		if metrics := r.do("GET", "/metrics", "").body; !strings.Contains(metrics, x.metric+"\n") {
			t.Errorf("there is no %s", x.metric)
		}
		if status := r.do("GET", "/v1/status", "").body; !strings.Contains(status, `"batches":{"queue":"memory","queue_connected":true,"lines_waiting":0}`) {
			t.Errorf("status: %s", status)
		}
	}
}
