package serving

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/server"
)

func (f *serveFlags) batchGroup() flags.Group {
	g := flags.NewGroup("Batches (/v1/files and /v1/batches)")
	fs := g.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.stateDir, "state-dir", "", "`DIR` of files, batches and results (default: foretoken/batches in the user's state folder)")
	fs.BoolVar(&f.noBatches, "no-batches", false, "disable files and batches")
	fs.Var(&f.lines, "batch-lines", "maximum number of concurrent batch lines per model (default: --max-batch)")
	f.queueing.Add(g)
	return g
}

// openBatches gives the server a folder for batches. Without --state-dir an unavailable folder
// is not an error: another server may have it.
func (f *serveFlags) openBatches(ctx context.Context, log *slog.Logger, o *server.Options) (end func(), err error) {
	end = func() {}
	if f.noBatches {
		if f.stateDir != "" {
			return nil, flags.Usagef("--state-dir %s and --no-batches cannot be combined: leave one out", f.stateDir)
		}
		if f.queueing.Servers != "" {
			return nil, flags.Usagef("--queue and --no-batches cannot be combined: leave one out")
		}
		return end, nil
	}
	dir := f.stateDir
	if dir == "" && f.queueing.Servers == "" {
		if state := load.StateFolder(); state != "" {
			dir = filepath.Join(state, "batches")
		}
	}
	b, end, err := f.queueing.Open(ctx, dir, log)
	if errors.Is(err, batch.ErrLocked) {
		err = fmt.Errorf("%w: set another folder with --state-dir, or switch batches off with --no-batches", err)
	}
	switch {
	case err == nil:
		b.Lines = f.lines.Or(0)
		o.Batches = b
		return end, nil
	case f.queueing.Servers != "":
		return nil, err
	case f.stateDir != "":
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	log.Warn("no batches", "error", err)
	return func() {}, nil
}
