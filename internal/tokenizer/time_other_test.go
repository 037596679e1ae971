//go:build !unix

package tokenizer

import (
	"testing"
	"time"
)

var started = time.Now()

// processorTime is the time since the start, on systems without a clock of processor time.
func processorTime(*testing.T) time.Duration { return time.Since(started) }
