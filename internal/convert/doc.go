// Package convert writes checkpoints: it takes a model in any layout and encoding the
// family reads and stores it as MLX does, quantized, dequantized or as it is, with its
// multi-token-prediction head. It also takes heads out of checkpoints and puts them in.
//
// It knows the layout it writes and what may be stored how. Which weights a model has,
// where a checkpoint keeps them and what their numbers mean is the family's knowledge, how
// numbers are packed is dtype's. It never keeps more of a model than the weights at work,
// and leaves nothing behind when it fails.
package convert
