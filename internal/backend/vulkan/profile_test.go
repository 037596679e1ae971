//go:build vulkan

package vulkan

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// kernelsAreTimed profiles a pass of three kernels, of which two run side by side, and reads memory.
func kernelsAreTimed(t *testing.T, b *Backend) {
	x, err := b.Alloc(dtype.F32, 64, 64)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free(x)
	b.Pass(backend.Pass{Of: "timed", Batch: []backend.Seq{{N: 1}}}, func() {
		b.beside(true, func() { b.Fill(x.RowRange(0, 32), 1); b.Fill(x.RowRange(32, 64), 2) })
		b.RMSNorm(x, x, x.RowRange(0, 1), 1e-6)
	})
	costs, err := b.Profile(2)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, c := range costs {
		count[c.Kernel] = c.Count
	}
	if len(costs) != 2 || count["fill"] != 2 || count["rms_norm"] != 1 {
		t.Errorf("costs %v", costs)
	}
	s, err := b.NewStream(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if took := s.Read(); took <= 0 || s.Bytes() != 1<<20 {
		t.Errorf("%d bytes took %v", s.Bytes(), took)
	}
	if err := b.wait(); err != nil {
		t.Fatal(err)
	}
}
