// Package dtype knows number formats: the types of stored numbers, how a weight
// matrix is encoded, how to decode one row of it to float32, and how to quantize.
//
// It does not know files, tensor names, models or devices. Everything here is
// plain Go with one fixed order of operations, so the bits of a decoded or
// quantized number are the same on every machine; kernels are compared with it.
package dtype
