package vision

import (
	"errors"
	"fmt"
	"math"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/picture"
	"github.com/foretoken/foretoken/internal/state"
)

// Pass is a pass over some images: their patches are rows of one tensor, and each stage is
// done for some rows after others. Only attention looks at other rows, those of its segment, and a
// row's numbers do not depend on how many are computed at once: so the results depend neither on
// the size of the steps nor on who shares the pass.
type Pass struct {
	t        *Tower
	pictures []*picture.Patches
	segments []segment
	rows     int // patches of all images
	budget   int // operations of a step

	At          Stage
	Block, next int                              // the block that is being computed, and the first row that is not
	mixed       struct{ segment, head, row int } // how far attention is, row by row, head by head
	open        bool

	X, qkv   backend.Tensor   // [rows, width] and [rows, 3*width]
	cos, sin backend.Tensor   // [rows, half a head]
	out      []backend.Tensor // of each image, [tokens, output]
	taken    []bool           // which of them the caller has

	// What a step needs besides, of its rows only.
	h    backend.Tensor // [most, width]
	wide backend.Tensor // [most, the widest of a patch, the feed-forward and the merger]
	host []float32      // of as many rows, what is written to the device

	angles *angles
}

var _ model.TowerPass = (*Pass)(nil)

// segment is the rows of one frame of an image, which see each other. A still image is one.
type segment struct {
	picture     int
	from, to    int // rows of the pass
	first       int // row of the image
	high, width int // patches
}

// Stage is what a step does to some rows.
type Stage uint8

const (
	embedding      Stage = iota // patches and positions become rows
	Projecting                  // queries, keys and values of a block
	attending                   // attention: what rows see takes the place of their queries
	feedForwarding              // the projection of attention, and the feed-forward
	Merging
	Finished
)

// StepOperations is about what a step does: some ten milliseconds on two cores. Of the 2b's tower
// it is 32 rows of the feed-forward: with half of that weights are read too often, with eight times
// as much a pass is a sixth faster.
const StepOperations = 600_000_000

// Begin starts a pass.
func (t *Tower) Begin(pictures []*picture.Patches) (model.TowerPass, error) {
	return t.BeginWithin(pictures, StepOperations)
}

// BeginWithin starts a pass whose steps have about that many operations.
func (t *Tower) BeginWithin(pictures []*picture.Patches, budget int) (*Pass, error) {
	p := &Pass{t: t, pictures: pictures, budget: budget, open: true, taken: make([]bool, len(pictures))}
	longest := 0 // side of an image, in patches
	for i, m := range pictures {
		g := m.Grid
		longest = max(longest, g.Height, g.Width)
		if m.Width() != t.cfg.rowWidth() || g.Height%t.cfg.Merge != 0 || g.Width%t.cfg.Merge != 0 || m.Rows() == 0 {
			return nil, fmt.Errorf("qwen35: image %d has %d×%d×%d patches of %d numbers, want multiples of %d of %d numbers: it was prepared for another tower",
				i+1, g.Time, g.Height, g.Width, m.Width(), t.cfg.Merge, t.cfg.rowWidth())
		}
		for frame := range g.Time {
			n := g.Height * g.Width
			p.segments = append(p.segments, segment{picture: i, from: p.rows, to: p.rows + n, first: frame * n, high: g.Height, width: g.Width})
			p.rows += n
		}
	}
	if p.rows == 0 {
		p.At = Finished
		return p, nil
	}
	p.angles = newAngles(t.cfg.dim(), longest)
	if err := p.alloc(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// alloc reserves what the pass needs.
func (p *Pass) alloc() (err error) {
	v := p.t.cfg
	alloc := func(rows, cols int) (t backend.Tensor) {
		if err == nil {
			t, err = p.t.Backend.Alloc(dtype.F32, rows, cols)
		}
		return t
	}
	most := 0
	for _, s := range []Stage{embedding, Projecting, feedForwarding, Merging} {
		most = max(most, p.step(s))
	}
	p.X, p.qkv = alloc(p.rows, v.Width), alloc(p.rows, 3*v.Width)
	p.cos, p.sin = alloc(p.rows, v.dim()/2), alloc(p.rows, v.dim()/2)
	p.h, p.wide = alloc(most, v.Width), alloc(most, max(v.rowWidth(), v.Intermediate, v.Width))
	for _, m := range p.pictures {
		p.out = append(p.out, alloc(m.Rows()/(v.Merge*v.Merge), v.Output))
	}
	return err
}

// step is how many rows a step of a stage other than attention computes: about as many as the
// budget allows, in groups that products like, of whole tokens, so that they fit the merger.
func (p *Pass) step(s Stage) int {
	v := p.t.cfg
	token := v.Merge * v.Merge
	each := 0 // operations for a row
	switch s {
	case embedding:
		each = 2 * v.rowWidth() * v.Width
	case Projecting:
		each = 6 * v.Width * v.Width
	case feedForwarding:
		each = 2*v.Width*v.Width + 4*v.Width*v.Intermediate
	default:
		each = 2*v.Width*token*v.Width + 2*v.Width*v.Output
	}
	group := token * max(16/token, 1)
	return min(p.rows, max((p.budget/each+group/2)/group, 1)*group)
}

// Step computes the next rows of a stage.
func (p *Pass) Step() (done bool, err error) {
	switch {
	case !p.open:
		return false, errors.New("qwen35: a pass over images was closed")
	case p.At == Finished:
		return true, nil
	}
	if p.At == attending {
		if p.attend() {
			p.advance()
		}
		return false, nil
	}
	from, to := p.next, min(p.next+p.step(p.At), p.rows)
	switch p.At {
	case embedding:
		err = p.embed(from, to)
	case Projecting:
		p.project(from, to)
	case feedForwarding:
		p.feedForward(from, to)
	case Merging:
		p.merge(from, to)
	}
	if err != nil {
		return false, err
	}
	if p.next = to; to == p.rows {
		p.advance()
	}
	if p.At < Finished {
		return false, nil
	}
	if _, err = p.t.Backend.Host(p.X.RowRange(0, 0)); err != nil { // which waits, and tells the device's error
		p.Close()
		return false, fmt.Errorf("%w: %w", state.ErrFailed, err)
	}
	return true, nil
}

// advance goes on to the next stage.
func (p *Pass) advance() {
	p.next = 0
	p.At++
	if p.At == Merging && p.Block+1 < len(p.t.blocks) {
		p.At, p.Block = Projecting, p.Block+1
	}
}

// within visits the parts of segments that lie in [from, to).
func (p *Pass) within(from, to int, visit func(s *segment, from, to int)) {
	for i := range p.segments {
		s := &p.segments[i]
		if a, b := max(from, s.from), min(to, s.to); a < b {
			visit(s, a, b)
		}
	}
}

// embed makes the rows of patches: their position, to which their own numbers are added.
func (p *Pass) embed(from, to int) error {
	t, v, b := p.t, p.t.cfg, p.t.Backend
	if n := (to - from) * max(v.rowWidth(), v.Width); len(p.host) < n {
		p.host = make([]float32, n)
	}
	numbers := p.host[:(to-from)*v.rowWidth()]
	p.within(from, to, func(s *segment, a, b int) {
		p.pictures[s.picture].Read(s.first+a-s.from, numbers[(a-from)*v.rowWidth():(b-from)*v.rowWidth()])
	})
	patches := p.wide.RowRange(0, to-from).ColRange(0, v.rowWidth())
	if err := b.Write(patches, numbers); err != nil {
		return err
	}
	learned := p.host[:(to-from)*v.Width]
	half := v.dim() / 2
	cos, sin := make([]float32, (to-from)*half), make([]float32, (to-from)*half)
	p.within(from, to, func(s *segment, a, b int) {
		for row := a; row < b; row++ {
			y, x := s.place(row, v.Merge)
			i := row - from
			t.position(learned[i*v.Width:(i+1)*v.Width], y, x, s.high, s.width)
			p.angles.of(cos[i*half:(i+1)*half], sin[i*half:(i+1)*half], y, x)
		}
	})
	x := p.X.RowRange(from, to)
	if err := errors.Join(b.Write(x, learned), b.Write(p.cos.RowRange(from, to), cos), b.Write(p.sin.RowRange(from, to), sin)); err != nil {
		return err
	}
	b.MatMul(patches, t.patch.to(x, true))
	return nil
}

// place is the line and the column of a row's patch: the patches of a token follow each other.
func (s *segment) place(row, merge int) (y, x int) {
	row -= s.from
	token, inside := row/(merge*merge), row%(merge*merge)
	tokens := s.width / merge // in a line
	return token/tokens*merge + inside/merge, token%tokens*merge + inside%merge
}

// project computes queries, keys and values.
func (p *Pass) project(from, to int) {
	t, v, b := p.t, p.t.cfg, p.t.Backend
	y := &t.blocks[p.Block]
	h, qkv := p.h.RowRange(0, to-from), p.qkv.RowRange(from, to)
	b.LayerNorm(h, p.X.RowRange(from, to), y.norm1.gain, y.norm1.bias, visionEps)
	b.MatMul(h, y.qkv.to(qkv, false))
	cos, sin := p.cos.RowRange(from, to), p.sin.RowRange(from, to)
	for i := range 2 {
		b.Rotate(qkv.ColRange(i*v.Width, (i+1)*v.Width), cos, sin, v.Heads)
	}
}

// attend computes what rows see in their segments, within the budget, and reports whether all is
// done. It goes head by head: whatever a device does with the keys of a head it does for as many
// queries as the budget allows.
func (p *Pass) attend() (done bool) {
	v, at := p.t.cfg, &p.mixed
	const group = 32 // rows that attention likes
	for left := p.budget; at.segment < len(p.segments); {
		s := &p.segments[at.segment]
		n, rest := s.to-s.from, s.to-s.from-at.row
		each := 4 * n * v.dim() // operations for a row of a head
		if left < p.budget && left < each*min(group, rest) {
			return false
		}
		heads, rows := 1, rest
		if at.row == 0 && left >= n*each {
			heads = min(left/(n*each), v.Heads-at.head)
		} else {
			rows = min(max(left/each/group, 1)*group, rest)
		}
		p.mix(s, at.head, at.head+heads, s.from+at.row, s.from+at.row+rows)
		left -= heads * rows * each
		if at.row += rows; at.row < n {
			continue
		}
		at.row = 0
		if at.head += heads; at.head == v.Heads {
			at.head = 0
			at.segment++
		}
	}
	at.segment = 0
	return true
}

// mix computes attention of rows [from, to) of some heads over their segment. It overwrites their
// queries.
func (p *Pass) mix(s *segment, head, end, from, to int) {
	v := p.t.cfg
	part := func(i, from, to int) backend.Tensor {
		return p.qkv.RowRange(from, to).ColRange(i*v.Width+head*v.dim(), i*v.Width+end*v.dim())
	}
	q := part(0, from, to)
	p.t.Backend.Mix(q, q, part(1, s.from, s.to), part(2, s.from, s.to), end-head, float32(1/math.Sqrt(float64(v.dim()))))
}

// feedForward adds what rows have seen, and is the rest of a block.
func (p *Pass) feedForward(from, to int) {
	t, b := p.t, p.t.Backend
	y := &t.blocks[p.Block]
	x, h, wide := p.X.RowRange(from, to), p.h.RowRange(0, to-from), p.wide.RowRange(0, to-from).ColRange(0, t.cfg.Intermediate)
	b.MatMul(p.qkv.RowRange(from, to).ColRange(0, t.cfg.Width), y.proj.to(x, true))
	b.LayerNorm(h, x, y.norm2.gain, y.norm2.bias, visionEps)
	b.MatMul(h, y.fc1.to(wide, false))
	b.GELU(wide, wide, true)
	b.MatMul(wide, y.fc2.to(x, true))
}

// merge makes the patches of each token one row.
func (p *Pass) merge(from, to int) {
	t, v, b := p.t, p.t.cfg, p.t.Backend
	token := v.Merge * v.Merge
	h := p.h.RowRange(0, to-from)
	b.LayerNorm(h, p.X.RowRange(from, to), t.norm.gain, t.norm.bias, visionEps)
	tokens := backend.Tensor{Type: h.Type, Rows: h.Rows / token, Cols: token * h.Cols, Stride: token * h.Cols, Offset: h.Offset, Mem: h.Mem}
	wide := tokens
	wide.Offset, wide.Mem = p.wide.Offset, p.wide.Mem
	b.MatMul(tokens, t.fc1.to(wide, false))
	b.GELU(wide, wide, false)
	p.within(from, to, func(s *segment, first, end int) {
		at := (s.first + first - s.from) / token
		out := p.out[s.picture].RowRange(at, at+(end-first)/token)
		b.MatMul(wide.RowRange((first-from)/token, (end-from)/token), t.fc2.to(out, false))
	})
}

// to is the product of a matrix with its bias.
func (l *linear) to(dst backend.Tensor, add bool) backend.Product {
	return backend.Product{Dst: dst, W: l.w, Bias: l.bias, Add: add}
}

// Take hands out the rows of an image.
func (p *Pass) Take(i int) backend.Tensor {
	if p.At != Finished || !p.open || p.taken[i] {
		panic("qwen35: rows of an image that were not computed, or taken twice")
	}
	p.taken[i] = true
	return p.out[i]
}

// Close gives back what was not taken.
func (p *Pass) Close() {
	if !p.open {
		return
	}
	p.open = false
	for _, t := range []backend.Tensor{p.X, p.qkv, p.cos, p.sin, p.h, p.wide} {
		p.t.Backend.Free(t)
	}
	for i, t := range p.out {
		if !p.taken[i] {
			p.t.Backend.Free(t)
		}
	}
	p.out = nil
}

// position is the learned position of a patch: that of the grid of the table which lies under it if
// both grids are laid over each other corner on corner, interpolated between its four neighbors.
func (t *Tower) position(dst []float32, y, x, high, wide int) {
	side := t.cfg.side()
	y0, y1, dy := between(y, high, side)
	x0, x1, dx := between(x, wide, side)
	row := func(y, x int) []float32 { return t.Positions[(y*side+x)*len(dst):][:len(dst)] }
	a, b, c, d := row(y0, x0), row(y0, x1), row(y1, x0), row(y1, x1)
	wa, wb, wc, wd := (1-dy)*(1-dx), (1-dy)*dx, dy*(1-dx), dy*dx
	for i := range dst {
		// Conversions keep processors from fusing, which would change bits.
		dst[i] = float32(wa*a[i]) + float32(wb*b[i]) + float32(wc*c[i]) + float32(wd*d[i])
	}
}

// between is where line i of n lies among side lines: after line low, before line high, by a share
// of the way.
func between(i, n, side int) (low, high int, share float32) {
	at := float32(i*(side-1)) / float32(max(n-1, 1))
	low = int(at)
	return low, min(low+1, side-1), at - float32(low)
}

// angles are the sines and cosines by which patches of a line or column are rotated.
type angles struct {
	pairs    int // of a head that turn by the line; as many turn by the column
	cos, sin []float32
}

// newAngles are those of n lines or columns, for heads of dim.
func newAngles(dim, n int) *angles {
	a := &angles{pairs: dim / 4}
	for i := range n {
		for j := range a.pairs {
			f := float32(exactmath.Exp(-exactmath.LogOfExp(visionTheta) * float64(2*j) / float64(dim/2)))
			sin, cos := exactmath.Sincos32(float32(i) * f)
			a.cos, a.sin = append(a.cos, cos), append(a.sin, sin)
		}
	}
	return a
}

// of sets the numbers of the patch in that line and column.
func (a *angles) of(cos, sin []float32, y, x int) {
	n := a.pairs
	copy(cos, a.cos[y*n:(y+1)*n])
	copy(sin, a.sin[y*n:(y+1)*n])
	copy(cos[n:], a.cos[x*n:(x+1)*n])
	copy(sin[n:], a.sin[x*n:(x+1)*n])
}
