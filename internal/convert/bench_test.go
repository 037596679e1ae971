package convert

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
)

// BenchmarkConvert is a whole conversion on one thread, files included, by the bytes of a
// bf16 source. Nearly all of it is one matrix of 64 MB.
func BenchmarkConvert(b *testing.B) {
	const vocab = 1 << 18
	dir := fixture(b, "dense", func(s *stored) {
		s.config["text_config"].(map[string]any)["vocab_size"] = vocab
		s.config["tie_word_embeddings"] = true
		s.take(func(name string) bool { return name == "lm_head.weight" })
		s.each(func(x *tensor) {
			if !strings.HasSuffix(x.name, "embed_tokens.weight") {
				return
			}
			x.shape[0], x.data = vocab, make([]byte, vocab*x.shape[1]*2)
			state := uint32(1)
			for i := 0; i < len(x.data); i += 2 {
				state = state*1664525 + 1013904223
				binary.LittleEndian.PutUint16(x.data[i:], dtype.ToBF16(float32(int32(state))/(1<<36)))
			}
		})
	}).write(b)
	src := golden.Open(b, dir)
	for _, o := range []struct {
		name string
		Encoding
	}{
		{"bits=4", Encoding{Format: dtype.Affine, Bits: 4, Group: 64}},
		{"bits=5", Encoding{Format: dtype.Affine, Bits: 5, Group: 64}},
		{"mode=mxfp4", Encoding{Format: dtype.MXFP4}},
	} {
		b.Run(o.name, func(b *testing.B) {
			parent := b.TempDir()
			b.SetBytes(src.Bytes())
			for i := 0; b.Loop(); i++ {
				if _, err := Convert(b.Context(), src, filepath.Join(parent, fmt.Sprint(i)), Options{Quantize: &o.Encoding, Threads: 1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
