// Package convert writes checkpoints: it takes a model in any layout and encoding that the
// family reads and stores it as MLX does, quantized, dequantized or unchanged, with its
// multi-token-prediction head. It also extracts heads from checkpoints and injects them.
//
// It knows the layout it writes and the possible encodings. The family knows which weights a
// model has, where a checkpoint keeps them and what their numbers mean; dtype knows how
// numbers are packed. Only the weights being converted are in memory,
// and a failed conversion leaves no files.
package convert
