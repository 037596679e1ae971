//go:build cuda

package cuda

import (
	"embed"
	"fmt"
	"io/fs"
	"runtime"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
)

//go:embed kernels/*.ptx.gz
var embedded embed.FS

func init() {
	backend.Register(backend.Device{
		Name: "cuda", Rank: rank,
		ISAs:  func() []string { return nil },
		Probe: probe,
		Open: func(o backend.Options) (backend.Backend, error) {
			b, err := Open(Options{Log: o.Log})
			if err != nil {
				return nil, err // and no Backend that is a nil pointer
			}
			return b, nil
		},
	})
}

// probe looks for a GPU without opening it.
func probe() backend.Info {
	i := backend.Info{Threads: runtime.GOMAXPROCS(0), Compute: []backend.Compute{backend.Int8, backend.Float32}, WeightBytes: weightBytes}
	d, err := driver.Library()
	if err == nil {
		var info driver.Info
		_, info, err = choose(d)
		i.Memory, i.Free = info.Memory, info.Memory
	}
	if err != nil {
		i.Missing = err.Error()
	}
	return i
}

// Open opens the first GPU that the program's kernels support.
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
