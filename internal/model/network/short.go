package network

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
)

// The last layers of some models have no KV cache: they read that of others. A row of a prompt whose results are not wanted, see
// model.Span.Short, needs none of them. A call with such rows is two passes, the second with the other rows alone, which are
// the last ones of each span.

// leastSkipped is how many rows have to be skipped: fewer cost less than another pass.
const leastSkipped = 8

// shortCall is the second pass of a call.
type shortCall struct {
	first int // layer, the number of layers if all have a KV cache
	keep  []int32
	wants []int32
	seqs  []backend.Seq
	dst   []backend.Tensor
	src   []backend.Tensor
}

// passPart tells the passes of a call apart.
type passPart struct {
	of   any
	part int
}

// kept is how many of the last rows of a span have results.
func kept(s *model.Span) int {
	if !s.Short {
		return len(s.Tokens)
	}
	return max(s.Want, 1)
}

// short reports whether the call that has begun is to be two passes, and lists the rows of the second.
func (m *Model) short(batch []model.Span) bool {
	x := &m.shortened
	if x.first == len(m.layers) || len(m.taps.layers) > 0 || m.PreNorm {
		return false
	}
	x.keep, x.wants, x.seqs = x.keep[:0], x.wants[:0], x.seqs[:0]
	end := 0
	for i := range batch {
		s, seq := &batch[i], m.Seqs[i]
		rows, n := len(s.Tokens), kept(s)
		end += rows
		seq.First, seq.Pos, seq.N, seq.Drafts = len(x.keep), seq.Pos+rows-n, n, min(seq.Drafts, n)
		if seq.Positions != nil {
			seq.Positions = seq.Positions[rows-n:]
		}
		x.seqs = append(x.seqs, seq)
		for j := range n {
			if j >= n-s.Want {
				x.wants = append(x.wants, int32(len(x.keep)))
			}
			x.keep = append(x.keep, int32(end-n+j))
		}
	}
	return len(m.IDs)-len(x.keep) >= leastSkipped
}

// shortPasses is Pass for such a call. Rows of Hidden that are not kept have any contents.
func (m *Model) shortPasses(batch []model.Span) {
	x, n := &m.shortened, &m.Network
	want, seqs, of := n.Want, n.Seqs, n.of
	part := func(i int, lists []int32, operations func()) {
		n.Want, n.of, n.Queue = lists, passPart{of, i}, operations
		if of == nil {
			n.of = passPart{n, i}
		}
		n.Pass(batch)
	}
	part(1, x.keep, m.firstPart)
	n.embedded, n.Seqs, batch = true, x.seqs, nil
	n.view(len(x.keep), len(x.wants))
	part(2, x.wants, m.secondPart)
	all := n.H
	n.Backend.Copy(all, n.Hidden)
	n.Want, n.Seqs, n.of, n.Queue = want, seqs, of, m.operations
	n.view(len(n.IDs), len(want))
	x.dst, x.src = x.dst[:0], x.src[:0]
	for i, s := range x.seqs {
		end := seqs[i].First + seqs[i].N
		x.dst, x.src = append(x.dst, n.Hidden.RowRange(end-s.N, end)), append(x.src, all.RowRange(s.First, s.First+s.N))
	}
	backend.CopyEach(n.Backend, x.dst, x.src)
}

// firstPart queues the layers that have a memory, and moves the rows that go on to the front.
func (m *Model) firstPart() {
	n := &m.Network
	n.Embedding()
	for _, y := range m.layers[:m.shortened.first] {
		y.Forward()
	}
	n.keepRows(n.X, n.H)
	if n.Carry != nil {
		n.keepRows(n.Carry())
	}
}

// secondPart queues the others.
func (m *Model) secondPart() {
	for _, y := range m.layers[m.shortened.first:] {
		y.Forward()
	}
	m.Project()
}

// keepRows moves the wanted rows of x to its front. What is in spare, which is as wide, is lost.
func (n *Network) keepRows(x, spare backend.Tensor) {
	k := len(n.Want)
	n.Backend.Gather(spare.RowRange(0, k), x, n.Want)
	n.Backend.Copy(x.RowRange(0, k), spare.RowRange(0, k))
}
