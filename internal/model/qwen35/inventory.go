package qwen35

import (
	"log/slog"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// TakeInventory lists the weights of a checkpoint, which stays open as long as they are
// used. The checkpoint may also be that of a head in a folder of its own.
func TakeInventory(c *checkpoint.Checkpoint, part weights.Portion, log *slog.Logger) (*weights.Inventory, error) {
	cfg, err := readConfig(c)
	if err != nil {
		return nil, err
	}
	f, err := openFiles(c, cfg, log)
	if err != nil {
		return nil, err
	}
	m := newModel(cfg)
	for i := range m.layers {
		if d := m.layers[i].delta; d != nil {
			d.Tiled = false // as in converted checkpoints
		}
	}
	tables := weights.Tables{Model: m.weights(), Head: newHead(cfg).weights()}
	tower, err := cfg.openTower(f)
	switch {
	case tower != nil:
		tables.Tower = tower.Weights()
	case err != nil && part != weights.HeadOnly:
		log.Warn("the vision tower cannot be used", "reason", err)
	}
	return f.Inventory(part, tables, &converted{cfg, c.Config()})
}
