package checkpoint

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/rescue"
)

// inputs are the transformations of inputs found so far that modules share: orders by a hash, so that modules with the
// same have one, and rotations of experts.
type inputs struct {
	sync.Mutex
	seed   maphash.Seed
	orders map[uint64]*dtype.Input
	turns  map[string]*dtype.Input // of experts, by the name of the angles
}

// ordered sorts the columns of matrices whose groups are not contiguous by their groups, and sets
// the matching Input. The tensor name, of GPTQ's act-order, has the group of each column; it may be missing. It is read with
// look too, unless the config says that the groups ascend: the encoding of the matrix depends on the Input.
func (m *module) ordered(ms []dtype.Matrix, name string) error {
	if !m.Has(name) {
		return nil
	}
	e, err := m.use(name)
	if err != nil {
		return err
	}
	if err := e.want([]int{m.cols}); err != nil || m.look && m.quant.ascending {
		return err
	}
	order, err := e.order(ms[0].Group)
	if err != nil || order == nil {
		return err
	}
	in := m.inputs.share(order)
	for i := range ms {
		x := &ms[i]
		if x.Input = in; m.look {
			continue
		}
		data := x.Data
		if m.holder(data) != nil {
			data = make([]byte, len(x.Data))
		}
		err := rescue.Deal(x.Rows, 16, worth/x.RowBytes(), func(from, to int) error {
			if x.Bits == 4 {
				from += sortNibbles(data, x, order, from, to)
			}
			sortCodes(data, x, order, from, to)
			return nil
		})
		if err != nil {
			return m.elements.errorf("%w", err)
		}
		m.release(x.Data)
		x.Data = data
	}
	return nil
}

// sortCodes writes rows [from, to) of x with their columns in the order to dst, which may be the Data of x.
func sortCodes(dst []byte, x *dtype.Matrix, order []int32, from, to int) {
	size := x.RowBytes()
	codes, sorted := make([]byte, x.Cols), make([]byte, x.Cols)
	for r := from; r < to; r++ {
		dtype.Unpack(codes, x.Bits, x.Data[r*size:][:size])
		for c, at := range order {
			sorted[c] = codes[at]
		}
		dtype.Pack(dst[r*size:][:size], x.Bits, sorted)
	}
}

// sortNibbles is sortCodes for 4 bits and every 16 rows: a word of 64 bits has a column of them. It returns how many
// rows it wrote.
func sortNibbles(dst []byte, x *dtype.Matrix, order []int32, from, to int) int {
	size, r := x.RowBytes(), from
	if x.Cols%8 != 0 {
		return 0
	}
	columns := make([]uint64, x.Cols)
	var w squares
	for ; r+16 <= to; r += 16 {
		in, out := x.Data[r*size:], dst[r*size:]
		for c := 0; c < x.Cols; c += 8 {
			w.read(in[c/2:], size)
			w.transpose()
			copy(columns[c:], w[:])
		}
		for c := 0; c < x.Cols; c += 8 {
			for i, at := range order[c:][:8] {
				w[i] = columns[at]
			}
			w.transpose()
			for i := range w {
				at := i*size + c/2
				binary.LittleEndian.PutUint32(out[at:], uint32(w[i]))
				binary.LittleEndian.PutUint32(out[at+8*size:], uint32(w[i]>>32))
			}
		}
	}
	return r - from
}

// order is the columns sorted by their groups, stable; nil if they are already. A negative group means that the list was
// never set.
func (e *entry) order(group int) ([]int32, error) {
	groups, err := e.integers()
	if err != nil || groups[0] == -1 {
		return nil, err
	}
	next := make([]int, len(groups)/group) // the place of the next column of each group
	for g := range next {
		next[g] = g * group
	}
	order, trivial := make([]int32, len(groups)), true
	for c, g := range groups {
		if g < 0 || g >= int64(len(next)) {
			return nil, e.errorf("column %d is in group %d, want one of %d", c, g, len(next))
		}
		if next[g] == (int(g)+1)*group {
			return nil, e.errorf("group %d has more than %d columns", g, group)
		}
		order[next[g]] = int32(c)
		trivial = trivial && next[g] == c
		next[g]++
	}
	if trivial {
		return nil, nil
	}
	return order, nil
}

// share is the Input of an order, the same for equal ones.
func (s *inputs) share(order []int32) *dtype.Input {
	s.Lock()
	defer s.Unlock()
	if s.orders == nil {
		s.seed, s.orders = maphash.MakeSeed(), map[uint64]*dtype.Input{}
	}
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, c := range order {
		maphash.WriteComparable(&h, c)
	}
	key := h.Sum64()
	if in, ok := s.orders[key]; ok && slices.Equal(in.Order, order) {
		return in
	}
	in := &dtype.Input{Order: order}
	s.orders[key] = in
	return in
}
