//go:build !noasm

package kernel

// codedScoresNEON is codedScores8.
//
//go:noescape
func codedScoresNEON(p *CodedPage)

// codedSoftmaxNEON is codedSoftmax.
//
//go:noescape
func codedSoftmaxNEON(p *CodedPage)

// codedWeighNEON is codedWeigh.
//
//go:noescape
func codedWeighNEON(p *CodedPage)

// codedMergeNEON is codedMerge.
//
//go:noescape
func codedMergeNEON(m *CodedMerge)

// codedScoresDot is codedScores8.
//
//go:noescape
func codedScoresDot(p *CodedPage)

// codedWeighDot is codedWeigh.
//
//go:noescape
func codedWeighDot(p *CodedPage)

// unpackKeysNEON is unpackKeys.
//
//go:noescape
func unpackKeysNEON(keys, packed, ranges []byte, groups int)

// unpackValuesNEON is unpackValues.
//
//go:noescape
func unpackValuesNEON(values []int8, packed []byte, groups int)
