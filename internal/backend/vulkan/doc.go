// Package vulkan computes on GPUs through Vulkan with the bits of the portable Go code. Kernels are GLSL (folder kernels), whose
// SPIR-V is part of the program. Vulkan promises correctly rounded results for additions and products only, so a device is
// probed first, and gets the cheapest arithmetic whose results are exact there: see probe.go.
//
// The package is not yet whole: operations that it lacks end in an error that names them.
package vulkan

// rank is below that of the processor: auto does not select a device of this package before the package is whole.
const rank = -1
