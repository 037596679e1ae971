package remote

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/topk"
)

// Both ends check operations by the same functions: the leader so that a wrong shape panics where it is made, the node
// because it trusts no leader. What they let pass stays within its memory on every device.

// maxDim bounds dimensions, so that products of them do not overflow.
const maxDim = 1 << 24

func refuse(format string, args ...any) { panic("remote: " + fmt.Sprintf(format, args...)) }

// check panics if the operands of an operation do not fit together. Its lists are those of a pass if it is of one.
func (o *operation) check(p *backend.Pass) {
	f, t := o.form(), &o.t
	for i := range f.tensors {
		if empty := t[i].Mem == nil; empty && (f.absent&(1<<i) == 0 || t[i] != (backend.Tensor{})) {
			refuse("%s without its tensor %d", f.name, i)
		} else if !empty && t[i].Type != dtype.F32 && o.kind != opCopy {
			refuse("%s of a tensor of %v", f.name, t[i].Type)
		}
	}
	ids := o.list
	if p != nil {
		ids = p.IDs
	}
	switch o.kind {
	case opCopy:
		backend.CheckCopy(t[0], t[1])
	case opCopyEach:
		for i := 0; i < len(o.copies)&^1; i += 2 {
			backend.CheckCopy(o.copies[i], o.copies[i+1])
		}
		for i := range o.copies {
			if o.copies[i].Mem == nil || len(o.copies)%2 != 0 {
				refuse("CopyEach without tensors")
			}
		}
	case opEmbed:
		present("Embed", o.table)
		backend.CheckEmbed(t[0], o.table, ids)
	case opGather:
		if p != nil {
			ids = p.Want
		}
		backend.CheckGather(t[0], t[1], ids)
	case opMatMul:
		o.checkProducts()
	case opRMSNorm:
		vector("RMSNorm", &t[2], t[1].Cols)
		backend.CheckRMSNorm(t[0], t[1], t[2])
	case opLayerNorm:
		vector("LayerNorm", &t[2], t[1].Cols)
		vector("LayerNorm", &t[3], t[1].Cols)
		backend.CheckLayerNorm(t[0], t[1], t[2], t[3])
	case opSwiGLU:
		backend.CheckSwiGLU(t[0], t[1], t[2])
	case opGELU:
		backend.CheckGELU(t[0], t[1])
	case opRotate:
		within("Rotate", o.n)
		backend.CheckRotate(t[0], t[1], t[2], o.n)
	case opMix:
		within("Mix", o.n)
		backend.CheckMix(t[0], t[1], t[2], t[3], o.n)
	case opConvolve:
		solid("Convolve", o.conv.Base, o.conv.Delta)
		backend.CheckConvolve(t[0], t[1], o.conv)
	default:
		o.checkLayer()
	}
}

// checkLayer is check of the large operations and those that draw.
func (o *operation) checkLayer() {
	t := &o.t
	switch o.kind {
	case opExperts:
		o.checkExperts()
	case opAttend:
		o.checkAttend()
	case opDeltaNet:
		d := o.delta
		within("DeltaNet", d.KeyHeads, d.ValueHeads, d.KeyDim, d.ValueDim, d.Kernel)
		solid("DeltaNet", d.Conv, d.Norm, d.DecayRate, d.DecayBias)
		vector("DeltaNet", &d.Norm, d.ValueDim)
		vector("DeltaNet", &d.DecayRate, d.ValueHeads)
		vector("DeltaNet", &d.DecayBias, d.ValueHeads)
		backend.CheckDeltaNet(t[0], d, &backend.DeltaInput{QKV: t[1], Z: t[2], B: t[3], A: t[4]})
	case opEmbedDrawn:
		present("EmbedDrawn", o.table)
		if t[0].Rows != t[1].Rows || t[0].Cols != o.table.Cols() || t[1].Cols < 1 {
			refuse("EmbedDrawn of %d draws into %d×%d", t[1].Rows, t[0].Rows, t[0].Cols)
		}
	case opDraw:
		n := t[2].Rows
		if t[0].Rows != t[1].Rows || t[0].Cols != 3 || n > 0 && (n > 1 && n != t[1].Rows || t[2].Cols != t[1].Cols) {
			refuse("Draw from %d×%d numbers of %d×%d ids into %d×%d", t[1].Rows, t[1].Cols, n, t[2].Cols, t[0].Rows, t[0].Cols)
		}
		checkDraws(o.draws, t[1].Rows, t[1].Cols)
	case opCandidates:
		if t[0].Rows != t[2].Rows || t[1].Rows != t[0].Rows || t[1].Cols != t[0].Cols || t[0].Cols < 1 {
			refuse("Candidates of %d×%d numbers into %d×%d and %d×%d", t[2].Rows, t[2].Cols, t[0].Rows, t[0].Cols, t[1].Rows, t[1].Cols)
		}
		checkDraws(o.draws, t[2].Rows, t[2].Cols)
	case opScore:
		if s, n := &t[0], t[0].Cols; t[1].Rows != s.Rows || t[2].Rows != s.Rows || t[3].Rows != n*s.Rows || t[2].Cols != t[1].Cols || t[3].Cols != t[1].Cols {
			refuse("Score of %d×%d, %d×%d and %d×%d numbers into %d×%d",
				t[1].Rows, t[1].Cols, t[2].Rows, t[2].Cols, t[3].Rows, t[3].Cols, s.Rows, n)
		}
	}
}

func (o *operation) checkProducts() {
	if len(o.products) == 0 {
		refuse("MatMul without products")
	}
	for i := range o.products {
		p := &o.products[i]
		present("MatMul", p.W)
		solid("MatMul", p.Dst)
		if p.Bias.Mem != nil {
			solid("MatMul", p.Bias)
		}
		backend.CheckProduct(o.t[0], p)
		checkBlocks(p.Only, blocks(p.W))
	}
}

// blocks is how many blocks of rows a weight has.
func blocks(w backend.Weight) int { return (w.Rows() + backend.RowBlock - 1) / backend.RowBlock }

// checkBlocks panics unless there are n blocks, ascending.
func checkBlocks(list []int32, n int) {
	last := int32(-1)
	for _, b := range list {
		if b <= last || int(b) >= n {
			refuse("block %d after block %d, of %d", b, last, n)
		}
		last = b
	}
}

func (o *operation) checkExperts() {
	e := o.experts
	present("Experts", e.Router, e.Gate, e.Up, e.Down)
	if e.SharedGate != nil {
		present("Experts", e.SharedUp, e.SharedDown)
	}
	if e.Bias.Mem != nil {
		solid("Experts", e.Bias)
	}
	within("Experts", e.TopK)
	if e.Groups < 0 || e.TopGroups < 0 || e.Groups > e.Router.Rows() {
		refuse("Experts in %d groups, %d of them chosen", e.Groups, e.TopGroups)
	}
	backend.CheckExperts(o.t[0], o.t[1], e)
}

func (o *operation) checkAttend() {
	a, t := o.attention, &o.t
	within("Attend", a.Heads, a.KVHeads, a.HeadDim, a.Values())
	for _, n := range []int{a.ValueDim, a.Latent, a.Window, a.Rows} {
		if n < 0 || n > backend.MaxWindow {
			refuse("Attend with %d", n)
		}
	}
	width := a.HeadDim
	if a.Latent > 0 {
		width = a.Latent
	}
	for _, g := range []*backend.Tensor{&a.QNorm, &a.KNorm} {
		if g.Mem != nil {
			vector("Attend", g, width)
		}
	}
	for _, s := range a.Sections {
		if s > 2 {
			refuse("Attend with section %d of three", s)
		}
	}
	values := a.KVHeads * a.Values()
	if a.Latent > 0 {
		values = 0
	}
	if t[2].Mem == nil || values > 0 && (t[3].Mem == nil || t[3].Rows != t[2].Rows) || t[1].Rows > 0 && t[0].Mem == nil {
		refuse("Attend of %d keys and %d values", t[2].Rows, t[3].Rows)
	}
	if p := &o.at; p.Type != dtype.F32 && p.Type != dtype.F16 && p.Type != dtype.I8 || p.Page < 0 || p.Page > maxSize {
		refuse("Attend with pages of %v at %d", p.Type, p.Page)
	}
	backend.CheckAttend(t[0], a, t[1], t[2], t[3])
}

// present panics unless there are weights.
func present(op string, list ...backend.Weight) {
	for _, w := range list {
		if w == nil {
			refuse("%s without a weight", op)
		}
	}
}

// within panics unless dimensions are sound.
func within(op string, list ...int) {
	for _, n := range list {
		if n < 1 || n > maxDim {
			refuse("%s with a dimension of %d", op, n)
		}
	}
}

// solid panics unless tensors are there and have float32 numbers.
func solid(op string, list ...backend.Tensor) {
	for i := range list {
		if !f32(&list[i]) {
			refuse("%s without a tensor of float32", op)
		}
	}
}

// vector panics unless t is a row of cols numbers.
func vector(op string, t *backend.Tensor, cols int) {
	if !f32(t) || t.Rows < 1 || t.Cols != cols {
		refuse("%s with a vector of %d×%d, want %d columns", op, t.Rows, t.Cols, cols)
	}
}

func checkDraws(list []backend.Draw, rows, cols int) {
	if len(list) != rows {
		refuse("%d draws from %d rows", len(list), rows)
	}
	for i := range list {
		if d := &list[i]; d.Cols < 0 || d.Cols > cols || d.TopK < 0 || d.Levels < 0 || d.Levels > topk.Levels || d.First < 0 || d.First > maxDim || !(d.Temperature >= 0) {
			refuse("a draw with %d of %d columns, the best %d in %d levels from block %d on at temperature %v",
				d.Cols, cols, d.TopK, d.Levels, d.First, d.Temperature)
		}
		checkBlocks(list[i].Own, (cols+backend.RowBlock-1)/backend.RowBlock)
	}
}

// checkAsks panics unless asks are within their rows.
func checkAsks(src backend.Tensor, asks []backend.Ask) {
	solid("Top", src)
	backend.CheckTop(src, asks)
	for i := range asks {
		a, cols := &asks[i], src.Cols
		if a.Cols < 0 || a.Cols > cols || a.K < 0 {
			refuse("Top of the highest %d in %d of %d columns", a.K, a.Cols, cols)
		}
		if a.Cols > 0 {
			cols = a.Cols
		}
		for _, id := range a.Also {
			if id < 0 || int(id) >= cols {
				refuse("Top of column %d of %d", id, cols)
			}
		}
		if a.Draw != nil {
			checkDraws([]backend.Draw{*a.Draw}, 1, src.Cols)
		}
	}
}

// needs is what operations of a pass need of its lists. Shapes of operations do not change; lists are checked each time.
type needs struct {
	ids, wants, rows    int // lengths; -1: any
	table, from, blocks int // numbers of the lists are below
	pages               bool
	page                int // bytes of a page
	delta               []*backend.DeltaNet
}

func newNeeds() needs {
	return needs{ids: -1, wants: -1, rows: -1, table: maxSize, from: maxSize, blocks: maxSize}
}

// same sets a length, which all operations of a pass have in common.
func same(n *int, x int) {
	if *n >= 0 && *n != x {
		refuse("operations of a pass with lists of %d and %d", *n, x)
	}
	*n = x
}

// add adds an operation.
func (n *needs) add(o *operation) {
	switch o.kind {
	case opEmbed:
		same(&n.ids, o.t[0].Rows)
		n.table = min(n.table, o.table.Rows())
	case opGather:
		same(&n.wants, o.t[0].Rows)
		n.from = min(n.from, o.t[1].Rows)
	case opMatMul:
		for i := range o.products {
			if o.products[i].Only != nil {
				n.blocks = min(n.blocks, blocks(o.products[i].W))
			}
		}
	case opConvolve:
		same(&n.rows, o.t[1].Rows)
	case opAttend:
		same(&n.rows, o.t[2].Rows)
		n.pages = true
		n.page = max(n.page, o.at.Page+o.attention.PageBytes(o.at.Type))
		if o.at.Page%alignment != 0 {
			refuse("Attend with a page at byte %d", o.at.Page)
		}
	case opDeltaNet:
		same(&n.rows, o.t[1].Rows)
		if o.at.Delta > maxDim>>8 {
			refuse("DeltaNet with state %d", o.at.Delta)
		}
		for len(n.delta) <= o.at.Delta {
			n.delta = append(n.delta, nil)
		}
		n.delta[o.at.Delta] = o.delta
	}
}

// alignment of the parts of pages, in bytes.
const alignment = 16

// check panics unless lists are as operations need them.
func (n *needs) check(p *backend.Pass) {
	if n.ids >= 0 && len(p.IDs) != n.ids || n.wants >= 0 && len(p.Want) != n.wants {
		refuse("a pass with %d ids and %d wanted rows, want %d and %d", len(p.IDs), len(p.Want), n.ids, n.wants)
	}
	for _, id := range p.IDs {
		if id < 0 || int(id) >= n.table {
			refuse("a pass with id %d of %d", id, n.table)
		}
	}
	for _, r := range p.Want {
		if r < 0 || int(r) >= n.from {
			refuse("a pass that wants row %d of %d", r, n.from)
		}
	}
	checkBlocks(p.Only, n.blocks)
	rows := 0
	for i := range p.Batch {
		s := &p.Batch[i]
		if s.First != rows || s.N < 0 || s.N > maxDim || s.Drafts < 0 || s.Drafts > s.N || s.Accepted < 0 || s.Pos < 0 || s.Pos > backend.MaxWindow ||
			s.Positions != nil && len(s.Positions) != s.N {
			refuse("a pass with %d rows at %d, %d drafts, %d accepted, position %d", s.N, s.First, s.Drafts, s.Accepted, s.Pos)
		}
		rows += s.N
		n.checkState(s)
	}
	if n.rows >= 0 && rows != n.rows {
		refuse("a pass with sequences of %d rows, want %d", rows, n.rows)
	}
}

// checkState is check for the state of a sequence.
func (n *needs) checkState(s *backend.Seq) {
	if n.pages {
		if s.Pos+s.N > len(s.Pages)*backend.PageTokens {
			refuse("%d rows from position %d on in %d pages", s.N, s.Pos, len(s.Pages))
		}
		for i := range s.Pages {
			if t := &s.Pages[i]; t.Mem == nil || t.Type != dtype.I8 || numbers(t) < n.page || t.Offset%alignment != 0 {
				refuse("a page of %d bytes of %v at %d, want %d", numbers(t), t.Type, t.Offset, n.page)
			}
		}
	}
	for i, d := range n.delta {
		if d == nil {
			continue
		}
		if i >= len(s.Delta) {
			refuse("%d recurrent layers, want more", len(s.Delta))
		}
		drafts, r := max(s.Drafts, s.Accepted), &s.Delta[i]
		for j, want := range [5][2]int{
			{d.ValueHeads * d.KeyDim, d.ValueDim},
			{d.Kernel - 1 + drafts, d.Channels()},
			{drafts, d.KeyHeads * d.KeyDim},
			{drafts, d.ValueHeads * d.ValueDim},
			{drafts, d.ValueHeads},
		} {
			t := recurrentTensors(r)[j]
			if t.Rows < want[0] || t.Cols != want[1] || t.Mem == nil && want[0] > 0 || t.Mem != nil && t.Type != dtype.F32 {
				refuse("a recurrent layer with %d×%d numbers of %v, want %d×%d", t.Rows, t.Cols, t.Type, want[0], want[1])
			}
		}
	}
}
