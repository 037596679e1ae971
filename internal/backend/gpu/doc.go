// Package gpu is what the backends of GPUs share: the memory of a device in slabs, its tensors, the call block that kernels read, and the
// passes that were recorded. It depends on no driver and on no kernels.
package gpu
