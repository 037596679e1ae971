package weights

// Convention is the stored form of the gain of a norm.
type Convention uint8

const (
	// Effective is the gain itself.
	Effective Convention = iota
	// LessOne is the gain less one.
	LessOne
)

func (c Convention) String() string {
	if c == LessOne {
		return "raw"
	}
	return "converted"
}

// restore makes stored numbers the effective gain.
func (c Convention) restore(v []float32) {
	if c == LessOne {
		for i := range v {
			v[i]++
		}
	}
}

// Norms is the convention of the norms of a checkpoint. The zero value is that all gains are
// effective.
type Norms struct {
	Model Convention // of the model without its head
	// Head decides for one norm of the head, given its canonical name and its stored numbers;
	// nil: as Model.
	Head      func(name string, stored []float32) Convention
	ByNumbers bool // Head depends on the numbers, which is worth a log line
}

func (n *Norms) of(name string, stored []float32) Convention {
	if n.Head != nil && IsHead(name) {
		return n.Head(name, stored)
	}
	return n.Model
}

// Mean is the mean of some numbers, 0 of none.
func Mean(x []float32) float64 {
	s := 0.0
	for _, v := range x {
		s += float64(v)
	}
	return s / float64(max(len(x), 1))
}
