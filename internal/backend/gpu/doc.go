// Package gpu is what the backends of GPUs share: the memory of a device in slabs, its tensors, the call block that kernels read, and the
// passes that were recorded. It depends on no driver and on no kernels.
package gpu

import "embed"

// Sources is the code of this package. A proof of a device's kernels holds for the code that lays out what they read.
//
//go:embed *.go
var Sources embed.FS
