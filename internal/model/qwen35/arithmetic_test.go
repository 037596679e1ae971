package qwen35

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
	"github.com/foretoken/foretoken/internal/model/qwen35/vision"
	"github.com/foretoken/foretoken/internal/state"
)

// modelCases are the ways to compute that have bits of their own.
var modelCases = []struct {
	name string
	o    model.Options
}{
	{"tiny", model.Options{}},
	{"dense", model.Options{}},
	{"dense", model.Options{Quantize: 4}},
	{"dense", model.Options{Quantize: 8, KVBits: 8}},
	{"dense", model.Options{Quantize: 8, KVBits: 4}},
	{"dense", model.Options{Compute: backend.Float32}},
	{"moe", model.Options{Quantize: 5, KVBits: 32}},
	{"moe", model.Options{Quantize: 6, Compute: backend.Float32, KVBits: 16}},
	{"moe", model.Options{Compute: backend.Float32}},
}

// TestNetworkBitsAreRecorded computes logits of whole models and of their heads, in pieces
// that cross a page, and the state of both after them as it goes to disk. Its digest is part
// of the arithmetic's name: where bits change and the name does not, this fails, for caches on
// disk would serve what former versions computed. The rows that the embedded model's vocabulary
// got with its vision tower do not count: all other bits are those from before. Rows of an image
// from towers of numbers and of integers are recorded too.
func TestNetworkBitsAreRecorded(t *testing.T) {
	all := sha256.New()
	for _, c := range modelCases {
		r := open(t, golden.Dir(t, c.name), 0, c.o)
		text, vocab := make([]int32, 90), r.Info().Vocab
		if c.name == "tiny" {
			text = text[:20] // a trained model; the generic kernels take their time
			vocab = 8192
		}
		for i := range text {
			text[i] = int32(i*i*7+i*31+5) % int32(vocab)
		}
		h := sha256.New()
		add := func(row []float32) {
			var b []byte
			for _, x := range row {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			}
			_, _ = h.Write(b) // a hash takes everything
		}
		target, memory := r.Sequence(t), r.Pairs(t)
		for at := 0; at < len(text)-1; {
			n := min(40, len(text)-1-at)
			logits, hidden := r.Feed(t, model.Span{State: target, Tokens: text[at : at+n], Want: 2})
			for _, row := range logits {
				add(row[:vocab])
			}
			add(hidden)
			out, err := r.Head().Forward([]model.Span{{State: memory, Tokens: text[at+1 : at+n+1], Want: 2, Hidden: r.Upload(t, hidden)}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range modeltest.Rows(t, out) {
				add(row[:vocab])
			}
			at += n
		}
		for _, s := range []*state.State{target, memory} {
			_, _ = h.Write(modeltest.Saved(t, s))
		}
		t.Logf("%s, %v quantized to %d, keys of %d bits: %x", c.name, c.o.Compute, c.o.Quantize, c.o.KVBits, h.Sum(nil)[:8])
		_, _ = fmt.Fprintf(all, "%s %v %d %d %x\n", c.name, c.o.Compute, c.o.Quantize, c.o.KVBits, h.Sum(nil))
	}
	for _, c := range []struct {
		name string
		o    model.Options
	}{{"vision", model.Options{}}, {"tiny", model.Options{Quantize: 8}}} {
		h := sha256.New()
		for _, x := range see(t, towerOf(t, open(t, golden.Dir(t, c.name), 0, c.o)), vision.StepOperations, onePicture(t))[0] {
			_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(x)))
		}
		t.Logf("tower of %s, quantized to %d: %x", c.name, c.o.Quantize, h.Sum(nil)[:8])
		_, _ = fmt.Fprintf(all, "tower of %s %d %x\n", c.name, c.o.Quantize, h.Sum(nil))
	}
	if got := binary.BigEndian.Uint64(all.Sum(nil)); got != backend.NetworkBits {
		t.Errorf("models compute other bits than those of arithmetic %s. If that is not meant, find what changed them. If it is, answers and caches of former versions are not reproduced, so what the arithmetic is called must change: write ArithmeticVersion = %d and NetworkBits = %#016x in internal/backend/arithmetic.go",
			backend.Arithmetic(), backend.ArithmeticVersion+1, got)
	}
}
