package gemma

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// errTower is why a checkpoint's towers are not used.
var errTower = fmt.Errorf("gemma: images and sound of Gemma 4 are not supported: %w", weights.ErrTextOnly)

// OpenTower implements network.multimodal. The towers for images and for sound are known, but not used.
func (*config) OpenTower(f *weights.Files) (network.Tower, error) {
	if !f.HasTower() {
		return nil, nil
	}
	f.SkipTower()
	return nil, errTower
}

// NewTower implements network.multimodal: there is none.
func (*config) NewTower() network.Tower { return nil }
