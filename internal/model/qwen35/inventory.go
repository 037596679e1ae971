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
	return f.Inventory(part, newModel(cfg).weights(), newHead(cfg).weights(), &converted{cfg, c.Config()})
}
