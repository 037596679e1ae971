//go:build cuda

package drafter_test

import _ "github.com/foretoken/foretoken/internal/backend/cuda" // for make test-cuda
