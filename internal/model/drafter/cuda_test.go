//go:build cuda

package drafter

import _ "github.com/foretoken/foretoken/internal/backend/cuda" // for make test-cuda
