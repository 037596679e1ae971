//go:build !noasm

package kernel

import "github.com/foretoken/foretoken/internal/exactmath"

// layerNormNEON is layerNorm.
func layerNormNEON(dst, x, gain, bias []float32, eps float32) {
	centerRowNEON(dst, x, sumNEON(x)/float32(len(x)))
	scaleGainBiasNEON(dst, gain, bias, exactmath.RSqrt32(sumSquaresNEON(dst)/float32(len(x))+eps))
}

// sumNEON is exactmath.Sum32.
//
//go:noescape
func sumNEON(x []float32) (sum float32)

// centerRowNEON is the second step of layerNorm.
//
//go:noescape
func centerRowNEON(dst, x []float32, mean float32)

// scaleGainBiasNEON is the last step of layerNorm: x is the gain, y the bias.
//
//go:noescape
func scaleGainBiasNEON(dst, x, y []float32, scale float32)

// geluNEON is gelu.
//
//go:noescape
func geluNEON(dst, x []float32)

// geluTanhNEON is geluTanh.
//
//go:noescape
func geluTanhNEON(dst, x []float32)

// mixProductNEON is mixProduct.
//
//go:noescape
func mixProductNEON(dst, a, b, next []float32, n, down, across int, scale *[MixQueries]float32)

// mixWeightsNEON is mixWeights.
//
//go:noescape
func mixWeightsNEON(scores []float32, s *MixSums)

// mixDivideNEON is mixDivide.
//
//go:noescape
func mixDivideNEON(x []float32, y *[MixQueries]float32)
