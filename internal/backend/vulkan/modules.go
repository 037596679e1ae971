package vulkan

import (
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
	"github.com/foretoken/foretoken/internal/backend/vulkan/spirv"
)

// kernelsFile has all modules: for each the length of its name, the name, the length in bytes, and the module, lengths as
// little-endian numbers of 32 bits.
const kernelsFile = "kernels.spv.gz"

// allModules reads kernelsFile.
func allModules(kernels fs.FS) (map[string]spirv.Module, error) {
	file, err := kernels.Open(kernelsFile)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // read only
	z, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	list := map[string]spirv.Module{}
	next := func() ([]byte, error) {
		if len(data) < 4 || uint64(len(data)-4) < uint64(binary.LittleEndian.Uint32(data)) {
			return nil, errors.New(kernelsFile + " is cut off")
		}
		n := 4 + int(binary.LittleEndian.Uint32(data))
		part := data[4:n]
		data = data[n:]
		return part, nil
	}
	for len(data) > 0 {
		name, err := next()
		if err != nil {
			return nil, err
		}
		code, err := next()
		if err != nil {
			return nil, err
		}
		if list[string(name)], err = spirv.Read(code); err != nil {
			return nil, fmt.Errorf("kernel %s: %w", name, err)
		}
	}
	return list, nil
}

// readModules are the modules for a device, with what it promises about floats.
func readModules(kernels fs.FS, info *driver.Info) (map[string]spirv.Module, error) {
	list, err := allModules(kernels)
	if err != nil {
		return nil, err
	}
	for name, m := range list {
		if list[name], err = m.WithControls(spirv.Controls(info.Keeps)); err != nil {
			return nil, fmt.Errorf("kernel %s: %w", name, err)
		}
	}
	return list, nil
}

// withoutOthers is a module without the arithmetic of other levels: a compiler copies it to each of its many calls before it finds out that
// they are not made.
func withoutOthers(m spirv.Module, l Level) (spirv.Module, error) {
	var err error
	if !l.double() {
		m, err = m.WithoutFloat64()
	}
	switch {
	case err != nil || l == AllGuarded:
		return m, err
	case l <= Doubles:
		return m.WithoutIntegers(), nil
	}
	return m.WithoutGuards(), nil
}
