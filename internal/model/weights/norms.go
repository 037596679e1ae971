package weights

// Convention is what a checkpoint stores of the gain of a norm.
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

// Norms says in which convention the norms of a checkpoint are stored. The zero value is that
// of all gains as they are.
type Norms struct {
	Model Convention // of the model without its head
	// Head decides for one norm of the head, given its canonical name and its stored numbers;
	// nil: as Model.
	Head      func(name string, stored []float32) Convention
	ByNumbers bool // Head goes by the numbers, which is worth telling
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
