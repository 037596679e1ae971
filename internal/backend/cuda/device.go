//go:build cuda

package cuda

import (
	"embed"
	"fmt"
	"io/fs"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
)

//go:embed kernels/*.ptx.pack
var embedded embed.FS

func init() {
	backend.Register(backend.Device{
		Name: "cuda", Rank: rank, Numbered: true,
		ISAs:  func() []string { return nil },
		Probe: probe,
		Open: func(o backend.Options) (backend.Backend, error) {
			b, err := Open(Options{Log: o.Log, Number: o.Number})
			if err != nil {
				return nil, err // and no Backend that is a nil pointer
			}
			return b, nil
		},
	})
}

// probe looks for GPUs without opening them.
func probe() []backend.Info {
	d, err := driver.Library()
	if err != nil {
		return []backend.Info{{Missing: err.Error()}}
	}
	return describe(d)
}

// Open opens the GPU of a number, or the first that the program's kernels support.
func Open(o Options) (*Backend, error) {
	d, err := driver.Library()
	if err != nil {
		return nil, fmt.Errorf("cuda: %w: %w", backend.ErrUnavailable, err)
	}
	if o.Kernels, err = fs.Sub(embedded, "kernels"); err != nil {
		return nil, err
	}
	return openOn(d, o)
}
