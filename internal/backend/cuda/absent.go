//go:build !cuda

package cuda

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
)

func init() {
	const missing = "built without CUDA: use a build with the tag cuda"
	backend.Register(backend.Device{
		Name: "cuda", Rank: rank, Numbered: true,
		ISAs:  func() []string { return nil },
		Probe: func() []backend.Info { return []backend.Info{{Missing: missing}} },
		Open: func(backend.Options) (backend.Backend, error) {
			return nil, fmt.Errorf("cuda: %w: %s", backend.ErrUnavailable, missing)
		},
	})
}
