package weights

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
)

// headPrefix is the prefix of canonical names of the multi-token-prediction head.
const headPrefix = "mtp."

// towerPrefix is the prefix of canonical names of the vision tower.
const towerPrefix = "visual."

// DrafterPrefix is what canonical names of a drafter that is no part of the model begin with.
const DrafterPrefix = "drafter."

// OutputMatrix is the canonical name of the module that logits come from.
const OutputMatrix = "lm_head"

// Place is where a tensor is stored.
type Place struct {
	From   *checkpoint.Weights
	Name   string // in its file
	Beside bool   // in a file beside the main weights
}

// names finds tensors by their canonical name, in every layout.
type names map[string]Place

// findNames maps all tensors of the checkpoint and marks those that are known but not
// needed. A head beside the main weights is used if there is none inside them. twice is the
// error of two tensors of a vision tower with one name, which does not make the model
// unusable.
func findNames(c *checkpoint.Checkpoint, r *Reading, log *slog.Logger) (found names, twice, err error) {
	found = names{}
	skipped := map[string]bool{}
	headOnly := strings.HasSuffix(r.ModelType, HeadType)
	for _, n := range c.Tensors() {
		name, needed := r.Canonical(n)
		if !needed || headOnly && IsTower(name) || r.Tied && strings.HasPrefix(name, OutputMatrix+".") {
			skipped[n] = true
			continue
		}
		if other, ok := found[name]; ok {
			err := fmt.Errorf("weights: tensors %q and %q are both %s", other.Name, n, name)
			if !IsTower(name) {
				return nil, nil, err
			}
			skipped[n], twice = true, err
			continue
		}
		found[name] = Place{From: c.Weights, Name: n}
	}
	if n := c.Skip(func(name string) bool { return skipped[name] }); n > 0 {
		log.Info("tensors of other parts skipped", "count", n)
	}
	inline := found.hasHead()
	for _, s := range c.Sidecars {
		if found.hasHead() {
			if !s.Apart { // a folder beside may well be made from the head in this one
				log.Warn("head ignored: the checkpoint has another", "file", s.File, "inline", inline)
			}
			continue
		}
		other := func(name string) bool {
			name, needed := r.Canonical(name)
			return !needed || IsTower(name)
		}
		s.Skip(other)
		for _, n := range s.Tensors() {
			if other(n) {
				continue
			}
			name, _ := r.Canonical(n)
			if !IsHead(name) {
				name = headPrefix + name
			}
			if other, ok := found[name]; ok {
				return nil, nil, fmt.Errorf("weights: tensors %q and %q of %s are both %s", other.Name, n, s.File, name)
			}
			found[name] = Place{From: s.Weights, Name: n, Beside: true}
		}
	}
	if headOnly {
		found = found.asHead()
	}
	return found, twice, nil
}

// asHead is the names of a folder that has nothing but a head.
func (n names) asHead() names {
	head := names{}
	for name, p := range n {
		if !IsHead(name) {
			name = headPrefix + name
		}
		p.Beside = true
		head[name] = p
	}
	return head
}

// HeadType is the suffix of the model_type of a folder with only a head, after that
// of the model.
const HeadType = "_mtp"

// IsHead reports whether a canonical name is of the multi-token-prediction head.
func IsHead(name string) bool { return strings.HasPrefix(name, headPrefix) }

// IsTower reports whether a canonical name is of the vision tower.
func IsTower(name string) bool { return strings.HasPrefix(name, towerPrefix) }

// isExtra reports whether a tensor is an Extra, by its canonical name and whether it is needed. Needless tensors of layers are not, and
// neither are the frequencies of rotations.
func isExtra(name string, needed bool) bool {
	return (IsTower(name) || !needed && !strings.HasPrefix(name, "layers.")) && !strings.HasSuffix(name, "inv_freq")
}

func (n names) hasHead() bool { return n.any(IsHead) }

// any reports whether there is a name of some kind.
func (n names) any(kind func(name string) bool) bool {
	for name := range n {
		if kind(name) {
			return true
		}
	}
	return false
}

// headDepth is the number of layers the head has, by its tensors.
func (n names) headDepth() int {
	depth := 0
	for name := range n {
		var i int
		if _, err := fmt.Sscanf(name, "mtp.layers.%d.", &i); err == nil {
			depth = max(depth, i+1)
		}
	}
	return depth
}

// has reports whether a matrix of any of the modules is stored, in any encoding.
func (n names) has(modules ...string) bool {
	return slices.ContainsFunc(modules, func(m string) bool {
		_, ok := n.module(m)
		return ok
	})
}

// module is the place of a module's matrix. Its name is the module's path there.
func (n names) module(module string) (Place, bool) {
	name, ok := checkpoint.Elements(module, func(name string) bool {
		_, ok := n[name]
		return ok
	})
	p := n[name]
	p.Name = strings.TrimSuffix(p.Name, strings.TrimPrefix(name, module))
	return p, ok
}

// from reports whether any tensor comes from w.
func (n names) from(w *checkpoint.Weights) bool {
	for _, p := range n {
		if p.From == w {
			return true
		}
	}
	return false
}

// partOf is the part of a model that a weight belongs to, by its canonical name.
func partOf(name string) backend.Part {
	switch {
	case IsHead(name), strings.HasPrefix(name, DrafterPrefix):
		return backend.Part{Kind: backend.HeadPart}
	case IsTower(name):
		return backend.Part{Kind: backend.TowerPart}
	case strings.HasPrefix(name, "embed_tokens."):
		return backend.Part{Kind: backend.EmbeddingPart}
	}
	rest, ok := strings.CutPrefix(name, "layers.")
	if !ok {
		return backend.Part{Kind: backend.OutputPart}
	}
	number, rest, _ := strings.Cut(rest, ".")
	p := backend.Part{Kind: backend.LayerPart}
	p.Layer, _ = strconv.Atoi(number)
	if mlp, ok := strings.CutPrefix(rest, "mlp."); ok {
		if first, _, _ := strings.Cut(mlp, "."); first != "gate_proj" && first != "up_proj" && first != "down_proj" {
			p.Kind = backend.ExpertsPart // a dense layer has nothing else there
		}
	}
	return p
}

// Ranges are numbers for people, such as "0-3, 5". It sorts the list.
func Ranges(list []int) string {
	slices.Sort(list)
	var parts []string
	for from := 0; from < len(list); {
		to := from
		for to+1 < len(list) && list[to+1] == list[to]+1 {
			to++
		}
		text := fmt.Sprint(list[from])
		if to > from {
			text += fmt.Sprintf("-%d", list[to])
		}
		parts, from = append(parts, text), to+1
	}
	return strings.Join(parts, ", ")
}
