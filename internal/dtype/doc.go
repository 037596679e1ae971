// Package dtype has number formats: the types of stored numbers, the encodings of a weight
// matrix, decoding of one row to float32, and quantization.
//
// It does not know files, tensor names, models or devices. Everything here is
// plain Go with one fixed order of operations, so the bits of a decoded or
// quantized number are the same on every machine; kernels are compared with it.
package dtype
