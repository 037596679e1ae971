package backend

// Pass is what one call of a network has that another call of the same shape may have otherwise.
// Its shape is the number of its rows, how many of them are wanted, and whether IDs and Only are
// nil.
type Pass struct {
	Of    any     // the network: what was recorded of one is not replayed for another
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
