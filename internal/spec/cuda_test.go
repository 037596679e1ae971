//go:build cuda

package spec

import _ "github.com/foretoken/foretoken/internal/backend/cuda" // for make test-cuda
