//go:build cuda

package engine

import _ "github.com/foretoken/foretoken/internal/backend/cuda" // for make test-cuda
