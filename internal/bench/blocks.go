package bench

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/drafter"
	"github.com/foretoken/foretoken/internal/state"
)

// BlockTime is a pass of a generated block drafter over one block, beside passes of its model over one row.
type BlockTime struct {
	Rows    int     `json:"rows"`
	Seconds float64 `json:"seconds"`
	OfOne   float64 `json:"of_one"`         // time, over that of one row of the model
	Append  float64 `json:"append_seconds"` // of one row of the text to its KV cache
	Vocab   int     `json:"vocabulary"`     // tokens that it drafts from
	Bytes   int64   `json:"bytes"`          // of its weights
}

// draftVocab is the default size of the draft vocabulary of a large one.
const draftVocab = 32_768

// blockRun is a block drafter, with sequences of its model and its own.
type blockRun struct {
	*modelRun
	target model.Lender
	d      *drafter.Drafter
	own    *state.State // of the model
	texts  *state.State // of the drafter
	only   []int32
	taps   backend.Tensor
}

// measureBlocks measures the blocks of the options.
func (r *modelRun) measureBlocks(how model.Options) (list []BlockTime, err error) {
	for _, rows := range r.o.Blocks {
		r.say(fmt.Sprintf("measuring blocks of %d rows", rows))
		t, err := r.measureBlock(rows, how)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

func (r *modelRun) measureBlock(rows int, how model.Options) (t BlockTime, err error) {
	x := blockRun{modelRun: r}
	var ok bool
	if x.target, ok = r.m.(model.Lender); !ok {
		return t, fmt.Errorf("bench: models of the shape %s cannot be used with a block drafter", r.o.Shape)
	}
	if x.d, err = drafter.Generate(x.target, rows, r.o.Form, r.b, how); err != nil {
		return t, err
	}
	defer x.d.Close() //nolint:errcheck // frees memory only
	if err := x.target.Tap(x.d.Taps...); err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, x.target.Tap()) }()
	if x.own, err = r.pool.Open(r.m.Layout()); err != nil {
		return t, err
	}
	defer x.own.Close()
	if x.texts, err = r.pool.Open(x.d.Block.Layout()); err != nil {
		return t, err
	}
	defer x.texts.Close()
	t = BlockTime{Rows: rows, Vocab: min(draftVocab, r.m.Info().Vocab), Bytes: x.d.Bytes}
	for i := range t.Vocab / backend.RowBlock {
		x.only = append(x.only, int32(i))
	}
	return t, x.measure(&t)
}

// measure alternates passes of the model, of a row that is appended, and of a block.
func (x *blockRun) measure(t *BlockTime) error {
	for left := x.o.Context; left > 0; left -= engine.RoundTokens {
		if _, err := x.pass(x.tokens(min(left, engine.RoundTokens)), 0); err != nil {
			return err
		}
		if _, err := x.extend(); err != nil {
			return err
		}
	}
	var one, extend, block []float64
	for i := range x.o.Repeats + 2 { // the first two are for what is recorded
		for sum := time.Duration(0); sum < steadily; {
			p, err := x.pass(x.tokens(1), 1)
			if err != nil {
				return err
			}
			a, err := x.extend()
			if err != nil {
				return err
			}
			b, err := x.draft()
			if err != nil {
				return err
			}
			if sum += b; i > 1 {
				one, extend, block = append(one, p.Seconds()), append(extend, a.Seconds()), append(block, b.Seconds())
			}
		}
	}
	t.Seconds, t.Append = measure.Median(block), measure.Median(extend)
	t.OfOne = t.Seconds / measure.Median(one)
	return nil
}

// pass feeds tokens to the model.
func (x *blockRun) pass(tokens []int32, want int) (time.Duration, error) {
	start := time.Now()
	out, err := x.target.Forward([]model.Span{{State: x.own, Tokens: tokens, Want: want}})
	if err == nil {
		err = out.Wait()
	}
	x.taps = out.Taps
	return time.Since(start), err
}

// extend appends the rows of the last pass to the drafter's text.
func (x *blockRun) extend() (time.Duration, error) {
	start := time.Now()
	err := x.d.Block.Append([]model.Span{{State: x.texts, Hidden: x.taps}})
	if err == nil {
		_, err = x.b.Host(x.taps.RowRange(0, 0)) // waits for the device
	}
	return time.Since(start), err
}

// draft computes a block and the best token of each row.
func (x *blockRun) draft() (time.Duration, error) {
	start := time.Now()
	out, err := x.d.Block.Forward([]model.Span{{State: x.texts, Tokens: x.tokens(1), Want: x.d.Block.Drafts()}}, x.only)
	if err == nil {
		_, err = out.Device.Top(out.Logits, slices.Repeat([]backend.Ask{{K: 1}}, out.Logits.Rows))
	}
	return time.Since(start), err
}
