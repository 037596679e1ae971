package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/models"
)

// session is an open model with what the packages below have to say about it.
type session struct {
	*foretoken.Model
	notes *notes
}

// openSession opens the model that the flags name. When ctx is canceled it returns
// errInterrupted at once, and leaves what it was loading to the end of the process.
func openSession(ctx context.Context, c *console, f *modelFlags, log *notes) (*session, error) {
	bar := newProgress(c, f.model)
	s, err := unlessInterrupted(ctx, func() (*session, error) { return loadSession(f, log, bar) })
	if errors.Is(err, errInterrupted) {
		if c.errTerminal {
			tell(c.err, "\n") // leave the line of the bar
		}
		return nil, err
	}
	bar.end()
	log.show(c.err)
	if err == nil && s.SelfTest() != nil && (c.errTerminal || f.verbose) {
		c.remark(describeSelfTest(s.SelfTest()))
	}
	if err == nil && len(s.Placement()) > 1 && c.errTerminal {
		c.remark(describePlacement(s.Placement()))
	}
	return s, err
}

// loadSession opens a model as the flags say.
func loadSession(f *modelFlags, log *notes, bar *progress) (*session, error) {
	path, err := resolveModel(f.model)
	if err != nil {
		return nil, err
	}
	o := f.options()
	o.Log, o.Progress = slog.New(log), bar.report
	addSlot(o.Threads)
	m, err := foretoken.Open(path, o)
	if err != nil {
		return nil, explain(err)
	}
	return &session{m, log}, nil
}

// options are those of a model that is opened for one request at a time.
func (f *modelFlags) options() foretoken.Options {
	o := foretoken.Options{
		Device: f.device.value, Threads: f.threads.or(processors), ISA: f.isa.value, Offload: f.offload(), Context: f.context.or(0), Speculation: f.draft.options(),
		KVBits: f.kv.options(), Vision: f.vision.options(), PrefixCache: foretoken.PrefixCache{Off: true},
		MaxBatch: 1,
	}
	if f.compute.value == "float32" {
		o.Compute = backend.Float32
	}
	if f.quantize.given {
		o.Quantize, _ = strconv.Atoi(f.quantize.value) // one of a few that are numbers
	}
	return o
}

// describePlacement says what lies where.
func describePlacement(list []foretoken.Placement) string {
	var sides []string
	for _, p := range list {
		sides = append(sides, fmt.Sprintf("%s: %s, %.1f MB", p.Device, strings.Join(p.Parts, ", "), float64(p.Weights)/1e6))
	}
	return strings.Join(sides, "; ")
}

// explain adds what flags can do about an error.
func explain(err error) error {
	var long *foretoken.ContextError
	switch {
	case errors.As(err, &long):
		return usagef("--%v", long)
	case errors.Is(err, foretoken.ErrNoHead):
		return fmt.Errorf("%w, or use --mtp=off (or --draft ngram, which needs no head)", err)
	case errors.Is(err, foretoken.ErrNoDevice):
		return fmt.Errorf("%w; 'foretoken devices' lists what this machine has", err)
	case errors.Is(err, foretoken.ErrNotBuiltIn):
		return usagef("this program was built without a model: give a checkpoint folder with --model DIR")
	case errors.Is(err, foretoken.ErrNoVision):
		return fmt.Errorf("%w; for a GGUF model, set --mmproj to the file with its vision tower", err)
	case errors.Is(err, foretoken.ErrNoTemplate):
		return fmt.Errorf("%w: use --no-chat-template to continue a text as it is", err)
	}
	return err
}

// processors is how many this process may use, as it was before addSlot changed it.
var processors = runtime.GOMAXPROCS(0)

// addSlot makes sure of one slot of Go's scheduler more than threads compute. They spin while
// there is work and so occupy one each; the other is for everything else in the process.
func addSlot(threads int) { runtime.GOMAXPROCS(max(processors, threads+1)) }

// openCheckpoint opens the files of a model that a name on the command line stands for.
func openCheckpoint(name string) (*checkpoint.Checkpoint, error) {
	path, err := resolveModel(name)
	if err != nil {
		return nil, err
	}
	c, err := models.Open(path, "")
	return c, explain(err)
}
