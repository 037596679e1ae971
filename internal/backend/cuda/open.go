package cuda

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
)

// gpus are the GPUs of a driver, at least one.
func gpus(d driver.Driver) ([]driver.Info, error) {
	infos, err := d.Devices()
	if err == nil && len(infos) == 0 {
		err = &driver.Error{Call: "cuDeviceGetCount", Code: driver.NoDevice}
	}
	if err != nil {
		return nil, err
	}
	if known := infos[0].Driver; known < driver.MinVersion {
		return nil, fmt.Errorf("the NVIDIA driver supports CUDA %s, but the kernels need %s: install a newer driver", driver.Version(known), driver.Version(driver.MinVersion))
	}
	return infos, nil
}

// choose is the GPU of a number, as of backend.Options, or the first of a driver that the kernels run on.
func choose(d driver.Driver, number int) (int, driver.Info, error) {
	infos, err := gpus(d)
	if err != nil {
		return 0, driver.Info{}, err
	}
	if number > len(infos) {
		return 0, driver.Info{}, fmt.Errorf("there is no GPU %d: the last is cuda:%d", number-1, len(infos)-1)
	}
	for i, info := range infos {
		if info.Compute[0] >= minCompute && (number == 0 || i == number-1) {
			return i, info, nil
		}
	}
	info := infos[max(number-1, 0)]
	return 0, info, errors.New(info.Name + ": " + tooOld(info))
}

// describe describes the GPUs of a driver.
func describe(d driver.Driver) []backend.Info {
	infos, err := gpus(d)
	if err != nil {
		return []backend.Info{{Missing: err.Error()}}
	}
	var list []backend.Info
	threads, why := backend.Threads()
	for _, info := range infos {
		i := backend.Info{
			Threads: threads, Reason: why, Compute: []backend.Compute{backend.Int8, backend.Float32}, WeightBytes: weightBytes,
			Memory: info.Memory, Free: info.Memory,
		}
		if info.Compute[0] < minCompute {
			i.Missing = info.Name + ": " + tooOld(info)
		}
		list = append(list, i)
	}
	return list
}

// openOn opens a GPU and compiles the kernels, which the driver caches. A missing
// driver or GPU is backend.ErrUnavailable; an unusable GPU is another error,
// so that a program does not silently compute on another device.
func openOn(d driver.Driver, o Options) (*Backend, error) {
	i, info, err := choose(d, o.Number)
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
	files, err := fs.Glob(b.opts.Kernels, "*.ptx.pack")
	if err != nil {
		return err
	}
	for _, file := range files {
		if _, err := b.load(strings.TrimSuffix(file, ".ptx.pack")); err != nil {
			return err
		}
	}
	return nil
}
