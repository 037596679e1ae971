//go:build cuda

package mtp_test

import _ "github.com/foretoken/foretoken/internal/backend/cuda" // for make test-cuda
