//go:build cuda

package cuda

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"

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
		Open: func(backend.Options) (backend.Backend, error) {
			b, err := Open(Options{})
			if err != nil {
				return nil, err // and no Backend that is a nil pointer
			}
			return b, nil
		},
	})
}

// find is the first GPU that the kernels run on.
func find() (driver.Driver, int, driver.Info, error) {
	d, err := driver.Library()
	if err != nil {
		return nil, 0, driver.Info{}, err
	}
	infos, err := d.Devices()
	if err != nil {
		return nil, 0, driver.Info{}, err
	}
	if len(infos) == 0 {
		return nil, 0, driver.Info{}, &driver.Error{Call: "cuDeviceGetCount", Code: driver.NoDevice}
	}
	for i, info := range infos {
		if info.Compute[0] >= minCompute {
			return d, i, info, nil
		}
	}
	return nil, 0, infos[0], errors.New(infos[0].Name + ": " + tooOld(infos[0]))
}

// probe looks for a GPU, and does not open it.
func probe() backend.Info {
	i := backend.Info{Threads: runtime.GOMAXPROCS(0), Compute: []backend.Compute{backend.Int8, backend.Float32}}
	_, _, info, err := find()
	if err != nil {
		i.Missing = err.Error()
	}
	i.Memory, i.Free = info.Memory, info.Memory
	return i
}

// Open opens the first GPU and compiles the kernels, which the driver keeps for the next time.
// The kernels of the options are those of the program.
func Open(o Options) (*Backend, error) {
	d, i, info, err := find()
	if err != nil {
		return nil, fmt.Errorf("cuda: %w: %w", backend.ErrUnavailable, err)
	}
	if o.Kernels, err = fs.Sub(embedded, "kernels"); err != nil {
		return nil, err
	}
	dev, err := d.Open(i)
	if err != nil {
		return nil, err
	}
	b, err := New(dev, info, o)
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	if err := b.loadAll(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// loadAll brings all modules to the device.
func (b *Backend) loadAll() error {
	files, err := fs.Glob(b.opts.Kernels, "*.ptx.gz")
	if err != nil {
		return err
	}
	for _, file := range files {
		if _, err := b.load(strings.TrimSuffix(file, ".ptx.gz")); err != nil {
			return err
		}
	}
	return nil
}
