package qwen35

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"

	"github.com/foretoken/foretoken/internal/checkpoint"
)

// Extra is a tensor that a text model has no use for, such as one of an image tower.
type Extra struct {
	From *checkpoint.Weights
	Name string // in its file
	// Canonical is the name without the prefixes of a release.
	Canonical string
}

// Inventory is all weights of a checkpoint, checked against its config: each is there, has
// the right shape, and no tensor is left over.
type Inventory struct {
	Weights []Weight // in the order of the layers, then the head's
	Extras  []Extra
	cfg     *config
	source  *checkpoint.Checkpoint
}

// Portion is a part of a model.
type Portion uint8

const (
	// Whole is the model with its head, if there is one.
	Whole Portion = iota
	// WithoutHead is the model alone.
	WithoutHead
	// HeadOnly is the head alone; nothing else need be there.
	HeadOnly
)

// ErrNoHead is wrapped by the error of looking for a head where there is none.
var ErrNoHead = errors.New("there is no multi-token-prediction head")

// TakeInventory lists the weights of a checkpoint, which stays open as long as they are
// used. It reads no more of it than the headers and the norms of the head. The checkpoint
// may also be that of a head in a folder of its own.
func TakeInventory(c *checkpoint.Checkpoint, part Portion, log *slog.Logger) (*Inventory, error) {
	cfg, err := readConfig(c)
	if err != nil {
		return nil, err
	}
	f, err := openFiles(c, cfg, log)
	if err != nil {
		return nil, err
	}
	v := &Inventory{cfg: cfg, source: c}
	add := func(table iter.Seq[*Weight]) {
		for w := range table {
			f.find(w)
			v.Weights = append(v.Weights, *w)
		}
	}
	if part != HeadOnly {
		add(newModel(cfg).weights())
		if !cfg.tied { // loaded early, written last
			output := v.Weights[1]
			v.Weights = append(slices.Delete(v.Weights, 1, 2), output)
		}
	}
	if part != WithoutHead {
		switch head, err := f.head(); {
		case err != nil:
			return nil, err
		case head:
			add(newHead(cfg).weights())
		case part == HeadOnly:
			return nil, fmt.Errorf("qwen35: %s: %w: a converter has probably dropped its mtp tensors", c.Name(), ErrNoHead)
		}
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return v, v.check(f, part)
}

// check looks at each header, which marks the tensors as used, and refuses what is left.
func (v *Inventory) check(f *files, part Portion) error {
	for i := range v.Weights {
		if err := v.Weights[i].check(); err != nil {
			return err
		}
	}
	all := f.weights
	if part == WithoutHead {
		all = all[:1]
	}
	var left []string
	for _, from := range all {
		for _, n := range from.Tensors() {
			if name, needed := canonical(n); !needed {
				v.Extras = append(v.Extras, Extra{from, n, name})
			}
		}
		for _, n := range from.Unused() {
			name, _ := canonical(n)
			if part == Whole || isHead(name) == (part == HeadOnly) {
				left = append(left, n)
			}
		}
	}
	return leftover(left, v.cfg)
}

// Stored is how many tensors of the files the weights are made of, scales and biases
// included, how many of these are the head's, and what all occupy.
func (v *Inventory) Stored() (tensors, head int, bytes int64) {
	type name struct {
		from *checkpoint.Weights
		name string
	}
	seen := map[name]bool{}
	for i := range v.Weights {
		w := &v.Weights[i]
		for _, p := range w.places {
			for _, suffix := range []string{"", ".weight", ".scales", ".biases", ".global_scale", ".weight_scale_inv", "_scale_inv"} {
				t, ok := p.from.Look(p.name + suffix)
				at := name{p.from, t.Name}
				if !ok || seen[at] {
					continue
				}
				seen[at] = true
				tensors++
				bytes += int64(elements(t.Shape)) * int64(t.Type.Size())
				if w.Head() {
					head++
				}
			}
		}
	}
	return tensors, head, bytes
}

// HasHead reports whether the head is among the weights.
func (v *Inventory) HasHead() bool {
	return len(v.Weights) > 0 && v.Weights[len(v.Weights)-1].Head()
}

// AddHead adds the head of another inventory, which must have the shape that the config of
// this one asks for.
func (v *Inventory) AddHead(from *Inventory) error {
	if v.HasHead() {
		return errors.New("qwen35: the checkpoint has a multi-token-prediction head already")
	}
	var want []Weight
	for w := range newHead(v.cfg).weights() {
		want = append(want, *w)
	}
	i := slices.IndexFunc(from.Weights, func(w Weight) bool { return w.Head() })
	if i < 0 {
		return fmt.Errorf("qwen35: %s: %w", from.source.Name(), ErrNoHead)
	}
	head := from.Weights[i:]
	if len(head) != len(want) {
		return fmt.Errorf("qwen35: the head is for a model %s experts, this one is %s", from.cfg.withExperts(), v.cfg.withExperts())
	}
	for j := range head {
		h, w := &head[j], &want[j]
		if h.Name != w.Name || h.Experts != w.Experts || h.Rows != w.Rows || h.Cols != w.Cols {
			return fmt.Errorf("qwen35: the head is of another model: its %s is %s, this model needs %s %s",
				h.Name, h.shape(), w.Name, w.shape())
		}
	}
	v.Weights = append(slices.Clone(v.Weights), head...)
	return nil
}

func (c *config) withExperts() string {
	if c.experts > 0 {
		return "with"
	}
	return "without"
}

// shape writes the weight's shape as headers do.
func (w *Weight) shape() string {
	if w.Experts > 0 {
		return fmt.Sprintf("[%d, %d, %d]", w.Experts, w.Rows, w.Cols)
	}
	return fmt.Sprintf("[%d, %d]", w.Rows, w.Cols)
}
