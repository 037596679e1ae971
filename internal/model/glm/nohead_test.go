package glm

import (
	"log/slog"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// openWithoutHead loads a folder without its head and returns the bytes of matrices that were read.
func openWithoutHead(t *testing.T, f *folder) (*rig, int64) {
	t.Helper()
	b := backendtest.Open(t, backend.Options{Threads: 1})
	read := int64(0)
	m, err := Open(openFolder(t, f.write(t)), b, model.Options{
		Compute: backend.Float32, NoHead: true, Log: slog.New(slog.DiscardHandler),
		Progress: func(done, _ int64) { read = done },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return &rig{Model: m, b: b, pool: state.NewPool(b, 1<<28)}, read
}

// TestHeadIsLeftOut opens models without their heads, one of which could not be loaded: they read and keep the bytes of a
// checkpoint that has no head, and give the same logits.
func TestHeadIsLeftOut(t *testing.T) {
	for _, name := range golden.GLM {
		want, bytes := openWithoutHead(t, fixture(t, name, headless))
		logits, _ := want.feed(t, model.Span{State: want.sequence(t), Tokens: prompt, Want: len(prompt)})
		incomplete := func(_ *testing.T, f *folder) { delete(f.tensors, f.head()+"eh_proj.weight") }
		for layout, edits := range map[string][]edit{
			"inside": nil, "converted": {mlx}, "beside": {sidecar}, "no copies": {lone}, "incomplete": {incomplete},
		} {
			t.Run(name+"/"+layout, func(t *testing.T) {
				r, read := openWithoutHead(t, fixture(t, name, edits...))
				if r.Head() != nil || !r.Info().Head {
					t.Errorf("head %v, in the checkpoint: %t", r.Head(), r.Info().Head)
				}
				if read != bytes || r.Info().Bytes != want.Info().Bytes || r.Info().Parameters != want.Info().Parameters {
					t.Errorf("%d bytes read and %+v, want %d and %+v", read, r.Info(), bytes, want.Info())
				}
				got, _ := r.feed(t, model.Span{State: r.sequence(t), Tokens: prompt, Want: len(prompt)})
				same(t, "logits", got, logits)
			})
		}
		if whole := open(t, fixture(t, name).write(t), 1, model.Options{Compute: backend.Float32}); whole.Info().Bytes <= want.Info().Bytes {
			t.Errorf("%s: %d bytes with the head, %d without", name, whole.Info().Bytes, want.Info().Bytes)
		}
	}
}
