//go:build cuda

package gemma

import _ "github.com/foretoken/foretoken/internal/backend/cuda" // for make test-cuda
