package weights

import (
	"errors"
	"fmt"
	"iter"
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
	Weights   []Weight // in the order of the layers, then the head's
	Extras    []Extra
	Converted Converted

	head  []Weight // what a head of this model has, whether there is one or not
	files *Files
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

// Converted is how converted checkpoints of a family are written.
type Converted interface {
	// Name is what the tensor of a canonical name is called in them.
	Name(canonical string) string
	// Config is their config.json, for a model with a head or without one, with an image tower
	// or without. The caller owns the map.
	Config(head, vision bool) (map[string]any, error)
	// HeadConfig is the config.json of a folder that holds nothing but the head.
	HeadConfig() (map[string]any, error)
	// PromiseHead makes a config.json speak of a head, and reports whether it did not before.
	PromiseHead(config map[string]any) (changed bool)
}

// Inventory lists the weights of the tables: of the model without its head, and of the head; nil
// for a family that has none. It reads no more of the checkpoint than the headers and the norms
// of the head. The checkpoint may also be that of a head in a folder of its own.
func (f *Files) Inventory(part Portion, model, head iter.Seq[*Weight], how Converted) (*Inventory, error) {
	v := &Inventory{Converted: how, files: f}
	add := func(table iter.Seq[*Weight]) {
		for w := range table {
			f.find(w)
			v.Weights = append(v.Weights, *w)
		}
	}
	if part != HeadOnly {
		add(model)
		output := func(w Weight) bool { return w.Name == OutputMatrix+".weight" }
		if i := slices.IndexFunc(v.Weights, output); i >= 0 { // loaded early, written last
			w := v.Weights[i]
			v.Weights = append(slices.Delete(v.Weights, i, i+1), w)
		}
	}
	if head != nil {
		for w := range head {
			v.head = append(v.head, *w)
		}
	}
	if part != WithoutHead {
		switch there, err := f.HasHead(); {
		case err != nil:
			return nil, err
		case there && head != nil:
			add(head)
		case part == HeadOnly:
			return nil, fmt.Errorf("weights: %s: %w: a converter has probably dropped its mtp tensors", f.source.Name(), ErrNoHead)
		}
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return v, v.check(part)
}

// check looks at each header, which marks the tensors as used, and refuses what is left.
func (v *Inventory) check(part Portion) error {
	for i := range v.Weights {
		if err := v.Weights[i].check(); err != nil {
			return err
		}
	}
	all := v.files.weights
	if part == WithoutHead {
		all = all[:1]
	}
	var left []string
	for _, from := range all {
		for _, n := range from.Tensors() {
			if name, needed := v.files.Canonical(n); !needed {
				v.Extras = append(v.Extras, Extra{from, n, name})
			}
		}
		for _, n := range from.Unused() {
			name, _ := v.files.Canonical(n)
			if part == Whole || IsHead(name) == (part == HeadOnly) {
				left = append(left, n)
			}
		}
	}
	return v.files.leftover(left)
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
				t, ok := p.From.Look(p.Name + suffix)
				at := name{p.From, t.Name}
				if !ok || seen[at] {
					continue
				}
				seen[at] = true
				tensors++
				bytes += size(t)
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
		return errors.New("weights: the checkpoint has a multi-token-prediction head already")
	}
	i := slices.IndexFunc(from.Weights, func(w Weight) bool { return w.Head() })
	if i < 0 {
		return fmt.Errorf("weights: %s: %w", from.files.source.Name(), ErrNoHead)
	}
	head := from.Weights[i:]
	if len(head) != len(v.head) {
		return fmt.Errorf("weights: the head is for a model %s experts, this one is %s", experts(head), experts(v.head))
	}
	for j := range head {
		h, w := &head[j], &v.head[j]
		if h.Name != w.Name || h.Experts != w.Experts || h.Rows != w.Rows || h.Cols != w.Cols {
			return fmt.Errorf("weights: the head is of another model: its %s is %s, this model needs %s %s",
				h.Name, h.shape(), w.Name, w.shape())
		}
	}
	v.Weights = append(slices.Clone(v.Weights), head...)
	return nil
}

// experts tells what the layer of a head has.
func experts(head []Weight) string {
	if slices.ContainsFunc(head, func(w Weight) bool { return w.Experts > 0 }) {
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
