package qwen35

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// openWithoutHead loads a folder without its head and returns the bytes of matrices that were read.
func openWithoutHead(t *testing.T, f *folder) (*rig, int64) {
	t.Helper()
	c, err := checkpoint.Open(f.write(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // read only
	b := backendtest.Open(t, backend.Options{Threads: 1})
	read := int64(0)
	m, err := Open(c, b, model.Options{
		Compute: backend.Float32, NoHead: true, Log: slog.New(slog.DiscardHandler),
		Progress: func(done, _ int64) { read = done },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return &rig{Model: m, b: b, pool: state.NewPool(b, 1<<30)}, read
}

// TestHeadIsLeftOut stores heads in several ways, some of which could not be loaded. Without the head a model reads and
// keeps the bytes of a checkpoint that has none, and gives the same logits.
func TestHeadIsLeftOut(t *testing.T) {
	for _, c := range golden.SpecCases() {
		bare := specFolder(t, c.Config)
		bare.main().take(inHead)
		want, bytes := openWithoutHead(t, bare)
		if want.Info().Head {
			t.Fatal("a head was found where there is none")
		}
		n := len(golden.SpecPrompt)
		logits, _ := want.feed(t, model.Span{State: want.sequence(t), Tokens: golden.SpecPrompt, Want: n})
		for _, l := range []layout{
			{"inside", nil},
			{"converted", []edit{mlx}},
			{"in shards", []edit{sharded(2, "model-00003-of-00003.safetensors")}},
			{"beside", []edit{sidecar("mtp.safetensors")}},
			{"inside and beside", []edit{otherHead("mtp.safetensors")}},
			{"incomplete", []edit{without("mtp.fc.weight", "mtp.norm.weight")}},
			{"of two layers", []edit{with(numbers("mtp.layers.1.input_layernorm.weight", dtype.F32, []int{1}, []float32{1}))}},
		} {
			t.Run(fmt.Sprintf("model=%s/head=%s", c.Config.Name, l.name), func(t *testing.T) {
				r, read := openWithoutHead(t, specFolder(t, c.Config, l.edits...))
				if r.Head() != nil || !r.Info().Head {
					t.Errorf("head %v, in the checkpoint: %t", r.Head(), r.Info().Head)
				}
				if read != bytes || r.Info().Bytes != want.Info().Bytes || r.Info().Parameters != want.Info().Parameters {
					t.Errorf("%d bytes read and %+v, want %d and %+v", read, r.Info(), bytes, want.Info())
				}
				got, _ := r.feed(t, model.Span{State: r.sequence(t), Tokens: golden.SpecPrompt, Want: n})
				same(t, "logits", got, logits)
			})
		}
		whole := open(t, specFolder(t, c.Config).write(t), 1, model.Options{Compute: backend.Float32})
		if whole.Info().Bytes <= want.Info().Bytes {
			t.Errorf("%s: %d bytes with the head, %d without", c.Config.Name, whole.Info().Bytes, want.Info().Bytes)
		}
	}
}
