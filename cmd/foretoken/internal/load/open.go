package load

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/models"
	"github.com/foretoken/foretoken/internal/private"
)

// Model is an open model with the messages of the packages below.
type Model struct {
	*foretoken.Model
	Notes *console.Notes
	// Detach has waits for nodes go on when the context of Open ends.
	Detach func() (ok bool)
	end    context.CancelFunc // of waits for nodes; nil: there are none
}

// Close closes the model. It waits for no node that is away.
func (m *Model) Close() error {
	if m.end != nil {
		m.end()
	}
	return m.Model.Close()
}

// Open opens the model that the flags name, and describes it on a terminal.
func (f *Flags) Open(ctx context.Context, c *console.Console, log *console.Notes) (*Model, error) {
	s, err := f.OpenWith(ctx, c, f.Options(), log)
	if err != nil {
		return nil, err
	}
	if s.SelfTest() != nil && (c.ErrTerminal || f.Verbose) {
		c.Remark(describeSelfTest(s.SelfTest()))
	}
	if len(s.Placement()) > 1 && c.ErrTerminal {
		c.Remark(DescribePlacement(s.Placement()))
	}
	return s, nil
}

// OpenWith opens the model that the flags name, with options o. When ctx is canceled it returns
// console.ErrInterrupted at once; the unfinished load ends with the process.
func (f *Flags) OpenWith(ctx context.Context, c *console.Console, o foretoken.Options, log *console.Notes) (_ *Model, err error) {
	path, err := Resolve(f.Model)
	if err != nil {
		return nil, err
	}
	if err := f.Draft.Settle(&o.Speculation, f.Model, path, f.Draft.File()); err != nil {
		return nil, err
	}
	bar := console.NewProgress(c, f.Model)
	o.Log, o.Progress = slog.New(log), bar.Report
	waiting, end := context.WithCancel(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, end)
	defer func() {
		if err != nil {
			end()
		}
	}()
	if err := f.SetNodes(waiting, &o, path, Nodes{Log: o.Log}); err != nil {
		return nil, err
	}
	AddSlot(o.Threads)
	m, err := console.UnlessInterrupted(ctx, func() (*foretoken.Model, error) { return foretoken.Open(ctx, path, o) })
	if errors.Is(err, console.ErrInterrupted) {
		if c.ErrTerminal {
			console.Tell(c.Err, "\n") // leave the line of the bar
		}
		return nil, err
	}
	bar.End()
	log.Show(c.Err)
	if err != nil {
		return nil, Explain(err)
	}
	return &Model{m, log, detach, end}, nil
}

// Options are those of a model that is opened for one request at a time.
func (f *Flags) Options() foretoken.Options {
	o := foretoken.Options{
		Device: f.Device.Value, Threads: f.Threads.Or(Threads()), ISA: f.ISA.Value, Offload: f.Offload(), Context: f.context.Or(0), VerifyDevice: f.verify.Or(0), Speculation: f.Draft.options(),
		KVBits: f.KV.Options(), Vision: f.Vision.options(), PrefixCache: foretoken.PrefixCache{Off: true},
		MaxBatch: 1,
	}
	private.SetTalks(&o, f.Talks)
	if f.compute.Value == "float32" {
		o.Compute = foretoken.Float32
	}
	if f.quantize.Given {
		o.Quantize, _ = strconv.Atoi(f.quantize.Value) // one of a few that are numbers
	}
	return o
}

// DescribePlacement describes the placement of a model.
func DescribePlacement(list []foretoken.Placement) string {
	var sides []string
	for _, p := range list {
		sides = append(sides, fmt.Sprintf("%s: %s, %.1f MB", p.Device, strings.Join(p.Parts, ", "), float64(p.Weights)/1e6))
	}
	return strings.Join(sides, "; ")
}

// Explain adds advice about flags to an error.
func Explain(err error) error {
	var long *foretoken.ContextError
	switch {
	case errors.As(err, &long):
		return flags.Usagef("--%v", long)
	case errors.Is(err, foretoken.ErrNoHead):
		return fmt.Errorf("%w, or use --mtp=off (or --draft ngram, which needs no head)", err)
	case errors.Is(err, foretoken.ErrNoDevice):
		return fmt.Errorf("%w; 'foretoken devices' lists what this machine has", err)
	case errors.Is(err, foretoken.ErrNotBuiltIn):
		return flags.Usagef("this program was built without a model: give a checkpoint folder with --model DIR")
	case errors.Is(err, foretoken.ErrNoVision):
		return fmt.Errorf("%w; for a GGUF model, set --mmproj to the file with its vision tower", err)
	case errors.Is(err, foretoken.ErrNoTemplate):
		return fmt.Errorf("%w: use --no-chat-template to continue a text as it is", err)
	}
	return err
}

// Processors is how many this process may use, as it was before AddSlot changed it.
var Processors = runtime.GOMAXPROCS(0)

// Threads is the default of --threads.
func Threads() int {
	n, _ := backend.Threads()
	return n
}

// AddSlot makes sure of one slot of Go's scheduler more than threads compute. They spin while
// there is work and so occupy one each; the other is for everything else in the process.
func AddSlot(threads int) { runtime.GOMAXPROCS(max(Processors, threads+1)) }

// Checkpoint opens the files of a model that a name on the command line stands for.
func Checkpoint(name string) (*checkpoint.Checkpoint, error) {
	path, err := Resolve(name)
	if err != nil {
		return nil, err
	}
	c, err := models.Open(path, "")
	return c, Explain(err)
}

// CheckPrompt reports the error of a prompt with the names of the flags.
func (s *Model) CheckPrompt(p *foretoken.Prompt) error {
	for _, id := range p.IDs {
		if int(id) >= s.Info().Vocab {
			return flags.Usagef("--prompt-ids: %d is not a token of the model; its ids are 0 to %d", id, s.Info().Vocab-1)
		}
	}
	many := fmt.Sprint(len(p.IDs))
	switch {
	case p.Over > 0:
		many = fmt.Sprintf("more than %d", p.Over)
	case len(p.IDs) == 0:
		return flags.Usagef("the prompt is empty")
	case len(p.IDs) < s.Context():
		return nil
	}
	if s.Context() < s.Info().Context {
		return fmt.Errorf("the prompt has %s tokens, which does not fit into the context of %d: shorten the prompt, or raise --context (the model allows %d)", many, s.Context(), s.Info().Context)
	}
	return fmt.Errorf("the prompt has %s tokens, but the model allows %d for prompt and answer: shorten the prompt", many, s.Context())
}
