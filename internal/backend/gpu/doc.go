// Package gpu is what the backends of GPUs have in common, whatever the driver: the memory of a device in slabs,
// the call block that kernels read, and the passes that were recorded. It knows neither a driver nor kernels.
package gpu
