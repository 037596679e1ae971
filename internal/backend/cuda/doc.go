// Package cuda computes on an NVIDIA GPU with the bits of the portable Go code: the operations of
// package backend, each a few kernels in CUDA C (folder kernels) whose PTX is part of the program.
// It needs only the driver's library, and only a build with the tag cuda opens it;
// tests open the same code on an interpreter.
//
// Everything runs on one stream, so later work sees the results of earlier work, and freed
// memory can be used again at once. The differences between two passes of one shape are
// in the call block, which kernels read: a recorded pass is replayed as a graph.
package cuda

//go:generate go run ./_gen
