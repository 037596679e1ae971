package spec

// several is drafters of one model that compete. As a single drafter it is the first of them.
type several struct {
	Drafter
	parts []Drafter
}

// Auto joins drafters, which then compete for each run: at most cost.Drafters that compute drafts, and a lookup behind them.
func Auto(parts ...Drafter) Drafter { return &several{parts[0], parts} }

// Name is the name in options and reports.
func (s *several) Name() string { return "auto" }

// Parts are the drafters that a drafter consists of; none for nil. The first computed ones have the sources Computed and Beside, and
// copies are made by the last.
func Parts(d Drafter) []Drafter {
	switch s, ok := d.(*several); {
	case ok:
		return s.parts
	case d == nil:
		return nil
	}
	return []Drafter{d}
}

// PartOf is the number of the part, of n, that makes the drafts of a source.
func PartOf(s Source, n int) int {
	if s.Computed() {
		return min(int(s), n-1)
	}
	return n - 1
}
