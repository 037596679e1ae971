package backend

// Pass is the inputs of one call of a network that may differ in another call of the same shape.
// Its shape is the number of its rows, how many of them are wanted, and whether IDs and Only are
// nil.
type Pass struct {
	Of    any     // the network: recordings are not shared between networks
	IDs   []int32 // tokens, one per row; nil: the rows were embedded before the pass
	Batch []Seq
	Want  []int32 // rows whose logits are wanted
	Only  []int32 // blocks of the vocabulary, see Product; nil: all
}

// Rows is how many rows the pass has.
func (p *Pass) Rows() int {
	n := 0
	for i := range p.Batch {
		n += p.Batch[i].N
	}
	return n
}

// Shape is what passes have in common whose operations are the same: a recording of one computes all.
type Shape struct {
	of          any
	rows, wants int
	ids, only   bool
}

// Shape is the shape of the pass.
func (p *Pass) Shape() Shape {
	return Shape{p.Of, p.Rows(), len(p.Want), p.IDs != nil, p.Only != nil}
}

// Preparer is a device that prepares for a pass to come again, as by recording it, when its shape is new.
type Preparer interface {
	// Prepared is the number of passes so far that took longer because something was prepared. Their time is
	// not typical of their shape.
	Prepared() int64
}

// Rehearser is a Preparer that can prepare for passes before they come.
type Rehearser interface {
	Preparer
	// Rehearse calls f. Passes that f queues are prepared and not computed: their results are
	// undefined. All else works as usual. It returns an error of the device.
	Rehearse(f func() error) error
}

// PreparedBy is the number of passes that a device has prepared so far, 0 for one that prepares none.
func PreparedBy(b Backend) int64 {
	if p, ok := b.(Preparer); ok {
		return p.Prepared()
	}
	return 0
}
