package drafter

import (
	"fmt"
	"iter"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/state"
)

// Block is a DFlash, DFlash2 or DSpark drafter. All of them have the same layers; they differ in how drafts are read from
// the rows of a block.
type Block struct {
	transformer // of blocks
	context     contextRows
	layout      state.Layout
	layers      []layer
	fc          backend.Weight // [width, taps*width]
	hiddenNorm  backend.Tensor
	markov      markov
	confidence  projection
	selector    selector

	// Of the running call.
	delta, side backend.Tensor // of convolutions: kernels, rows
	read        backend.Tensor // a row for each draft: the last row of the block, then that of the Markov head
	gates       backend.Tensor
	sure        backend.Tensor // logits of confidences
	scored      backend.Tensor // rows of the selector
	only        []int32
	out         model.Output
	ids         []int32 // of all blocks
	last        []int32 // tokens of texts
	spans       []model.Span
	steps       []int // first row of logits of each draft, and their number
	probs       []float32
	drawing     network.Drawing
}

// markov is the head that adds to the logits of a draft what the token before it says.
type markov struct {
	before backend.Weight // [vocab, rank]
	after  backend.Weight // [draft vocab, rank]
	gate   projection     // [rank, width+rank]
}

// contextRows is the network of the context: it makes keys and values of rows of taps.
type contextRows struct {
	network.Network
	taps, k, v backend.Tensor
	rows       network.Gatherer
	zeros      []int32
	spans      []model.Span
}

var (
	_ model.Block    = (*Block)(nil)
	_ model.Selector = (*selecting)(nil)
)

// newBlock is a drafter without weights.
func newBlock(c *config, b backend.Backend, layout state.Layout) *Block {
	d := &Block{layout: layout, layers: make([]layer, len(c.layers))}
	d.begin(c, d.operations)
	d.Backend = b
	for i, at := range layout.Places() {
		d.layers[i] = newLayer(c, i)
		d.layers[i].at, d.layers[i].attn.Block, d.layers[i].attn.Rows = at, !c.layers[i].causal, c.block
	}
	if c.kind == DFlash2 {
		d.Parts = append(d.Parts, network.Part{To: &d.delta, Width: 2 * c.kernel * c.width / c.group},
			network.Part{To: &d.side, Width: c.width}, network.Part{To: &d.scored, Width: c.rank})
	}
	d.Parts = append(d.Parts, network.Part{To: &d.read, Width: c.width + c.markov}, network.Part{To: &d.sure, Width: 1})
	if c.gated {
		d.Parts = append(d.Parts, network.Part{To: &d.gates, Width: 2 * c.markov})
	}
	x := &d.context
	x.Backend, x.Package, x.Vocab, x.Width, x.Eps, x.Queue = b, d.Package, d.Vocab, c.width, c.eps, d.fill
	kv := c.kvHeads * c.headDim
	x.Parts = []network.Part{{To: &x.taps, Width: len(c.taps) * c.width}, {To: &x.k, Width: kv}, {To: &x.v, Width: kv}}
	return d
}

// weights are the rows of the drafter's table.
func (d *Block) weights() iter.Seq[*weights.Weight] {
	c, p := d.cfg, weights.DrafterPrefix
	list := outerWeights(nil, &d.transformer)
	list = append(list, weights.NewMatrix(&d.fc, p+"fc", c.width, len(c.taps)*c.width), weights.NewGain(&d.hiddenNorm, p+"hidden_norm", c.width))
	if m := &d.markov; c.markov > 0 {
		list = append(list,
			weights.NewMatrix(&m.before, p+"markov_head.markov_w1", c.target.Vocab, c.markov),
			weights.NewMatrix(&m.after, p+"markov_head.markov_w2", c.draftVocab, c.markov))
		if c.gated {
			list = m.gate.biased(list, p+"markov_head.gate_proj", c.markov, c.width+c.markov)
		}
	}
	if c.confidence {
		list = d.confidence.biased(list, p+"confidence_head.proj", 1, d.trusted())
	}
	if s := &d.selector; c.kind == DFlash2 {
		list = append(list,
			weights.NewMatrix(&s.project, p+"candidate_selector.hidden_projection", c.rank, c.width),
			weights.NewMatrix(&s.before, p+"candidate_selector.predecessor_codebook", c.target.Vocab, c.rank),
			weights.NewMatrix(&s.after, p+"candidate_selector.successor_codebook", c.target.Vocab, c.rank))
	}
	return func(yield func(*weights.Weight) bool) {
		if !weights.Each(list, yield) {
			return
		}
		for i := range d.layers {
			if !weights.Each(d.layers[i].weights(nil, c, i, c.width), yield) {
				return
			}
		}
	}
}

// biased appends a small matrix that keeps its type, and its bias.
func (p *projection) biased(list []weights.Weight, module string, rows, cols int) []weights.Weight {
	return append(list, weights.NewMatrix(&p.w, module, rows, cols).Kept(), weights.NewVector(&p.bias, weights.Vector, module+".bias", 1, rows))
}

// trusted is the width of the input of the confidence head.
func (d *Block) trusted() int {
	if d.cfg.confMarkov {
		return d.cfg.width + d.cfg.markov
	}
	return d.cfg.width
}

// Layout is the state of a sequence.
func (d *Block) Layout() state.Layout { return d.layout }

// Drafts implements model.Block: a block has a row for each, and one for the last token of the text if that row is not read.
func (d *Block) Drafts() int { return d.cfg.block - d.unread() }

// unread is the number of rows of a block that no draft is read from.
func (d *Block) unread() int {
	if d.cfg.anchor {
		return 0
	}
	return 1
}

// Size implements model.Block: blocks have 4, 8, 16 or 32 rows, or as many as in training.
func (d *Block) Size(n int) int {
	rows := 4
	for rows < n+d.unread() {
		rows *= 2
	}
	return min(rows, d.cfg.block) - d.unread()
}

// Append implements model.Block. Of positions the first of the three counts.
func (d *Block) Append(batch []model.Span) error {
	x := &d.context
	x.spans = x.spans[:0]
	for i := range batch {
		s := &batch[i]
		if s.Hidden.Cols != len(d.cfg.taps)*d.Width {
			return fmt.Errorf("drafter: span %d has rows of %d numbers, want %d", i, s.Hidden.Cols, len(d.cfg.taps)*d.Width)
		}
		for len(x.zeros) < s.Hidden.Rows {
			x.zeros = append(x.zeros, 0)
		}
		x.spans = append(x.spans, model.Span{State: s.State, Tokens: x.zeros[:s.Hidden.Rows], Hidden: s.Hidden, Positions: s.Positions})
	}
	x.Unembed = d.Unembed // which has the length of the rows of logits, of which there are none
	if err := x.Begin(x.spans, nil); err != nil {
		return err
	}
	x.rows.Copy(x.Backend, x.taps, x.spans) // they lie elsewhere in every call, so that is no part of the pass
	x.Pass(x.spans)
	x.Finish(x.spans)
	return nil
}

// fill are the operations of the context.
func (d *Block) fill() {
	x := &d.context
	none := x.k.RowRange(0, 0)
	x.MatMul(x.taps, backend.Product{Dst: x.X, W: d.fc})
	x.Backend.RMSNorm(x.Hidden, x.X, d.hiddenNorm, x.Eps)
	for i := range d.layers {
		y := &d.layers[i]
		x.MatMul(x.Hidden, y.k.to(x.k), y.v.to(x.v))
		none.Cols = d.cfg.heads * d.cfg.headDim
		x.Backend.Attend(none, &y.attn, y.at, none, x.k, x.v, x.Seqs)
	}
}

// Forward implements model.Block.
func (d *Block) Forward(batch []model.Span, only []int32) (model.Output, error) {
	if err := d.blocks(batch); err != nil {
		return model.Output{}, err
	}
	d.only = only
	if err := d.Begin(d.spans, only); err != nil {
		return model.Output{}, err
	}
	d.steps, d.Want = d.steps[:0], d.Want[:0]
	for j := 0; ; j++ {
		d.steps = append(d.steps, len(d.Want))
		for i := range d.spans {
			if s, q := &d.spans[i], &d.Seqs[i]; s.Want > j {
				d.Want = append(d.Want, int32(q.First+q.N-s.Want+j))
			}
		}
		if len(d.Want) == d.steps[j] {
			break
		}
	}
	d.read, d.sure = d.read.RowRange(0, len(d.Want)), d.sure.RowRange(0, len(d.Want))
	d.Pass(d.spans)
	d.out = d.Results()
	d.out.Hidden = backend.Tensor{}
	return d.out, nil
}

// blocks lays out the blocks of a batch: the last token of each text, then masks.
func (d *Block) blocks(batch []model.Span) error {
	d.ids, d.spans = d.ids[:0], d.spans[:0]
	unread := d.unread()
	for i := range batch {
		s := &batch[i]
		if len(s.Tokens) != 1 || s.Want < 1 || s.Want > d.Drafts() || i > 0 && s.Want > batch[i-1].Want {
			return fmt.Errorf("drafter: span %d has %d tokens and wants %d drafts, want 1 token and at most %d drafts, in descending order", i, len(s.Tokens), s.Want, d.Drafts())
		}
		d.ids = append(d.ids, s.Tokens[0])
		for range s.Want + unread - 1 {
			d.ids = append(d.ids, d.cfg.mask)
		}
	}
	at := 0
	for i := range batch {
		n := batch[i].Want + unread
		d.spans = append(d.spans, model.Span{State: batch[i].State, Tokens: d.ids[at : at+n], Want: batch[i].Want})
		at += n
	}
	return nil
}

// operations are those of the pass over blocks.
func (d *Block) operations() {
	d.Embedding()
	for i := range d.layers {
		d.layer(&d.layers[i])
	}
	d.Project()
	c := d.cfg
	row := d.read.ColRange(0, c.width)
	switch {
	case c.kind == DFlash2:
		d.Backend.Gather(row, d.Hidden, d.Want)
		d.MatMul(row, backend.Product{Dst: d.scored.RowRange(0, row.Rows), W: d.selector.project})
	case c.confidence || c.gated:
		d.Backend.Gather(row, d.Hidden, d.Want)
	}
}

// layer runs one layer. With convolutions, each of its parts is convolved before and behind.
func (d *Block) layer(y *layer) {
	b := d.Backend
	b.RMSNorm(d.H, d.X, y.inputNorm, d.Eps)
	in := d.convolved(&y.mixConv)
	d.MatMul(in, y.q.to(d.q), y.k.to(d.k), y.v.to(d.v))
	b.Attend(d.mixed, &y.attn, y.at, d.q, d.k, d.v, d.Seqs)
	if d.cfg.kind == DFlash2 {
		d.MatMul(d.mixed, y.o.to(d.H))
		d.convolve(d.X, d.H, &y.mixConv, 1)
	} else {
		d.MatMul(d.mixed, y.o.added(d.X))
	}
	b.RMSNorm(d.H, d.X, y.postNorm, d.Eps)
	in = d.convolved(&y.feedConv)
	if d.cfg.kind == DFlash2 {
		d.feed(y, in, d.H, false)
		d.convolve(d.X, d.H, &y.feedConv, 1)
	} else {
		d.feed(y, in, d.X, true)
	}
}

// convolved is the input of a part of a layer, whose normalized rows are in H.
func (d *Block) convolved(v *conv) backend.Tensor {
	if d.cfg.kind != DFlash2 {
		return d.H
	}
	d.MatMul(d.H, backend.Product{Dst: d.delta, W: v.proj})
	d.convolve(d.side, d.H, v, 0)
	return d.side
}

// convolve stores the convolution of one side of a part of a layer, or adds that of the second.
func (d *Block) convolve(dst, x backend.Tensor, v *conv, side int) {
	k, n := d.cfg.kernel, d.delta.Cols/2
	d.Backend.Convolve(dst, x, &backend.Convolution{
		Base: v.base.RowRange(side*k, (side+1)*k), Delta: d.delta.ColRange(side*n, (side+1)*n), Add: side == 1,
	}, d.Seqs)
}

// Follow implements model.Block: it adds what the Markov head says, and computes confidences.
func (d *Block) Follow(j int, before []int32) error {
	from := d.steps[j]
	to := from + len(before)
	if d.cfg.markov > 0 {
		d.Backend.Embed(d.markovRows(from, to), d.markov.before, before, 0)
	}
	return d.complete(from, to)
}

// markovRows are rows of the Markov head, of the token before each draft.
func (d *Block) markovRows(from, to int) backend.Tensor {
	return d.read.RowRange(from, to).ColRange(d.cfg.width, d.cfg.width+d.cfg.markov)
}

// complete adds what the Markov head says to rows of logits, and computes their confidences.
func (d *Block) complete(from, to int) error {
	c, read := d.cfg, d.read.RowRange(from, to)
	if c.markov > 0 {
		row := d.markovRows(from, to)
		if c.gated {
			var err error
			if row, err = d.gated(read); err != nil {
				return err
			}
		}
		d.MatMul(row, backend.Product{Dst: d.out.Logits.RowRange(from, to), W: d.markov.after, Only: d.only, Add: true})
	}
	if c.confidence {
		d.MatMul(read.ColRange(0, d.trusted()), d.confidence.to(d.sure.RowRange(from, to)))
	}
	return nil
}

// Draw implements model.Block.
func (d *Block) Draw(draws [][]backend.Draw) (drawn [][]model.Drawn, ok bool, err error) {
	if d.cfg.gated {
		return nil, false, nil // its sigmoid is the host's
	}
	if ok, err := d.drawing.Begin(d.Backend, draws); !ok || err != nil {
		return nil, ok, err
	}
	steps := len(draws)
	if d.cfg.markov == 0 { // no draft depends on another
		err = d.complete(0, d.steps[steps])
		d.drawing.Draw(0, steps, d.out.Logits, d.columns)
	} else {
		err = d.drawInTurn(steps)
	}
	if err == nil {
		drawn, err = d.drawing.Read()
	}
	return drawn, true, err
}

// drawInTurn draws drafts that depend on the token before them.
func (d *Block) drawInTurn(steps int) error {
	for j := range steps {
		from, to := d.steps[j], d.steps[j+1]
		d.embedBefore(d.markovRows(from, to), d.markov.before, j)
		if err := d.complete(from, to); err != nil {
			return err
		}
		d.drawing.Draw(j, j+1, d.out.Logits.RowRange(from, to), d.columns)
	}
	return nil
}

// embedBefore embeds the tokens before the drafts of a step: last tokens of texts, or drafts.
func (d *Block) embedBefore(dst backend.Tensor, table backend.Weight, step int) {
	if step > 0 {
		d.Backend.(backend.Drawer).EmbedDrawn(dst, table, d.drawing.Of(step-1, dst.Rows), 0)
		return
	}
	d.last = d.last[:0]
	for i := range d.spans {
		d.last = append(d.last, d.spans[i].Tokens[0])
	}
	d.Backend.Embed(dst, table, d.last, 0)
}

// gated is the rows of the Markov head times the sigmoid of their gates, on the host: no device has that operation, and the
// rows are short.
func (d *Block) gated(read backend.Tensor) (backend.Tensor, error) {
	n := d.cfg.markov
	at := d.gates
	at.Rows, at.Cols, at.Stride = 2*read.Rows, n, n // rows of both, one after another
	gates, rows := at.RowRange(0, read.Rows), at.RowRange(read.Rows, 2*read.Rows)
	d.MatMul(read, d.markov.gate.to(gates))
	d.Backend.Copy(rows, read.ColRange(d.cfg.width, d.cfg.width+n))
	both, err := d.Backend.Host(at)
	if err != nil {
		return at, err
	}
	product := make([]float32, read.Rows*n)
	for i := range product {
		product[i] = float32(sigmoid(both[i])) * both[len(product)+i]
	}
	return rows, d.Backend.Write(rows, product)
}

func sigmoid(x float32) float64 { return 1 / (1 + exactmath.Exp(-float64(x))) }

// Confidences implements model.Block.
func (d *Block) Confidences() ([]float32, error) {
	if !d.cfg.confidence {
		return nil, nil
	}
	logits, err := d.Backend.Host(d.sure)
	if err != nil {
		return nil, err
	}
	d.probs = d.probs[:0]
	for _, x := range logits {
		d.probs = append(d.probs, float32(sigmoid(x)))
	}
	return d.probs, nil
}

// free gives the memory of calls back.
func (d *Block) free() {
	d.Free()
	d.context.Free()
	d.selector.free(d.Backend)
	d.drawing.Free(d.Backend)
}
