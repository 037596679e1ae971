package qwen35

import (
	"path/filepath"
	"testing"
)

// MixedGGUF makes a GGUF file of a checkpoint with blocks of every type and the tokenizer of
// another, for tests of packages that are built on this one.
func MixedGGUF(t *testing.T, dir, words, arch string) string {
	t.Helper()
	path, _ := convertGGUF(t, dir, arch, mixed(), 1, func(l *llama) { l.words = words })
	return path
}

// WideGGUF makes a GGUF file in which superblocks have columns of two value heads each.
func WideGGUF(t *testing.T, typ string) string { return wideGGUF(t, typ) }

// Answers are the logits of a model and of its head after a text.
func Answers(t *testing.T, path string, text []int32) [][]float32 { return answers(t, path, text) }

// VisionGGUF makes a GGUF file of the vision fixture, with the projector beside it.
func VisionGGUF(t *testing.T, words string) string {
	t.Helper()
	source := visionFolder(t)
	path, _ := convertGGUF(t, source.write(t), "qwen35", oneType("BF16"), 1, func(l *llama) { l.words = words })
	put(t, filepath.Dir(path), "mmproj-F16.gguf", projector(t, source, plainly("F32", mixed()), nil))
	return path
}
