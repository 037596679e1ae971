package foretoken

// The model families that this package runs. Each registers itself; one line per family.
import (
	_ "github.com/foretoken/foretoken/internal/model/qwen35"
)
