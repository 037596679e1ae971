package foretoken

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestDefaultKVMemoryIsThatOfTheBatch compares the default with the need of one sequence, and space for long copies. Every
// machine that runs the tests has twice as much memory as three such sequences need.
func TestDefaultKVMemoryIsThatOfTheBatch(t *testing.T) {
	o := Options{Context: 256, Speculation: Speculation{NoSelfTest: true}, Log: silent}
	alone := least(t, Tiny, o)
	o.KVMemory = 1 // raised to the need of one sequence
	one := least(t, Tiny, o)
	if alone <= one || alone > 2*one {
		t.Errorf("%d bytes by default, of which one sequence needs %d", alone, one)
	}
	for _, batch := range []int{1, 3} {
		o.KVMemory, o.MaxBatch = -1, batch
		if got := least(t, Tiny, o); got != int64(batch-1)*one+alone {
			t.Errorf("%d bytes for %d sequences, of which one needs %d", got, batch, one)
		}
	}
}

// TestRaisedKVMemoryIsLogged asks for less memory than one sequence needs.
func TestRaisedKVMemoryIsLogged(t *testing.T) {
	var log bytes.Buffer
	o := Options{Context: 256, Speculation: Speculation{NoSelfTest: true}, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if least(t, Tiny, o); log.Len() > 0 {
		t.Errorf("by default: %s", &log)
	}
	o.KVMemory = 1
	one := least(t, Tiny, o)
	log.Reset()
	o.KVMemory = one
	if least(t, Tiny, o); log.Len() > 0 {
		t.Errorf("with enough: %s", &log)
	}
	o.KVMemory = one - 1
	if got := least(t, Tiny, o); got != one || strings.Count(log.String(), "the KV memory is raised") != 1 {
		t.Errorf("%d bytes, want %d; logged: %q", got, one, log.String())
	}
}
