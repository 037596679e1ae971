//go:build vulkan

package foretoken

import _ "github.com/foretoken/foretoken/internal/backend/vulkan" // in development, so only builds with the tag have it
