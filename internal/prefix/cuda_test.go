//go:build cuda

package prefix

import _ "github.com/foretoken/foretoken/internal/backend/cuda" // for make test-cuda
