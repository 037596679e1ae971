//go:build !unix

package tokenizer

import (
	"testing"
	"time"
)

var started = time.Now()

// processorTime is the time since the start, where the system is not asked for that of processors.
func processorTime(*testing.T) time.Duration { return time.Since(started) }
