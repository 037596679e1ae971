package cuda

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
)

// choose is the first GPU of a driver that the kernels run on.
func choose(d driver.Driver) (int, driver.Info, error) {
	infos, err := d.Devices()
	if err == nil && len(infos) == 0 {
		err = &driver.Error{Call: "cuDeviceGetCount", Code: driver.NoDevice}
	}
	if err != nil {
		return 0, driver.Info{}, err
	}
	if known := infos[0].Driver; known < driver.MinVersion {
		return 0, infos[0], fmt.Errorf("the NVIDIA driver supports CUDA %s, but the kernels need %s: install a newer driver", driver.Version(known), driver.Version(driver.MinVersion))
	}
	for i, info := range infos {
		if info.Compute[0] >= minCompute {
			return i, info, nil
		}
	}
	return 0, infos[0], errors.New(infos[0].Name + ": " + tooOld(infos[0]))
}

// openOn opens the first GPU and compiles the kernels, which the driver caches. A missing
// driver or GPU is backend.ErrUnavailable; an unusable GPU is another error,
// so that a program does not silently compute on another device.
func openOn(d driver.Driver, o Options) (*Backend, error) {
	i, info, err := choose(d)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w: %w", backend.ErrUnavailable, err)
	}
	dev, err := d.Open(i)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", info.Name, err)
	}
	b, err := New(dev, info, o)
	if err != nil {
		_ = dev.Close() // err came first, and people read one line
		return nil, fmt.Errorf("%s: %w", info.Name, err)
	}
	if err := b.loadAll(); err != nil {
		_ = b.Close()
		return nil, fmt.Errorf("%s: %w", info.Name, err)
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
