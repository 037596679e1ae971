package foretoken

// The devices that this build has. Each registers itself; one line per device.
import (
	_ "github.com/foretoken/foretoken/internal/backend/cpu"
)
