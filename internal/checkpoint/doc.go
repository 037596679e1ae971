// Package checkpoint knows a model folder on disk, or one compiled into the
// binary: its JSON files, its safetensors files, which tensors they hold, and how
// the tensors that belong together make one encoded matrix.
//
// It does not know any model: neither the names of tensors nor what they are for.
// A family asks for what its config promises; what it did not ask for is listed
// by Unused. Everything in the folder is untrusted: a malformed file is an error
// that names it, and no memory is taken on the word of a header.
package checkpoint
