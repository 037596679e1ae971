//go:build !noasm

package kernel

// scoresAMX is Coded.Scores. Four groups are the usual width.
func scoresAMX(p *CodedPage) {
	if p.Groups == 4 && p.More == 0 {
		codedScoresOf4AMX(p)
	} else {
		codedScoresAMX(p)
	}
}

// weighMergeAMX is Coded.WeighMerge.
func weighMergeAMX(p *CodedPage, m *CodedMerge) {
	out := m.Out
	m.Out = nil
	codedMergeAVX512(m)
	m.Out = out
	codedWeighMergeAMX(p, m)
}
