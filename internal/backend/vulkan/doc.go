// Package vulkan computes on GPUs through Vulkan with the bits of the portable Go code. Kernels are GLSL (folder kernels), whose
// SPIR-V is part of the program. Vulkan promises correctly rounded results for additions and products only, so a device is
// probed first, and gets the cheapest arithmetic whose results are exact there: see probe.go.
//
// The probe proves nothing, as a compiler can be exact in single operations and wrong in a kernel: a device is used when its kernels
// have been compared with the CPU, see proof.go.
package vulkan

// rank puts these GPUs behind those of CUDA and before the processor.
const rank = 5
