//go:build !noasm

package kernel

// codedScoresAMX is codedScores8.
//
//go:noescape
func codedScoresAMX(a *CodedPage)

// scoresAMX is Coded.Scores. Four groups are the usual width.
func scoresAMX(p *CodedPage) {
	if p.Groups == 4 && p.More == 0 {
		codedScoresOf4AMX(p)
	} else {
		codedScoresAMX(p)
	}
}

// codedScoresOf4AMX is codedScores8 for four groups, and none before them.
//
//go:noescape
func codedScoresOf4AMX(a *CodedPage)

// codedWeighAMX is codedWeigh.
//
//go:noescape
func codedWeighAMX(a *CodedPage)

// codedWeighMergeAMX is codedWeigh and codedMerge.
//
//go:noescape
func codedWeighMergeAMX(a *CodedPage, b *CodedMerge)

// weighMergeAMX is Coded.WeighMerge.
func weighMergeAMX(p *CodedPage, m *CodedMerge) {
	out := m.Out
	m.Out = nil
	codedMergeAVX512(m)
	m.Out = out
	codedWeighMergeAMX(p, m)
}

// codedScoresAVX512 is codedScores8.
//
//go:noescape
func codedScoresAVX512(a *CodedPage)

// codedSoftmaxAVX512 is codedSoftmax.
//
//go:noescape
func codedSoftmaxAVX512(a *CodedPage)

// codedWeighAVX512 is codedWeigh.
//
//go:noescape
func codedWeighAVX512(a *CodedPage)

// codedMergeAVX512 is codedMerge.
//
//go:noescape
func codedMergeAVX512(a *CodedMerge)

// codedScoresAVX2 is codedScores8.
//
//go:noescape
func codedScoresAVX2(a *CodedPage)

// codedSoftmaxAVX2 is codedSoftmax.
//
//go:noescape
func codedSoftmaxAVX2(a *CodedPage)

// codedWeighAVX2 is codedWeigh.
//
//go:noescape
func codedWeighAVX2(a *CodedPage)

// codedMergeAVX2 is codedMerge.
//
//go:noescape
func codedMergeAVX2(a *CodedMerge)

// codedScoresVNNI is codedScores8.
//
//go:noescape
func codedScoresVNNI(a *CodedPage)

// codedWeighVNNI is codedWeigh.
//
//go:noescape
func codedWeighVNNI(a *CodedPage)

// unpackKeysAVX512 is unpackKeys.
//
//go:noescape
func unpackKeysAVX512(keys, packed, ranges []byte, groups int)

// unpackValuesAVX512 is unpackValues.
//
//go:noescape
func unpackValuesAVX512(values []int8, packed []byte, groups int)

// unpackKeysAVX2 is unpackKeys.
//
//go:noescape
func unpackKeysAVX2(keys, packed, ranges []byte, groups int)

// unpackValuesAVX2 is unpackValues.
//
//go:noescape
func unpackValuesAVX2(values []int8, packed []byte, groups int)
