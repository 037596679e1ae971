package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
)

// Extra is a tensor of a vision tower, or an unknown tensor outside of the layers that a text model does not need.
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
	Tower     []Weight // those of the vision tower, if it can be used and IncludeTower was not called
	Extras    []Extra  // those of the vision tower too, usable or not
	Converted Converted

	head  []Weight // the weights of a head of this model, whether there is one or not
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

// ErrTextOnly is wrapped by the error for a vision tower of a family that takes text only.
var ErrTextOnly = errors.New("the model takes text only")

// ErrNoHead is wrapped by the error for a missing head.
var ErrNoHead = errors.New("there is no multi-token-prediction head")

// Converted is how converted checkpoints of a family are written.
type Converted interface {
	// Name is the name in them of the tensor with a canonical name.
	Name(canonical string) string
	// Config is their config.json, for a model with a head or without one, with a vision tower
	// or without. The caller owns the map.
	Config(head, vision bool) (map[string]any, error)
	// HeadConfig is the config.json of a folder that holds nothing but the head.
	HeadConfig() (map[string]any, error)
	// PromiseHead makes a config.json speak of a head, and reports whether it did not before.
	PromiseHead(config map[string]any) (changed bool)
}

// Inventory lists the weights of the tables. It reads only the headers, the norms of the head, and possible copies, which
// are left out if they are copies. The checkpoint may also be that of a head in a separate folder. An
// unusable tower has been skipped.
func (f *Files) Inventory(part Portion, t Tables, how Converted) (*Inventory, error) {
	v := &Inventory{Converted: how, files: f}
	add := func(table iter.Seq[*Weight]) error {
		for w := range table {
			if w.Kind == Ones {
				continue
			}
			if found := f.find(w); w.copied != "" {
				same := false
				if found {
					var err error
					if same, err = f.copies(w); err != nil {
						return err
					}
				}
				if same || !found {
					continue
				}
			}
			v.Weights = append(v.Weights, *w)
		}
		return nil
	}
	if part != HeadOnly {
		if err := add(t.Model); err != nil {
			return nil, err
		}
		output := func(w Weight) bool { return w.Name == OutputMatrix+".weight" }
		if i := slices.IndexFunc(v.Weights, output); i >= 0 { // loaded early, written last
			w := v.Weights[i]
			v.Weights = append(slices.Delete(v.Weights, i, i+1), w)
		}
	}
	if t.Head != nil {
		for w := range t.Head {
			v.head = append(v.head, *w)
		}
	}
	if part != WithoutHead {
		switch there, err := f.HasHead(); {
		case err != nil:
			return nil, err
		case there && t.Head != nil:
			if err := add(t.Head); err != nil {
				return nil, err
			}
		case part == HeadOnly:
			return nil, fmt.Errorf("weights: %s: %w: a converter has probably dropped the mtp tensors", f.source.Name(), ErrNoHead)
		}
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	if part != HeadOnly && t.Tower != nil {
		for w := range t.Tower {
			f.find(w)
			v.Tower = append(v.Tower, *w)
		}
	}
	return v, v.check(part)
}

// check reads each header, which marks the tensors as used, and refuses leftover tensors.
func (v *Inventory) check(part Portion) error {
	for _, list := range [][]Weight{v.Weights, v.Tower} {
		for i := range list {
			if err := list[i].check(); err != nil {
				return err
			}
		}
	}
	all := v.files.weights
	if part == WithoutHead {
		all = all[:1]
	}
	var left []string
	for _, from := range all {
		for _, n := range from.Tensors() {
			if name, needed := v.files.Canonical(n); isExtra(name, needed) {
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

// IncludeTower makes the vision tower one of the weights, the last.
func (v *Inventory) IncludeTower() {
	v.Weights = append(v.Weights, v.Tower...)
	v.Tower = nil
}

// Stored is the number of tensors of the weights in the files, scales and biases
// included, the numbers of those of the head and the vision tower, and the bytes of all.
func (v *Inventory) Stored() (tensors, head, tower int, bytes int64) {
	type name struct {
		from *checkpoint.Weights
		name string
	}
	seen := map[name]bool{}
	for i := range v.Weights {
		w := &v.Weights[i]
		w.eachTensor(func(from *checkpoint.Weights, t checkpoint.Tensor) {
			at := name{from, t.Name}
			if seen[at] {
				return
			}
			seen[at] = true
			tensors++
			bytes += size(t)
			switch {
			case w.Head():
				head++
			case w.Tower():
				tower++
			}
		})
	}
	return tensors, head, tower, bytes
}

// eachTensor visits the tensors that the weight is stored as, scales and biases included.
func (w *Weight) eachTensor(visit func(from *checkpoint.Weights, t checkpoint.Tensor)) {
	for _, p := range w.places {
		for _, t := range p.From.Parts(p.Name) {
			visit(p.From, t)
		}
	}
}

// HasHead reports whether the head is among the weights.
func (v *Inventory) HasHead() bool {
	return slices.ContainsFunc(v.Weights, func(w Weight) bool { return w.Head() })
}

// Drafter reports whether the weights are those of a drafter in files of its own.
func (v *Inventory) Drafter() bool {
	return len(v.Weights) > 0 && strings.HasPrefix(v.Weights[0].Name, DrafterPrefix)
}

// AddHead adds the head of another inventory, which must have the shape for the config of
// this one.
func (v *Inventory) AddHead(from *Inventory) error {
	if v.HasHead() {
		return errors.New("weights: the checkpoint has a multi-token-prediction head already")
	}
	i := slices.IndexFunc(from.Weights, func(w Weight) bool { return w.Head() })
	if i < 0 {
		return fmt.Errorf("weights: %s: %w", from.files.source.Name(), ErrNoHead)
	}
	head := from.Weights[i:]
	own := slices.DeleteFunc(slices.Clone(v.head), func(w Weight) bool { // optional parts of the head
		return w.copied != "" && !slices.ContainsFunc(head, func(h Weight) bool { return h.Name == w.Name })
	})
	if len(head) != len(own) {
		return fmt.Errorf("weights: the head is for a model %s experts, but this model is %s", experts(head), experts(own))
	}
	for j := range head {
		h, w := &head[j], &own[j]
		if h.Name != w.Name || h.Experts != w.Experts || h.Rows != w.Rows || h.Cols != w.Cols {
			return fmt.Errorf("weights: the head belongs to another model: its %s is %s, but this model needs %s %s",
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

// PromiseHead sets the number of the head's layers in a config, nested or not, under key. It reports whether
// that changed it.
func PromiseHead(config map[string]any, key string) bool {
	text, ok := config["text_config"].(map[string]any)
	if !ok {
		text = config
	}
	changed := text[key] != json.Number("1")
	text[key] = json.Number("1")
	return changed
}
