// Package cuda computes on an NVIDIA GPU with the bits of the portable Go code: the operations of
// package backend, each a few kernels in CUDA C (folder kernels) whose PTX is part of the program.
// It needs the driver's library and nothing else, and only a build with the tag cuda opens it;
// tests open the same code on an interpreter.
//
// Everything runs on one stream, so what is queued later sees what was queued before, and memory
// that is given back can be used again at once. What differs between two passes of one shape is
// in the call block, which kernels read: a pass that was recorded is replayed as a graph.
package cuda

//go:generate go run ./_gen
