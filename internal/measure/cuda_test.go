//go:build cuda

package measure

import _ "github.com/foretoken/foretoken/internal/backend/cuda" // for make test-cuda
