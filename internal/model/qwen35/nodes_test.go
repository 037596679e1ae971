package qwen35

import (
	"bytes"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
)

// TestNodesChangeNothing puts a model on several devices, some of them behind connections that delay everything by 0 to 5 ms:
// logits, drafts, rollbacks and saved states have the bits of one device, and each goes on with what the other has saved. The
// long version has more placements, each with every delay.
func TestNodesChangeNothing(t *testing.T) {
	cases := [][2]string{
		{"dense", "layers@cpu+remote"},
		{"dense", "turns@remote+remote:0.1ms+remote:5ms"},
		{"moe", "turns@remote+cpu+remote:0.1ms"},
		{"moe", "turns@cpu+remote+remote:0.1ms+remote:0.8ms"},
	}
	if long {
		cases = nil
		for _, name := range []string{"dense", "moe"} {
			for _, place := range []string{"turns@remote", "layers@cpu"} {
				for _, delay := range []string{"0s", "0.1ms", "0.8ms", "5ms"} {
					for n := range 3 {
						cases = append(cases, [2]string{name, place + strings.Repeat("+remote:"+delay, n+1)})
					}
				}
			}
		}
	}
	for _, c := range cases {
		t.Run(c[0]+"/"+c[1], func(t *testing.T) {
			f := golden.Load(t, c[0])
			tokens, o := f.Cases[len(f.Cases)-1].Tokens[:74], model.Options{Quantize: 8, MaxDrafts: 4, KVBits: 4}
			one := openSplit(t, golden.Dir(t, c[0]), backendtest.CPU(t, backend.Options{Threads: 1}), o)
			t.Setenv("FORETOKEN_TEST_DEVICE", c[1])
			r := openSplit(t, golden.Dir(t, c[0]), backendtest.Open(t, backend.Options{Threads: 1}), o)
			want, got := live(t, one, tokens), live(t, r, tokens)
			same(t, "logits", got.rows, want.rows)
			if !bytes.Equal(got.saved, want.saved) {
				t.Error("the saved state has other bytes")
			}
			same(t, "what another has saved", resume(t, r, want.saved, tokens), resume(t, one, got.saved, tokens))
		})
	}
}
