package qwen35

import "testing"

// MixedGGUF makes a GGUF file of a checkpoint with blocks of every type and the tokenizer of
// another, for tests of packages that are built on this one.
func MixedGGUF(t *testing.T, dir, words, arch string) string {
	t.Helper()
	path, _ := convertGGUF(t, dir, arch, mixed(), 1, func(l *llama) { l.words = words })
	return path
}
