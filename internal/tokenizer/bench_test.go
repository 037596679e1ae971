package tokenizer

import (
	"path/filepath"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

func english(b *testing.B) string {
	b.Helper()
	text := filetest.Read(b, filepath.Join("testdata", "english.txt"))
	return string(text)
}

// BenchmarkEncode encodes English prose: with the words of an earlier text in the
// cache, and with an empty cache every time, which is the worst case.
func BenchmarkEncode(b *testing.B) {
	for _, v := range vocabularies(b) {
		b.Run("vocab="+v.name, func(b *testing.B) {
			tok, text := mustNew(b, v.file), english(b)
			var ids []int32
			b.Run("cache=warm", func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				for b.Loop() {
					ids = tok.AppendEncode(ids[:0], text)
				}
			})
			b.Run("cache=empty", func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					tok.cache = newWordCache()
					ids = tok.AppendEncode(ids[:0], text)
				}
			})
			b.ReportMetric(float64(len(text))/float64(len(ids)), "bytes/token")
		})
	}
}

// BenchmarkSplit compares scanners with the expressions they stand for.
func BenchmarkSplit(b *testing.B) {
	text := english(b)
	for name, s := range map[string]splitter{
		"pattern=glm/by=scanner": newScanner(other, 3), "pattern=glm/by=expression": oracle(b, glmPattern),
		"pattern=deepseek/by=scanner": newDeepSeekScanner(), "pattern=deepseek/by=expression": newDeepSeekOracle(b),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				s.split(text, func(string) bool { return true })
			}
		})
	}
}

// BenchmarkEncodeHostile encodes a megabyte without a break.
func BenchmarkEncodeHostile(b *testing.B) {
	for _, v := range vocabularies(b) {
		b.Run("vocab="+v.name, func(b *testing.B) {
			tok, text := mustNew(b, v.file), randomLetters(1<<20)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Encode(text)
			}
		})
	}
}

func BenchmarkDecoder(b *testing.B) {
	for _, v := range vocabularies(b) {
		b.Run("vocab="+v.name, func(b *testing.B) {
			tok, text := mustNew(b, v.file), english(b)
			ids := tok.Encode(text)
			d := tok.Decoder(true)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				for _, id := range ids {
					d.Next(id)
				}
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	for _, v := range vocabularies(b) {
		b.Run("vocab="+v.name, func(b *testing.B) {
			data := v.file
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := New(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
