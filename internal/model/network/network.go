// Package network is what models and heads of every family have around their layers: the tokens
// of all spans become rows of one call, come in through one matrix and leave through another
// after a norm, in a workspace that is kept; drafts are chained on the device; and what lies
// between layers can be tapped. A family adds its config, its layers and its names of tensors.
package network

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
)

// Network is a model or a head without its layers, which compute between Embedding and Project.
type Network struct {
	Settings
	Backend backend.Backend

	Embed, Unembed backend.Weight                   // [vocab, width]
	Norm           backend.Tensor                   // [1, width]
	Prepare        func() error                     // writes what a call needs of the host; nil: nothing
	Queue          func()                           // queues the operations of the call
	Parts          []Part                           // what the layers compute in
	Carry          func() (x, spare backend.Tensor) // rows that layers read beside X, and others as wide that they do not read; nil: none
	Embedded       *backend.Tensor                  // where the rows of tokens go, of the width of Embed; nil: X
	Converting     bool                             // tables list weights in the order of converted checkpoints

	// The running call: X is the residual stream, Hidden its final norm, H the input of a part
	// of a layer, each with one row per token.
	X, Hidden, H backend.Tensor
	IDs          []int32
	Seqs         []backend.Seq
	Want         []int32 // rows whose logits are wanted

	only         []int32 // blocks of the vocabulary whose logits are computed, nil: all
	embedded     bool    // X has its rows already
	last, logits backend.Tensor
	work         workspace
	of           any               // of the passes; nil: the network
	products     []backend.Product // of the running product
}

// Part is a tensor with one row per token. To is its view for the running call.
type Part struct {
	To    *backend.Tensor
	Width int
}

// workspace is the memory of calls, sized for the largest so far.
type workspace struct {
	rows, wants  int // that fit
	x, hidden, h backend.Tensor
	parts        []backend.Tensor
	last, logits backend.Tensor // wanted rows
}

// Begin checks the spans, reserves their state and lays out their rows. only is the blocks of the
// vocabulary to compute logits of, nil for all.
func (n *Network) Begin(batch []model.Span, only []int32) error {
	n.IDs, n.Want, n.only, n.embedded = n.IDs[:0], n.Want[:0], only, false
	for i := range batch {
		s := &batch[i]
		if err := s.Check(n.Vocab, n.Width); err != nil {
			return fmt.Errorf("%s: span %d: %w", n.Package, i, err)
		}
		if s.Lender == nil {
			if err := s.State.Reserve(len(s.Tokens)); err != nil {
				return err
			}
		}
		n.IDs = append(n.IDs, s.Tokens...)
		for j := len(n.IDs) - s.Want; j < len(n.IDs); j++ {
			n.Want = append(n.Want, int32(j))
		}
	}
	if err := n.grow(len(n.IDs), len(n.Want)); err != nil {
		return err
	}
	n.Seqs = n.Seqs[:0]
	first := 0
	for i := range batch {
		s := &batch[i]
		if s.Lender != nil {
			n.Seqs = append(n.Seqs, s.Lender.Lend(first, s.At))
		} else {
			n.Seqs = append(n.Seqs, s.State.Seq(first, len(s.Tokens), s.Drafts, s.Positions))
		}
		first += len(s.Tokens)
	}
	n.view(len(n.IDs), len(n.Want))
	return nil
}

// Matrices are the matrices that tokens come in through and leave through, for drafters that share them.
func (n *Network) Matrices() (embed, output backend.Weight) { return n.Embed, n.Unembed }

// Embedding is the first operation of a call, unless that was done.
func (n *Network) Embedding() {
	if !n.embedded {
		n.Backend.Embed(*n.embedding(), n.Embed, n.IDs, n.EmbedFactor)
	}
}

// EmbeddingFactor is that of the rows of tokens, for the same drafters.
func (n *Network) EmbeddingFactor() float32 { return n.EmbedFactor }

// embedding is where the rows of tokens go.
func (n *Network) embedding() *backend.Tensor {
	if n.Embedded != nil {
		return n.Embedded
	}
	return &n.X
}

// EmbedDrawn embeds ids that the device has drawn in place of those of the call, if there are any.
func (n *Network) EmbedDrawn(drawn backend.Tensor) {
	if drawn.Rows > 0 {
		n.Backend.(backend.Drawer).EmbedDrawn(*n.embedding(), n.Embed, drawn, n.EmbedFactor)
		n.embedded = true
	}
}

// MatMul hands the products over in a list that is kept: one made for the call would be garbage
// afterwards, several times a layer.
func (n *Network) MatMul(x backend.Tensor, products ...backend.Product) {
	n.products = append(n.products[:0], products...)
	n.Backend.MatMul(x, n.products...)
}

// Project computes the final norm and the wanted logits. With a list of blocks of the vocabulary
// the other logits are minus infinity.
func (n *Network) Project() {
	n.Backend.RMSNorm(n.Hidden, n.X, n.Norm, n.Eps)
	n.Backend.Gather(n.last, n.Hidden, n.Want)
	if n.only != nil {
		n.Backend.Fill(n.logits, float32(math.Inf(-1)))
	}
	n.MatMul(n.last, backend.Product{Dst: n.logits, W: n.Unembed, Only: n.only})
	if n.LogitCap != 0 {
		n.Backend.Cap(n.logits, n.LogitCap)
	}
}

// Pass has the device run the operations of the call. Rows that are in no list of ids are embedded
// before it.
func (n *Network) Pass(batch []model.Span) {
	if model.HasInputs(batch) {
		model.Embed(n.Backend, *n.embedding(), n.Embed, n.IDs, n.EmbedFactor, batch)
		n.embedded = true
	}
	p := backend.Pass{Of: n, IDs: n.IDs, Batch: n.Seqs, Want: n.Want, Only: n.only}
	if n.of != nil {
		p.Of = n.of
	}
	if n.embedded {
		p.IDs = nil
	}
	n.Backend.Pass(p, n.Queue)
}

// Finish moves the sequences on. Without wanted rows there is no output but Hidden.
func (n *Network) Finish(batch []model.Span) model.Output {
	for i := range batch {
		if s := &batch[i]; s.Lender == nil {
			s.State.Fed(len(s.Tokens), s.Drafts)
		}
	}
	return n.Results()
}

// Results is the output of the call.
func (n *Network) Results() model.Output {
	return model.Output{Device: n.Backend, Logits: n.logits, Hidden: n.Hidden}
}

// view cuts the workspace to a call of rows rows, of which wants are wanted.
func (n *Network) view(rows, wants int) {
	w := &n.work
	n.X, n.Hidden, n.H = w.x.RowRange(0, rows), w.hidden.RowRange(0, rows), w.h.RowRange(0, rows)
	for i, p := range n.Parts {
		*p.To = w.parts[i].RowRange(0, rows)
	}
	n.last, n.logits = w.last.RowRange(0, wants), w.logits.RowRange(0, wants)
}

// grow makes the workspace fit a call of rows rows, of which wants are wanted. Its contents are
// lost, and what a device has recorded of calls with them. So more wanted rows get memory for as many as
// the next power of two: batches grow by a draft or a sequence at a time.
func (n *Network) grow(rows, wants int) error {
	w := &n.work
	if rows <= w.rows && wants <= w.wants {
		return nil
	}
	if rows, wants = max(rows, w.rows), max(wants, w.wants); wants > w.wants {
		wants = 1 << bits.Len(uint(wants-1))
	}
	n.Free()
	var err error
	alloc := func(rows, cols int) (t backend.Tensor) {
		if err == nil {
			t, err = n.Backend.Alloc(dtype.F32, rows, cols)
		}
		return t
	}
	w.x, w.hidden, w.h = alloc(rows, n.Width), alloc(rows, n.Width), alloc(rows, n.Width)
	for _, p := range n.Parts {
		w.parts = append(w.parts, alloc(rows, p.Width))
	}
	w.last, w.logits = alloc(wants, n.Width), alloc(wants, n.Unembed.Rows())
	if err != nil {
		n.Free()
		return err
	}
	w.rows, w.wants = rows, wants
	return nil
}

// Free gives the workspace back.
func (n *Network) Free() {
	w := &n.work
	for _, t := range append(w.parts, w.x, w.hidden, w.h, w.last, w.logits) {
		n.Backend.Free(t)
	}
	*w = workspace{}
}
