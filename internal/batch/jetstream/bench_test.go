package jetstream_test

import (
	"sync/atomic"
	"testing"

	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/batch/jetstream"
)

// A hint through a server: published, and fetched and done.
func BenchmarkHints(b *testing.B) {
	q := remote(b, jetstream.Options{}).Queue()
	b.Run("publish", func(b *testing.B) {
		list := make([]batch.Hint, b.N)
		for i := range list {
			list[i] = batch.Hint{Batch: b.Name(), Model: "publish", Line: int(lines.Add(1))}
		}
		b.ResetTimer()
		if err := q.Publish(b.Context(), list); err != nil {
			b.Fatal(err)
		}
	})
	b.Run("work", func(b *testing.B) {
		list := make([]batch.Hint, b.N)
		for i := range list {
			list[i] = batch.Hint{Batch: b.Name(), Model: "work", Line: int(lines.Add(1))}
		}
		if err := q.Publish(b.Context(), list); err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		for n := 0; n < b.N; {
			got, err := q.Fetch(b.Context(), "work", 16)
			if err != nil {
				b.Fatal(err)
			}
			for _, d := range got {
				if err := d.Done(); err != nil {
					b.Fatal(err)
				}
			}
			n += len(got)
		}
	})
}

// lines are never the same: a hint that was published before would be left out.
var lines atomic.Int64
