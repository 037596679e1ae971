package qwen35

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
)

// place is where a tensor is stored.
type place struct {
	from *checkpoint.Weights
	name string // in its file
	side bool   // from a file beside the main weights
}

// names finds tensors by their canonical name, whatever layout the checkpoint has. The
// canonical names are those of the raw release without the prefix of the language model:
// embed_tokens.weight, layers.0.mlp.gate_proj.weight, norm.weight, lm_head.weight and
// mtp.fc.weight.
type names map[string]place

// findNames maps all tensors of the checkpoint and marks those that are known but not
// needed. A head beside the main weights is used if there is none inside them.
func findNames(c *checkpoint.Checkpoint, cfg *config, log *slog.Logger) (names, error) {
	found := names{}
	skipped := map[string]bool{}
	for _, n := range c.Tensors() {
		name, needed := canonical(n)
		if !needed || cfg.tied && strings.HasPrefix(name, "lm_head.") {
			skipped[n] = true
			continue
		}
		if other, ok := found[name]; ok {
			return nil, fmt.Errorf("qwen35: tensors %q and %q are both %s", other.name, n, name)
		}
		found[name] = place{from: c.Weights, name: n}
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
		s.Skip(func(name string) bool {
			_, needed := canonical(name)
			return !needed
		})
		for _, n := range s.Tensors() {
			name, needed := canonical(n)
			if !needed {
				continue
			}
			if !isHead(name) {
				name = "mtp." + name
			}
			if other, ok := found[name]; ok {
				return nil, fmt.Errorf("qwen35: tensors %q and %q of %s are both %s", other.name, n, s.File, name)
			}
			found[name] = place{from: s.Weights, name: n, side: true}
		}
	}
	if strings.HasSuffix(cfg.modelType, "_mtp") {
		return found.asHead(), nil
	}
	return found, nil
}

// asHead is the names of a folder that has nothing but a head.
func (n names) asHead() names {
	head := names{}
	for name, p := range n {
		if !isHead(name) {
			name = "mtp." + name
		}
		p.side = true
		head[name] = p
	}
	return head
}

// canonical is the canonical form of a tensor's name, and whether a text model needs it.
func canonical(name string) (string, bool) {
	for {
		short := strings.TrimPrefix(strings.TrimPrefix(name, "model."), "language_model.")
		if short == name {
			break
		}
		name = short
	}
	for _, other := range []string{"visual.", "vision_tower.", "vision_model.", "multi_modal_projector."} {
		if strings.HasPrefix(name, other) {
			return name, false
		}
	}
	// Old exports carry the rotation's frequencies, which follow from the config.
	return name, !strings.HasSuffix(name, "rotary_emb.inv_freq")
}

// isHead reports whether a canonical name is of the multi-token-prediction head.
func isHead(name string) bool { return strings.HasPrefix(name, "mtp.") }

func (n names) hasHead() bool {
	for name := range n {
		if isHead(name) {
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
func (n names) module(module string) (place, bool) {
	p, ok := n[module+".weight"]
	if ok {
		p.name = strings.TrimSuffix(p.name, ".weight")
		return p, true
	}
	p, ok = n[module]
	return p, ok
}

// from reports whether any tensor comes from w.
func (n names) from(w *checkpoint.Weights) bool {
	for _, p := range n {
		if p.from == w {
			return true
		}
	}
	return false
}
