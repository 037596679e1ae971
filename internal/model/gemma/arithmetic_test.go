package gemma

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
)

// recordedBits is the digest of what TestNetworkBitsAreRecorded computes.
const recordedBits = 0xd6daffe70cb4660e

// TestNetworkBitsAreRecorded computes logits of whole models, in pieces that cross a page, and their state after them as it goes
// to disk.
func TestNetworkBitsAreRecorded(t *testing.T) {
	all := sha256.New()
	for _, c := range []struct {
		name string
		o    model.Options
	}{
		{"gemma4_dense", model.Options{Compute: backend.Float32}},
		{"gemma4_moe", model.Options{Quantize: 4}},
		{"gemma4_ple", model.Options{Quantize: 8, KVBits: 8}},
		{"gemma4_ple", model.Options{Compute: backend.Float32, KVBits: 16}},
		{"gemma4_unified", model.Options{Quantize: 5}},
	} {
		r := open(t, golden.Dir(t, c.name), 0, c.o)
		text := make([]int32, 90)
		for i := range text {
			text[i] = int32(i*i*7+i*31+5) % int32(r.Info().Vocab)
		}
		h := sha256.New()
		add := func(rows ...[]float32) {
			for _, row := range rows {
				for _, x := range row {
					_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(x))) // a hash takes everything
				}
			}
		}
		target := r.Sequence(t)
		for at := 0; at < len(text); {
			n := min(40, len(text)-at)
			logits, hidden := r.Feed(t, model.Span{State: target, Tokens: text[at : at+n], Want: 2})
			add(logits...)
			add(hidden)
			at += n
		}
		_, _ = h.Write(modeltest.Saved(t, target))
		t.Logf("%s, %v quantized to %d, rows of %d bits: %x", c.name, c.o.Compute, c.o.Quantize, c.o.KVBits, h.Sum(nil)[:8])
		_, _ = fmt.Fprintf(all, "%x\n", h.Sum(nil))
	}
	if got := binary.BigEndian.Uint64(all.Sum(nil)); got != recordedBits {
		t.Errorf("models compute other bits than those recorded for arithmetic %s. If that is not meant, find what changed them. If it is, raise backend.ArithmeticVersion, and write recordedBits = %#016x",
			backend.Arithmetic(), got)
	}
}
