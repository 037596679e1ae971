// Package gguf reads GGUF files, versions 2 and 3, whole or split: their metadata, the
// directory of their tensors, and the tensors themselves as matrices of package dtype.
//
// Matrices are views of the file, in the block formats of package dtype: nothing is copied
// and nothing quantized again.
//
// It does not know any model: neither the keys of the metadata nor the names of tensors,
// except those of the file layout. Everything in a file is untrusted: a malformed
// one is an error that names it, and memory is never allocated by a header's claim alone.
package gguf
