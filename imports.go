package foretoken

// The devices and the model families that this build has. Each registers itself; one line each.
import (
	_ "github.com/foretoken/foretoken/internal/backend/cpu"
	_ "github.com/foretoken/foretoken/internal/backend/cuda"
	_ "github.com/foretoken/foretoken/internal/backend/vulkan"
	_ "github.com/foretoken/foretoken/internal/model/gemma"
	_ "github.com/foretoken/foretoken/internal/model/glm"
	_ "github.com/foretoken/foretoken/internal/model/qwen35"
)
