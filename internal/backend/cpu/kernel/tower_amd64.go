//go:build !noasm

package kernel

// layerNormAVX512 is layerNorm.
//
//go:noescape
func layerNormAVX512(dst, x, gain, bias []float32, eps float32)

// geluAVX512 is gelu.
//
//go:noescape
func geluAVX512(dst, x []float32)

// geluTanhAVX512 is geluTanh.
//
//go:noescape
func geluTanhAVX512(dst, x []float32)

// mixProductAVX512 is mixProduct.
//
//go:noescape
func mixProductAVX512(dst, a, b, next []float32, n, down, across int, scale *[MixQueries]float32)

// mixWeightsAVX512 is mixWeights.
//
//go:noescape
func mixWeightsAVX512(scores []float32, s *MixSums)

// mixDivideAVX512 is mixDivide.
//
//go:noescape
func mixDivideAVX512(x []float32, y *[MixQueries]float32)

// layerNormAVX2 is layerNorm.
//
//go:noescape
func layerNormAVX2(dst, x, gain, bias []float32, eps float32)

// geluAVX2 is gelu.
//
//go:noescape
func geluAVX2(dst, x []float32)

// geluTanhAVX2 is geluTanh.
//
//go:noescape
func geluTanhAVX2(dst, x []float32)

// mixProductAVX2 is mixProduct.
//
//go:noescape
func mixProductAVX2(dst, a, b, next []float32, n, down, across int, scale *[MixQueries]float32)

// mixWeightsAVX2 is mixWeights.
//
//go:noescape
func mixWeightsAVX2(scores []float32, s *MixSums)

// mixDivideAVX2 is mixDivide.
//
//go:noescape
func mixDivideAVX2(x []float32, y *[MixQueries]float32)
