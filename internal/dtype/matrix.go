package dtype

// Format is the encoding of the numbers of a Matrix.
type Format uint8

const (
	// Plain: Data holds Rows×Cols numbers of type F32, F16 or BF16.
	Plain Format = iota
	// Affine is MLX's integer quantization: w = scale*q + bias, q unsigned of Bits bits,
	// a little-endian bit stream per row; one scale and one bias (F16, BF16 or F32) per group.
	Affine
	// MXFP4 has E2M1 nibbles, one E8M0 scale byte per group of 32.
	MXFP4
	// NVFP4 has E2M1 nibbles, one E4M3 scale byte per group of 16, and Global for the whole matrix.
	NVFP4
	// MXFP8 has E4M3 bytes, one E8M0 scale byte per group of 32.
	MXFP8
	// FP8 has E4M3 bytes, one F32 scale per row and group; how the block-scaled
	// releases are stored once their block scales are spread over the rows.
	// The last group of a row may be short.
	FP8
	// ZeroPoint is integer quantization with zero points: w = scale*(q - zero), q unsigned of
	// Bits bits, a little-endian bit stream per row; one scale (F16, BF16 or F32) and one zero
	// point per group. The difference times the scale is exact with F16 and BF16.
	ZeroPoint
	// The block formats of GGUF files, which have everything in Data: see blockFormat. NewBlocks sets Group
	// and ScaleType.
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q8_0
	Q4K
	Q5K
	Q6K
	IQ4NL
	IQ4XS
	Q2K
	Q3K
	TQ1
	TQ2
	Q1_0
	Q2_0
	MXFP4Blocks
	NVFP4Blocks
	// The grid formats: see grids.go.
	IQ1S
	IQ1M
	IQ2XXS
	IQ2XS
	IQ2S
	IQ3XXS
	IQ3S
)

// Matrix is an encoded weight matrix on the host, row after row. It is a view:
// Data, Scales and Biases usually alias a mapped file and live as long as that file.
type Matrix struct {
	Rows, Cols int
	Format     Format
	Type       Type // of Data when Plain
	Bits       int  // of one element, Affine and ZeroPoint only: 2, 3, 4, 5, 6 or 8
	Group      int  // columns that share a scale; 0 when Plain
	Data       []byte
	Scales     []byte  // [Rows, ceil(Cols/Group)]; none in a block format
	ScaleType  Type    // of Scales and Biases
	Biases     []byte  // [Rows, Cols/Group], Affine only
	Zeros      []byte  // [Rows, Cols/Group], ZeroPoint only, a byte each; nil: all are 2^(Bits-1)
	Global     float32 // NVFP4 and NVFP4Blocks only: factor of the whole matrix, 1 if the file has none
	Input      *Input  // transformation of the rows that the matrix multiplies; nil: none
}
