//go:build vulkan

package engine

import _ "github.com/foretoken/foretoken/internal/backend/vulkan" // for FORETOKEN_TEST_DEVICE=vulkan
