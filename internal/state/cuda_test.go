//go:build cuda

package state

import _ "github.com/foretoken/foretoken/internal/backend/cuda" // for make test-cuda
