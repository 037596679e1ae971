// Package drafter is the published drafters that are no part of a model: DFlash, DFlash2 and DSpark, which draft a block of
// tokens in one pass, and EAGLE-3, which drafts one token per pass as a head does. All of them read rows that are tapped
// between layers of the model. Gemma 4's assistants draft as heads do, too, but read the model's KV
// cache. The package reads the files of drafters and computes their passes. Packages spec/block and spec/mtp decide which tokens are
// drawn.
package drafter

import (
	"fmt"
	"iter"
	"log/slog"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/state"
)

// MaxBlock is the maximum rows of a block.
const MaxBlock = 32

// Drafter is a drafter with its weights on a backend.
type Drafter struct {
	Kind  Kind
	Taps  []int         // of the model, see model.Tappable: a row of the drafter is these, side by side
	Block model.Block   // nil for EAGLE-3 and assistants
	Head  model.Chainer // nil for the other kinds
	// Tokens are the tokens of the columns of logits, ascending. Nil: a column's number is its token.
	Tokens []int32
	Bytes  int64 // of weights in memory

	block     *Block
	eagle     *Eagle
	assistant *Assistant
	loaded    *weights.Loader
	options   model.Options

	// Of a Repair.
	shared bool             // the weights are another drafter's
	gains  []backend.Tensor // but these
}

// Open loads the drafter of a checkpoint for a model, whose embedding and output matrix it uses if it has none. It refuses
// a checkpoint that does not fit the model, and one with tensors missing or left over. The checkpoint may be closed afterwards.
func Open(c *checkpoint.Checkpoint, target model.Lender, b backend.Backend, o model.Options) (*Drafter, error) {
	info := target.Info()
	cfg, err := configOf(c, model.Target{Width: info.Width, Vocab: info.Vocab, Layers: info.Layers})
	if err != nil {
		return nil, err
	}
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	f, err := cfg.files(c, log)
	if err != nil {
		return nil, err
	}
	l := &weights.Loader{Backend: b, Compute: o.Compute, Progress: o.Progress, Context: o.Context}
	if o.Quantize > 0 {
		l.Bits = func(module string) int { // fc is small, and all drafts depend on it
			if module == weights.DrafterPrefix+"fc" {
				return 8
			}
			return o.Quantize
		}
	}
	l.From(f)
	d := newDrafter(cfg, l, o)
	if err = d.load(target); err == nil {
		err = d.loadTokens()
	}
	if err == nil {
		err = f.Leftover()
	}
	if err != nil {
		l.Free()
		return nil, err
	}
	l.Done()
	return d, nil
}

// newDrafter is a drafter without weights.
func newDrafter(cfg *config, l *weights.Loader, o model.Options) *Drafter {
	d := &Drafter{Kind: cfg.kind, Taps: cfg.taps, loaded: l, options: o}
	layout := cfg.layout(o)
	switch cfg.kind {
	case EAGLE3:
		e := newEagle(cfg)
		e.Backend, e.layout, e.block.at = l.Backend, layout, layout.Places()[0]
		d.Head, d.eagle = e, e
		return d
	case GemmaAssistant:
		d.assistant = newAssistant(cfg)
		d.assistant.Backend, d.Head = l.Backend, d.assistant
		return d
	}
	d.block = newBlock(cfg, l.Backend, layout)
	if d.Block = d.block; cfg.kind == DFlash2 {
		d.Block = &selecting{d.block}
	}
	return d
}

// load loads the weights, and borrows from the model what the file does not have.
func (d *Drafter) load(target model.Lender) error {
	n, _ := d.network()
	if d.assistant != nil {
		if err := d.assistant.borrow(target); err != nil {
			return err
		}
	} else {
		n.lentEmbed, n.lentOutput = target.Matrices()
		n.Embed, n.Unembed = n.lentEmbed, n.lentOutput
	}
	_, table := d.network()
	if err := d.loaded.Load(table); err != nil {
		return err
	}
	if err := d.loaded.Err(); err != nil {
		return fmt.Errorf("drafter: %w", err)
	}
	d.Bytes = d.loaded.Bytes()
	var err error
	d.Tokens, err = n.tokens()
	return err
}

// Name is what a user calls a drafter with a Head.
func (d *Drafter) Name() string {
	if d.assistant != nil {
		return "assistant"
	}
	return "eagle3"
}

// DraftVocab is the size of the draft vocabulary of a drafter with a Head, if none is set: -1 means all, 0 what is fastest. Assistants
// draft from all, for the ids of their tokens do not tell how frequent they are.
func (d *Drafter) DraftVocab() int {
	if d.assistant != nil {
		return -1
	}
	return 0
}

// layout is the state of a sequence.
func (d *Drafter) layout() state.Layout {
	if d.Head != nil {
		return d.Head.Layout()
	}
	return d.block.layout
}

// loadTokens gives the tokens of columns to a device that draws.
func (d *Drafter) loadTokens() (err error) {
	n, _ := d.network()
	if _, ok := n.Backend.(backend.Drawer); !ok || d.Tokens == nil {
		return nil
	}
	if n.columns, err = n.Backend.Alloc(dtype.F32, 1, len(d.Tokens)); err != nil {
		return err
	}
	numbers := make([]float32, len(d.Tokens))
	for i, id := range d.Tokens {
		numbers[i] = float32(id) // exact: vocabularies have fewer than 2^24 tokens
	}
	return n.Backend.Write(n.columns, numbers)
}

// layout is the state of a sequence.
func (c *config) layout(o model.Options) state.Layout {
	l := state.Layout{MaxDrafts: max(o.MaxDrafts, c.block), Head: true} // rows of a block are beyond the text, as drafts are
	for i := range c.layers {
		l.Layers = append(l.Layers, state.KV{Type: o.KVType(), Heads: c.kvHeads, Key: c.headDim, Value: c.headDim, Window: c.layers[i].window})
	}
	return l
}

// tokens are those of the draft vocabulary, nil if that is the whole one.
func (n *transformer) tokens() ([]int32, error) {
	if !n.cfg.mapped {
		return nil, nil
	}
	ids := make([]int32, len(n.ids))
	for i, id := range n.ids {
		if !n.cfg.absolute {
			id += int64(i)
		}
		if id < 0 || id >= int64(n.cfg.target.Vocab) || i > 0 && id <= int64(ids[i-1]) {
			return nil, fmt.Errorf("drafter: tensor d2t makes %d the token of row %d, want ascending ids below %d", id, i, n.cfg.target.Vocab)
		}
		ids[i] = int32(id)
	}
	n.ids = nil
	return ids, nil
}

// Release gives back the memory of calls. The next call takes memory again.
func (d *Drafter) Release() {
	switch {
	case d.eagle != nil:
		d.eagle.Free()
		d.eagle.chain.Free(d.eagle.Backend)
	case d.assistant != nil:
		d.assistant.Free()
		d.assistant.chain.Free(d.assistant.Backend)
	default:
		d.block.free()
	}
}

// Close frees the weights. Those of the model stay, and those of the drafter that a Repair is of.
func (d *Drafter) Close() error {
	d.Release()
	for _, gain := range d.gains {
		d.loaded.Backend.Free(gain)
	}
	if !d.shared {
		n, _ := d.network()
		n.Backend.Free(n.columns)
		d.loaded.Free()
	}
	return nil
}

// network is the network with the weights, and its table.
func (d *Drafter) network() (*transformer, iter.Seq[*weights.Weight]) {
	switch {
	case d.eagle != nil:
		return &d.eagle.transformer, d.eagle.weights()
	case d.assistant != nil:
		return &d.assistant.transformer, d.assistant.weights()
	}
	return &d.block.transformer, d.block.weights()
}
