//go:build vulkan

package vulkan

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
)

//go:embed kernels/kernels.spv.gz
var embedded embed.FS

func init() {
	backend.Register(backend.Device{
		Name: "vulkan", Rank: rank, Numbered: true,
		ISAs:  func() []string { return nil },
		Probe: describe,
		Open: func(o backend.Options) (backend.Backend, error) {
			b, err := Open(Options{Log: o.Log, Number: o.Number, Auto: o.Auto, Prove: true, Proofs: proofs()}, nil)
			if err != nil {
				return nil, err // and no Backend that is a nil pointer
			}
			return b, nil
		},
	})
}

// proofs is the folder of proofs of this user; "": there is none.
func proofs() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "foretoken")
}

// describe describes the GPUs of the machine.
func describe() []backend.Info {
	d, err := driver.Library()
	if err != nil {
		return []backend.Info{{Missing: err.Error()}}
	}
	kernels, err := fs.Sub(embedded, "kernels")
	if err != nil {
		return []backend.Info{{Missing: err.Error()}}
	}
	infos, err := d.Devices()
	if err != nil || len(infos) == 0 {
		return []backend.Info{{Missing: "no Vulkan driver for a GPU is installed"}}
	}
	var list []backend.Info
	threads, why := backend.Threads()
	for _, i := range infos {
		info := backend.Info{
			Threads: threads, Reason: why, Compute: []backend.Compute{backend.Int8, backend.Float32}, Memory: i.Memory, Free: i.Memory, Manual: i.Kind != driver.Discrete,
		}
		switch proof, refused := described(&i, kernels, proofs()); {
		case i.Missing != "":
			info.Missing = i.Name + ": " + i.Missing
		case refused != nil:
			info.Missing = i.Name + ": " + refused.Error()
		default:
			info.Detail = fmt.Sprintf("%s, Vulkan %s; %s", i.Name, driver.APIVersion(i.API), proof)
		}
		list = append(list, info)
	}
	return list
}

// Open opens the GPU of a number, or the first usable one, at the first of some levels that is exact; nil: all of them.
func Open(o Options, levels []Level) (*Backend, error) {
	d, err := driver.Library()
	if err != nil {
		return nil, fmt.Errorf("vulkan: %w: %w", backend.ErrUnavailable, err)
	}
	if o.Kernels, err = fs.Sub(embedded, "kernels"); err != nil {
		return nil, err
	}
	return openOn(d, o, levels)
}
