//go:build cuda

package qwen35

import _ "github.com/foretoken/foretoken/internal/backend/cuda" // for make test-cuda
