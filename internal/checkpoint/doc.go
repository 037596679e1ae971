// Package checkpoint reads a model folder on disk, or one compiled into the
// binary: its JSON files, its safetensors files, the tensors in them, and the
// encoded matrices that several tensors make together.
//
// It does not know any model: neither the names of tensors nor their purpose.
// A family requests the tensors of its config; Unused lists the rest.
// Everything in the folder is untrusted: a malformed file is an error
// that names it, and memory is never allocated by a header's claim alone.
package checkpoint
