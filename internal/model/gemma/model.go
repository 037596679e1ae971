// Package gemma is the family of Gemma 4: sliding and full layers with different heads, dense or with experts beside the
// feed-forward, with layers that share the memory of others and with embeddings of every layer. It knows every layout such
// checkpoints come in; the arithmetic is the backend's.
package gemma

import (
	"log/slog"

	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/state"
)

// Layout implements network.Config. Layers that read the KV cache of another have no state.
func (c *config) Layout(o model.Options, head bool) state.Layout {
	if head {
		return state.Layout{}
	}
	l := state.Layout{MaxDrafts: o.MaxDrafts, Layers: make([]state.Layer, len(c.kinds))}
	for i, k := range c.kinds {
		if c.owner(i) != i {
			continue
		}
		kv := state.KV{Type: o.KVType(), Heads: c.of[k].kvHeads, Key: c.of[k].dim, Value: c.of[k].dim}
		if k == sliding {
			kv.Window = c.window
		}
		l.Layers[i] = kv
	}
	return l
}

// Check implements network.Config.
func (*config) Check(*weights.Files, bool, *slog.Logger) {}

// Describe implements network.Config.
func (*config) Describe(*weights.Survey, *weights.Files) {}

// Repairs implements network.Config.
func (*config) Repairs(*network.Head) []model.Repair { return nil }
