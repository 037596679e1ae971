package cuda

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/cuda/drivertest"
	"github.com/foretoken/foretoken/internal/dtype"
)

// TestLoadBringsEveryTile loads stacks through staging memory of all sizes: halves that hold several
// matrices, some tiles, one tile and none. What lies on the device is what was packed.
func TestLoadBringsEveryTile(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, count := range []int{1, 3} {
		for _, staging := range []int64{1 << 10, 8 << 10, 20 << 10, 1 << 20} {
			t.Run(fmt.Sprintf("%d matrices through %d bytes", count, staging), func(t *testing.T) {
				dev, info := openDriver(t, drivertest.Options{})
				b, err := New(dev, info, Options{Slab: 1, Staging: staging})
				if err != nil {
					t.Fatal(err)
				}
				var stack []dtype.Matrix
				for range count {
					stack = append(stack, randomMatrix(t, rng, 72, 256, 4, 64, dtype.BF16)) // four tiles and a half
				}
				loaded, err := b.Load(backend.Int8, stack...)
				if err != nil {
					t.Fatal(err)
				}
				w := loaded.(*weight)
				tile := make([]byte, w.TileSize)
				for i := range count * w.Layout.Tiles {
					w.pack(tile, &stack[i/w.Layout.Tiles], i%w.Layout.Tiles)
					got := make([]byte, len(tile))
					if err := b.stream.Read(got, w.at+driver.Ptr(i*len(tile))); err != nil {
						t.Fatal(err)
					}
					if err := b.stream.Wait(); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(got, tile) {
						t.Fatalf("tile %d differs", i)
					}
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// BenchmarkPack packs a matrix for tensor cores on one thread: what loading takes of the host.
func BenchmarkPack(b *testing.B) {
	for _, bits := range []int{4, 5, 8} {
		b.Run(fmt.Sprintf("bits=%d", bits), func(b *testing.B) {
			dev, info := openDriver(b, drivertest.Options{})
			gpu, err := New(dev, info, Options{Slab: 1, Staging: 1 << 20})
			if err != nil {
				b.Fatal(err)
			}
			m := randomMatrix(b, rand.New(rand.NewPCG(1, 2)), 512, 5120, bits, 64, dtype.BF16)
			loaded, err := gpu.Load(backend.Int8, m)
			if err != nil {
				b.Fatal(err)
			}
			w := loaded.(*weight)
			tile := make([]byte, w.TileSize)
			b.SetBytes(m.Bytes())
			for b.Loop() {
				for i := range w.Layout.Tiles {
					w.pack(tile, &m, i)
				}
			}
		})
	}
}
