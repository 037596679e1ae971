//go:build !vulkan

package vulkan

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
)

func init() {
	const missing = "built without Vulkan: use a build with the tag vulkan"
	backend.Register(backend.Device{
		Name: "vulkan", Rank: rank, Numbered: true,
		ISAs:  func() []string { return nil },
		Probe: func() []backend.Info { return []backend.Info{{Missing: missing}} },
		Open: func(backend.Options) (backend.Backend, error) {
			return nil, fmt.Errorf("vulkan: %w: %s", backend.ErrUnavailable, missing)
		},
	})
}
