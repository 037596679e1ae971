//go:build cuda

package glm

import _ "github.com/foretoken/foretoken/internal/backend/cuda" // for make test-cuda
