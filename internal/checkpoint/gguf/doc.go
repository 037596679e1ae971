// Package gguf reads GGUF files, versions 2 and 3, whole or split: their metadata, the
// directory of their tensors, and the tensors themselves as matrices of package dtype.
//
// Every block of a quantized tensor is a few groups of integers with a scale and, written
// out or implied, a bias. So it is repacked, not quantized again: the matrices hold the
// very numbers that the blocks stand for.
//
// It does not know any model: neither the keys of the metadata nor the names of tensors,
// save for what says how a file is laid out. Everything in a file is untrusted: a malformed
// one is an error that names it, and no memory is taken on the word of a header.
package gguf
